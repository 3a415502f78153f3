#!/bin/sh
# Runs the samples on the dev server, each in a bare environment: installs the packages that
# config/packages/libraries.sh makes for pip and npm, and takes Go's from its folder. All of it without
# network: what the samples need of others is fetched before, into a cache outside the checkout.
#
# PACKAGES names a folder with packages that are built already, such as target/dist; without it they are
# built with the program of `cargo build`. TESTS names some of pytest, node, go.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
repo=$(CDPATH='' cd -- "$here/../.." && pwd -P)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/replicaset-controller/samples
name=replicaset-controller
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

say() { printf 'samples: %s\n' "$*" >&2; }

# Runs a command without network if this user may make a namespace for it, and says how long it took.
offline() { # offline WHAT COMMAND...
    what=$1
    shift
    began=$(date +%s%N)
    if [ -n "$isolated" ]; then
        unshare --map-root-user --net sh -c 'ip link set lo up && exec "$@"' - "$@"
    else
        "$@"
    fi
    say "$what: $((($(date +%s%N) - began) / 1000000)) ms"
}
isolated=
if unshare --map-root-user --net ip link set lo up 2>/dev/null; then
    isolated=yes
else
    say "the network stays reachable: unshare is not allowed here"
fi

packages=${PACKAGES:-}
if [ -z "$packages" ]; then
    packages=$work/packages
    program=$work/$(uname -m)
    mkdir "$packages" "$program"
    objcopy --strip-all "$repo/target/debug/$name" "$program/$name"
    "$repo/config/packages/libraries.sh" "$packages" "$program"
fi

run_pytest() {
    key=$(cksum <"$here/pytest/requirements.txt" | cut -d ' ' -f 1)-$(python3 -c 'import sys; print(*sys.version_info[:2], sep=".")')
    wheels=$cache/wheels-$key
    if [ ! -e "$wheels/complete" ]; then
        say "fetching $wheels"
        rm -rf "$wheels"
        python3 -m pip download --quiet --disable-pip-version-check --dest "$wheels" \
            --requirement "$here/pytest/requirements.txt"
        touch "$wheels/complete"
    fi
    offline 'python3 -m venv' python3 -m venv "$work/python"
    offline 'pip install' "$work/python/bin/pip" install --quiet --disable-pip-version-check --no-index \
        --find-links "$packages" --find-links "$wheels" $name --requirement "$here/pytest/requirements.txt"
    offline "$name --version" "$work/python/bin/$name" --version
    cd "$here/pytest"
    offline pytest "$work/python/bin/python" -B -m pytest -q -p no:cacheprovider
}

run_node() {
    cp -R "$here/node" "$work/node"
    cd "$work/node"
    echo '{"private": true}' >package.json
    offline 'npm install' npm install --silent --offline --no-audit --no-fund "$packages"/$name-*[0-9].tgz
    offline npx npx --offline $name --version
    offline 'node --test' node --test
}

run_go() {
    cd "$here/go"
    go mod download
    tar -C "$work" -xzf "$packages"/$name-*[0-9].tgz
    PATH=$work/package/linux-$(uname -m | sed 's/x86_64/x64/; s/aarch64/arm64/'):$PATH
    export PATH
    go vet ./...
    offline 'go test' go test -count=1 ./...
}

for tests in ${TESTS:-pytest node go}; do
    say "== $tests"
    (run_"$tests")
done
