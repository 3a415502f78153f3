#!/usr/bin/env bash
# run.sh [COMMAND [ARGUMENT...]]
#
# Runs the integration tests on kube-apiserver with k3s's storage under it: kine on SQLite in the
# place of etcd; or COMMAND, such as `make chaos`, whose control planes have it. K8S chooses the
# version of Kubernetes.
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
repo=$(CDPATH='' cd -- "$here/../../.." && pwd -P)
link=$repo/target/control-plane

# Needs Go, and a C compiler for SQLite.
hash=$(cat "$here"/go.sum "$here"/main.go | sha256sum | cut -c1-12)
kine=${XDG_CACHE_HOME:-$HOME/.cache}/replicaset-controller/rigs/kine-$hash
if [[ ! -x $kine ]]; then
    mkdir -p "${kine%/*}"
    (cd "$here" && GOWORK=off CGO_ENABLED=1 go build -mod=readonly -trimpath -o "$kine.$$" .)
    mv "$kine.$$" "$kine"
fi

# The binaries of the control plane, with kine under etcd's name.
real=$(unset KUBEBUILDER_ASSETS && "$repo/tests/control-plane/build.sh")
real=$(CDPATH='' cd -- "$real" && pwd -P)
bin=$(mktemp -d "${TMPDIR:-/tmp}/kine.XXXXXX")
trap 'rm -rf "$bin"; ln -sfn "$real" "$link"' EXIT
ln -s "$real"/* "$bin"
ln -sf "$kine" "$bin/etcd"

cd "$repo"
[[ $# -gt 0 ]] || set -- tests/control-plane/run.sh cargo test --locked --test it
KUBEBUILDER_ASSETS=$bin "$@"
