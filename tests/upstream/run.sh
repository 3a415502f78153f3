#!/usr/bin/env bash
# Runs Kubernetes' integration tests of ReplicaSets, ReplicationControllers, Deployments and quotas
# twice, with the daemon in the place of upstream's two controllers and as they are, and prints the
# verdicts side by side. Exits with 1 if a test fails with the daemon and passes with upstream's.
#
# K8S chooses the Kubernetes version, such as 1.36. REPLICASET_CONTROLLER names another binary than
# that of `cargo build`. RUN is a pattern for -test.run. DEPLOYMENTS=1 takes the place of upstream's
# Deployment controller too, and runs the tests of Deployments only. See README.md.
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
repo=$(CDPATH='' cd -- "$here/../.." && pwd -P)
k8s=${K8S:-1.37}
module=$repo/tests/control-plane/$k8s
packages=(replicaset replicationcontroller deployment quota)
[[ -z ${DEPLOYMENTS:-} ]] || packages=(deployment)
: "${REPLICASET_CONTROLLER:=$repo/target/debug/replicaset-controller}"
export REPLICASET_CONTROLLER

say() { printf 'upstream: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

[[ -x $REPLICASET_CONTROLLER ]] || die "$REPLICASET_CONTROLLER is not there; run 'cargo build' first"
servers=$("$repo/tests/control-plane/build.sh")
[[ -f $module/go.mod ]] || die "K8S=$k8s is not pinned in tests/control-plane"
command -v go >/dev/null || die "Go is needed to build Kubernetes' tests"

# --- Build ------------------------------------------------------------------

cd "$module"
export GOWORK=off CGO_ENABLED=0 GOFLAGS='-mod=readonly -buildvcs=false -trimpath'
go mod download k8s.io/kubernetes
read -r version kubernetes < <(go list -m -f '{{.Version}} {{.Dir}}' k8s.io/kubernetes)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/replicaset-controller/upstream
work=$(mktemp -d "${TMPDIR:-/tmp}/upstream.XXXXXX")
trap 'rm -rf "$work"' EXIT

# Go overlays nothing in its module cache, so the module is reached by a link.
ln -s "$kubernetes" "$work/kubernetes"
cp go.mod go.sum "$work"
chmod u+w "$work"/go.*
go mod edit -replace "k8s.io/kubernetes=$work/kubernetes" "$work/go.mod"
controllers=$work/kubernetes/pkg/controller
cat >"$work/overlay.json" <<OVERLAY
{"Replace": {
  "$controllers/replicaset/replica_set.go": "$here/shim/replicaset/replica_set.go",
  "$controllers/replicaset/daemon.go": "$here/shim/replicaset/daemon.go",
  "$controllers/replication/replication_controller.go": "$here/shim/replication/replication_controller.go"
OVERLAY
shim=("$here"/shim/{replicaset,replication}/*.go)
if [[ -n ${DEPLOYMENTS:-} ]]; then
    # A file that is replaced by nothing is gone.
    for file in progress recreate rollback rolling sync; do
        echo "  , \"$controllers/deployment/$file.go\": \"\"" >>"$work/overlay.json"
    done
    file=deployment/deployment_controller.go
    echo "  , \"$controllers/$file\": \"$here/shim/$file\"" >>"$work/overlay.json"
    shim+=("$here/shim/$file")
fi
echo '}}' >>"$work/overlay.json"

# The version that the API server in the tests reports, as build.sh sets it.
ldflags='-s -w'
IFS=. read -r major minor _ <<<"${version#v}"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    ldflags+=" -X $package.gitVersion=$version -X $package.gitMajor=$major -X $package.gitMinor=$minor"
done

# build KIND FILE... -- [FLAG...]: sets tests_KIND to a directory with a test binary of each
# package, keyed by the version, the contents of the FILEs and the machine.
build() {
    local kind=$1 files=() key dir package
    shift
    while [[ $1 != -- ]]; do
        files+=("$1")
        shift
    done
    shift
    key=$({ cat "${files[@]}"; uname -sm; echo "$ldflags"; } | sha256sum | cut -c1-12)
    dir=$cache/$version-$kind-$key
    declare -g "tests_$kind=$dir"
    for package in "${packages[@]}"; do
        [[ -x $dir/$package ]] && continue
        say "building $version's tests of $package, $kind"
        mkdir -p "$dir"
        nice go test -c "$@" -ldflags "$ldflags" -o "$work/$package" \
            "k8s.io/kubernetes/test/integration/$package"
        mv "$work/$package" "$dir/$package"
    done
}
build upstream go.mod go.sum --
build ours go.mod go.sum "${shim[@]}" -- \
    -modfile "$work/go.mod" -overlay "$work/overlay.json"
for package in "${packages[@]}"; do
    for method in 'ReplicaSetController).manageReplicas' ${DEPLOYMENTS:+'DeploymentController).syncDeployment'}; do
        if grep -aqF "$method" "$tests_ours/$package"; then
            die "the tests of $package still contain upstream's controller"
        fi
    done
done

# --- Run --------------------------------------------------------------------

# The tests start an etcd of their own if nothing listens at this address.
export KUBE_INTEGRATION_ETCD_URL=http://127.0.0.1:1
export PATH=$servers:$PATH
# Where the API server in the tests finds its test data, since -trimpath hides it.
TEST_SRCDIR=$(go env GOMODCACHE)
export TEST_SRCDIR TEST_WORKSPACE=.

logs=$repo/target/upstream/$k8s
mkdir -p "$logs"
rm -f "$logs"/*

for package in "${packages[@]}"; do
    # Tests are run in the directory of their package.
    cd "$kubernetes/test/integration/$package"
    sed -nE 's/^func (Test[^(]*)\(t \*testing\.T\).*/\1/p' ./*_test.go |
        grep -E "${RUN:-.}" >"$logs/$package.list" || continue
    for kind in ours upstream; do
        dir=tests_$kind
        binary=${!dir}/$package
        code=0
        say "running $package, $kind"
        "$binary" -test.v -test.timeout=15m -test.run="${RUN:-.}" \
            >"$logs/$package.$kind.out" 2>"$logs/$package.$kind.log" </dev/null || code=$?
        # Such as a leaked goroutine, which is no test's verdict.
        if ((code)) && ! grep -q '^--- FAIL' "$logs/$package.$kind.out"; then
            say "$package, $kind: exit code $code without a failed test, see $logs/$package.$kind.log"
        fi
    done
done

# --- Compare ----------------------------------------------------------------

# Lines `PACKAGE TEST ours|upstream VERDICT SECONDS`, after lines `PACKAGE TEST` for all tests.
verdicts() {
    local package kind
    for package in "${packages[@]}"; do
        [[ -s $logs/$package.list ]] || continue
        sed "s/^/$package /" "$logs/$package.list"
        for kind in ours upstream; do
            sed -nE "s/^--- (PASS|FAIL|SKIP): ([^ /]+) \(([0-9.]+)s\)$/$package \2 $kind \1 \3/p" \
                "$logs/$package.$kind.out"
        done
    done
}
verdicts | awk -v version="$version" '
    NF == 2 { tests[++n] = $0; next }
    { verdict[$1 " " $2, $3] = $4; seconds[$1 " " $2, $3] = $5 }
    function column(test, kind) {
        passed[kind] += verdict[test, kind] == "PASS"
        total[kind] += seconds[test, kind]
        return sprintf("%-4s %6.1f s", verdict[test, kind] ? verdict[test, kind] : "none", seconds[test, kind])
    }
    END {
        printf "Kubernetes %s\n%-72s %-14s %s\n", version, "test", "ours", "upstream"
        for (i = 1; i <= n; i++) {
            ours = column(tests[i], "ours")
            printf "%-72s %-14s %s\n", tests[i], ours, column(tests[i], "upstream")
            if (verdict[tests[i], "ours"] != "PASS" && verdict[tests[i], "upstream"] == "PASS") {
                worse++
            }
        }
        printf "ours %d of %d in %.0f s, upstream %d of %d in %.0f s\n",
            passed["ours"], n, total["ours"], passed["upstream"], n, total["upstream"]
        if (worse) printf "%d tests fail here and pass with upstream\n", worse
        exit n == 0 || worse > 0
    }' | tee "$logs/table.txt"
