#!/bin/sh
# Builds etcd, kube-apiserver, kube-controller-manager, kube-scheduler and
# kubectl of the Kubernetes version K8S, such as 1.36, from the Go modules that go.mod and
# go.sum in the folder of that name pin. Links the directory that holds them as
# <repository>/target/control-plane and prints its path.
#
# The binaries live in a cache outside the checkout, keyed by the Kubernetes
# version and by what goes into the build; with a warm cache this only renews
# the link. If KUBEBUILDER_ASSETS names a directory with etcd, kube-apiserver
# and kubectl, that directory is linked and nothing is built.
set -eu

k8s=${K8S:-1.37}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
repo=$(CDPATH='' cd -- "$here/../.." && pwd -P)
link=$repo/target/control-plane

say() { printf 'control-plane: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

link_to() {
    mkdir -p "$repo/target"
    if [ -e "$link" ] && [ ! -L "$link" ]; then
        die "$link exists and is not a symbolic link; remove it and try again"
    fi
    ln -sfn "$1" "$link"
    say "target/control-plane -> $1"
    printf '%s\n' "$1"
    exit 0
}

# True if directory $1 holds every further argument as an executable.
holds() {
    dir=$1
    shift
    for tool in "$@"; do
        [ -x "$dir/$tool" ] || return 1
    done
}

if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
    if holds "$KUBEBUILDER_ASSETS" etcd kube-apiserver kubectl; then
        link_to "$(CDPATH='' cd -- "$KUBEBUILDER_ASSETS" && pwd -P)"
    fi
    say "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS lacks etcd, kube-apiserver or kubectl; ignoring it"
fi

module=$here/$k8s
if [ ! -f "$module/go.mod" ]; then
    pinned=$(cd "$here" && echo [0-9]*)
    die "K8S=$k8s is not pinned in tests/control-plane; choose one of: $pinned"
fi

# v1.36.3 from the line "k8s.io/kubernetes v1.36.3" of go.mod
version=$(sed -n 's/^[[:space:]]*\(require \)\{0,1\}k8s\.io\/kubernetes \(v[0-9][^ ]*\).*$/\2/p' "$module/go.mod")
[ -n "$version" ] || die "found no version of k8s.io/kubernetes in $module/go.mod"
go_needed=$(sed -n 's/^go \([0-9.]*\)$/\1/p' "$module/go.mod")
major=$(printf '%s\n' "$version" | sed 's/^v\([0-9]*\)\..*/\1/')
minor=$(printf '%s\n' "$version" | sed 's/^v[0-9]*\.\([0-9]*\)\..*/\1/')

# The versions that the servers and kubectl report are set by the linker.
ldflags='-s -w'
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    ldflags="$ldflags -X $package.gitVersion=$version"
    ldflags="$ldflags -X $package.gitMajor=$major -X $package.gitMinor=$minor"
    ldflags="$ldflags -X $package.gitTreeState=clean"
done

sha256() {
    if command -v sha256sum >/dev/null 2>&1; then sha256sum; else shasum -a 256; fi
}
platform=$(uname -sm)
key=$({ cat "$module/go.mod" "$module/go.sum"; printf '%s\n' "cgo=0 trimpath $ldflags" "$platform"; } |
    sha256 | cut -c1-12)
[ "${#key}" -eq 12 ] || die "neither sha256sum nor shasum works here"
root=${XDG_CACHE_HOME:-${HOME:?set HOME or XDG_CACHE_HOME}/.cache}/replicaset-controller/control-plane
cache=$root/$version-$key

built() { holds "$cache" etcd kube-apiserver kube-controller-manager kube-scheduler kubectl; }

if built; then
    link_to "$cache"
fi

if ! command -v go >/dev/null 2>&1; then
    die "the control plane for the tests ($version) is not built yet and there is no Go to build it:" \
        "install Go $go_needed or newer, or set KUBEBUILDER_ASSETS to a directory" \
        "with etcd, kube-apiserver and kubectl"
fi
cd "$module"
if ! go_version=$(GOWORK=off go env GOVERSION 2>&1); then
    die "building the control plane for the tests ($version) needs Go $go_needed or newer," \
        "but go said: $go_version; update Go, or set KUBEBUILDER_ASSETS to a directory" \
        "with etcd, kube-apiserver and kubectl"
fi

mkdir -p "$root"
# One build at a time, where the system can lock; without it two builds at
# once only waste time, since each finishes with a rename.
if command -v flock >/dev/null 2>&1; then
    exec 9>"$root/.lock"
    if ! flock -n 9; then
        say "waiting for another build"
        flock 9
    fi
    if built; then
        link_to "$cache"
    fi
fi

temp=$(mktemp -d "$root/.build.XXXXXX")
trap 'rm -rf "$temp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
chmod 755 "$temp"

build() {
    say "building $1 with $go_version"
    GOWORK=off CGO_ENABLED=0 GOOS='' GOARCH='' nice go build -mod=readonly -buildvcs=false -trimpath \
        -ldflags "$ldflags" -o "$temp/$1" "$2" 9>&-
}
say "building Kubernetes $version; the first time takes minutes and about 4 GB of disk for Go's caches"
build etcd go.etcd.io/etcd/server/v3
build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver
build kubectl k8s.io/kubernetes/cmd/kubectl
build kube-controller-manager k8s.io/kubernetes/cmd/kube-controller-manager
build kube-scheduler k8s.io/kubernetes/cmd/kube-scheduler

# If someone else was faster, theirs is as good. A directory that is there but
# lacks a tool is not: it is removed first.
if ! built; then
    rm -rf "$cache"
    mv "$temp" "$cache"
fi
rm -rf "$temp"
link_to "$cache"
