#!/bin/sh
# The tarballs of `make dist`: checksums, contents, and each binary's `--version`, `demo` and `dev` with a
# real kubectl. The one for another kind of machine runs under qemu-user.
#
# REPRODUCE=1 also builds them again in another folder, and compares: twice as long.
. "$(dirname -- "$0")/lib.sh"
dist=$root/target/dist
kubectl=$("$root/tests/control-plane/build.sh")/kubectl

check_dev() { # check_dev COMMAND...
    rm -f "$work/kubeconfig"
    "$@" dev --port=0 --write-kubeconfig="$work/kubeconfig" >"$work/dev.log" 2>&1 &
    pids="$pids $!"
    eventually test -e "$work/kubeconfig"
    KUBECONFIG=$work/kubeconfig
    export KUBECONFIG
    step "dev: kubectl apply" "$kubectl" apply -f "$folder/share/doc/$name/replicasets.yaml"
    step "dev: 8 pods are Ready" \
        "$kubectl" wait --for=jsonpath='{.status.readyReplicas}'=8 --timeout=60s rs/web
    unset KUBECONFIG
}

check() { # check TARGET
    folder=$work/$name-$version-$1
    step "$1: tar" tar -C "$work" -xzf "$dist/$name-$version-$1.tar.gz"
    binary=$folder/bin/$name
    documents=$folder/share/doc/$name
    for file in "$folder/share/man/man8/$name.8" "$documents/LICENCES" "$documents/sbom.cdx.json" \
        "$folder/lib/systemd/system/$name.service" "$documents/kustomization.yaml" \
        "$folder/share/bash-completion/completions/$name" "$folder/etc/$name/config.yaml"; do
        [ -s "$file" ] || fail "$1: there is no $file"
    done
    grep -q '^    ring 0' "$documents/LICENCES" || fail "$1: no licence of ring"
    grep -q '"name": "rustls"' "$documents/sbom.cdx.json" || fail "$1: the SBOM lacks rustls"
    ! readelf -SW "$binary" | grep -q '\.debug_line' || fail "$1: the binary is not stripped"
    ! readelf -lW "$binary" | grep -q INTERP || fail "$1: the binary is not static"
    run=$binary
    machine=${1%%-*}
    if [ "$machine" != "$(uname -m)" ]; then
        run="qemu-$machine-static $binary"
    fi
    step "$1: --version" $run --version
    step "$1: demo --fast" $run demo --fast
    check_dev $run
    (cd "$work" && tar -xzf "$dist/$name-$version-$1-debug.tar.gz")
    readelf -SW "$work/$name-$version-$1-debug/$name.debug" | grep -q '\.debug_line' ||
        fail "$1: no line tables"
}

step "checksums" sh -c 'cd "$1" && sha256sum --check SHA256SUMS' - "$dist"
for tarball in "$dist"/*-musl.tar.gz; do
    target=${tarball##*/"$name-$version-"}
    check "${target%.tar.gz}"
done

if [ -n "${REPRODUCE:-}" ]; then
    git clone -q "$root" "$work/elsewhere"
    step "a second build in another folder" "$work/elsewhere/config/packages/tarballs.sh"
    step "the same bytes" cmp "$dist/SHA256SUMS" "$work/elsewhere/target/dist/SHA256SUMS"
fi
