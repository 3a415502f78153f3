#!/usr/bin/env bash
# run.sh [PATTERN]
#
# Runs the end-to-end tests of Argo Rollouts that need no ingress controller, service mesh or
# metrics provider, at the same time on two control planes: beside the daemon, and beside
# kube-controller-manager's own ReplicaSet controller. Prints the verdicts side by side; exits with 1
# if a test fails beside the daemon alone. PATTERN selects tests, as `go test -run` does. K8S chooses
# the version of Kubernetes, ARGO that of Argo Rollouts, and REPLICASET_CONTROLLER names another
# binary than that of `cargo build`.
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
repo=$(CDPATH='' cd -- "$here/../../.." && pwd -P)
export K8S=${K8S:-1.37} ARGO=${ARGO:-v1.10.1}
: "${REPLICASET_CONTROLLER:=$repo/target/debug/replicaset-controller}"
logs=$repo/target/argo-rollouts
suites='Test(Functional|Canary|BlueGreen|Rollback|Experiment)Suite'
# It asks a fixed port for the metrics of Argo's controller, of which two run.
skipped='/TestControllerMetrics$'

say() { printf 'argo-rollouts: %s\n' "$*" >&2; }

# --- Inside a control plane: `run.sh inside KIND PATTERN` --------------------

if [[ ${1:-} == inside ]]; then
    kind=$2
    export KUBECONFIG=$CONTROL_PLANE_ADMIN_KUBECONFIG
    trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
    kubectl apply --server-side -k "$ARGO_SOURCE/manifests/crds"
    kubectl wait --for=condition=established --timeout=120s crd --all
    kube-scheduler --kubeconfig="$KUBECONFIG" --leader-elect=false --secure-port=0 \
        >"$logs/$kind.kube-scheduler.log" 2>&1 &
    # Some tests look at a rollout between the creation of its pods and their readiness.
    START=3s "$RIGS/kubelet-$KUBELET" >"$logs/$kind.kubelet.log" 2>&1 &
    port=$((RANDOM % 10000 + 20000))
    "$RIGS/argo-rollouts-$ARGO/rollouts-controller" --leader-elect=false \
        --instance-id=argo-rollouts-e2e --metricsPort=$port --healthzPort=$((port + 1)) \
        >"$logs/$kind.argo.log" 2>&1 &
    if [[ $kind == ours ]]; then
        "$REPLICASET_CONTROLLER" --kubeconfig="$CONTROL_PLANE_CONTROLLER_KUBECONFIG" \
            --leader-elect=false --secure-port=0 >"$logs/daemon.log" 2>&1 &
    fi
    cd "$ARGO_SOURCE/test/e2e"
    run=$3
    # Argo's Makefile runs what fails up to six times; thrice will do.
    for try in 1 2 3; do
        "$RIGS/argo-rollouts-$ARGO/e2e" -test.v -test.short -test.timeout=90m -test.run="$run" \
            -test.skip="$skipped" >"$logs/$kind.$try.out" 2>&1 </dev/null || true
        failed=$(sed -nE 's,^ +--- FAIL: [^/]+/(\S+) .*,\1,p' "$logs/$kind.$try.out")
        [[ -n $failed ]] || break
        run="Suite/^($(paste -sd'|' <<<"$failed"))\$"
    done
    cp "$CONTROL_PLANE_AUDIT_LOG" "$logs/$kind.audit.log"
    exit
fi

# --- Build ------------------------------------------------------------------

[[ -x $REPLICASET_CONTROLLER ]] || { say "$REPLICASET_CONTROLLER is not there; run 'cargo build' first"; exit 1; }
export REPLICASET_CONTROLLER GOWORK=off CGO_ENABLED=0
export RIGS=${XDG_CACHE_HOME:-$HOME/.cache}/replicaset-controller/rigs
work=$(mktemp -d "${TMPDIR:-/tmp}/argo-rollouts.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$RIGS"

# The module's own go.mod has the versions; Go's checksum database vouches for the module.
ARGO_SOURCE=$(cd "$work" && go mod download -json "github.com/argoproj/argo-rollouts@$ARGO" |
    sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
export ARGO_SOURCE
built=$RIGS/argo-rollouts-$ARGO
if [[ ! -x $built/e2e ]]; then
    say "building Argo Rollouts $ARGO and its tests"
    mkdir -p "$work/argo"
    cd "$ARGO_SOURCE"
    flags=(-mod=readonly -buildvcs=false -trimpath -ldflags '-s -w')
    nice go build "${flags[@]}" -o "$work/argo/rollouts-controller" ./cmd/rollouts-controller
    nice go test -c -vet=off "${flags[@]}" -tags e2e -o "$work/argo/e2e" ./test/e2e
    rm -rf "$built"
    mv "$work/argo" "$built"
fi

kubelet=$repo/tests/upstream/kubelet/main.go
export KUBELET=$(sha256sum "$kubelet" | cut -c1-12)
if [[ ! -x $RIGS/kubelet-$KUBELET ]]; then
    cd "$repo/tests/control-plane/$K8S"
    cp go.mod go.sum "$work"
    chmod u+w "$work"/go.*
    go build -mod=mod -modfile "$work/go.mod" -buildvcs=false -trimpath -o "$work/kubelet" "$kubelet"
    mv "$work/kubelet" "$RIGS/kubelet-$KUBELET"
fi

# --- Run --------------------------------------------------------------------

cd "$repo"
mkdir -p "$logs"
rm -f "$logs"/*
# The controllers of kube-controller-manager that take part.
declare -A controllers=([ours]='*,-replicaset-controller' [upstream]='*')
for kind in ours upstream; do
    KCM_CONTROLLERS=${controllers[$kind]} tests/control-plane/run.sh \
        "$here/run.sh" inside "$kind" "${1:-$suites}" &>"$logs/$kind.control-plane.log" &
done
wait

# --- Compare ----------------------------------------------------------------

for kind in ours upstream; do
    for try in 1 2 3; do
        [[ ! -e $logs/$kind.$try.out ]] ||
            sed -nE "s,^ +--- (PASS|FAIL|SKIP): Test([^/]+)Suite/Test(\S+) \(([0-9.]+)s\)$,$kind $try \1 \2/\3 \4,p" \
                "$logs/$kind.$try.out"
    done
done | awk -v version="$ARGO" '
    !($4 in seen) { seen[$4]; tests[++n] = $4 }
    { verdict[$4, $1] = $3; try[$4, $1] = $2; seconds[$4, $1] = $5 }
    function column(test, kind) {
        passed[kind] += verdict[test, kind] == "PASS"
        return sprintf("%s %5.0f s%s", verdict[test, kind] ? verdict[test, kind] : "none",
            seconds[test, kind], try[test, kind] > 1 ? ", try " try[test, kind] : "")
    }
    END {
        printf "Argo Rollouts %s\n%-60s %-20s %s\n", version, "test", "ours", "upstream"
        for (i = 1; i <= n; i++) {
            ours = column(tests[i], "ours")
            printf "%-60s %-20s %s\n", tests[i], ours, column(tests[i], "upstream")
            if (verdict[tests[i], "ours"] != "PASS" && verdict[tests[i], "upstream"] == "PASS") worse++
        }
        printf "%-60s %-20s %s\n", "passed of " n, passed["ours"] + 0, passed["upstream"] + 0
        exit n == 0 || worse > 0
    }' | tee "$logs/table.txt" || code=$?
# What either controller sent, by the audit log.
sent() {
    grep -F 'replicaset-controller' "$logs/$1.audit.log" | grep -F "\"verb\":\"$2\"" |
        grep -F "\"resource\":\"$3\"" | grep -cE "\"code\":$4" || true
}
while read -r verb resource code what; do
    printf '%-60s %-20s %s\n' "$what" "$(sent ours "$verb" "$resource" "$code")" \
        "$(sent upstream "$verb" "$resource" "$code")"
done <<'ROWS' | tee -a "$logs/table.txt"
create pods 201 pods created
delete pods 200 pods deleted
update replicasets 200 statuses written
ROWS
exit "${code:-0}"
