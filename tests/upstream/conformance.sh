#!/usr/bin/env bash
# Runs Kubernetes' end-to-end tests of ReplicaSets, ReplicationControllers and Deployments that are
# tagged [Conformance] and need no container to answer, on etcd, kube-apiserver, kube-scheduler,
# kube-controller-manager without the two controllers, the daemon in their place, and kubelet/, which
# only says that pods run. Prints the verdicts; exits with 1 unless all pass.
#
# K8S chooses the Kubernetes version; REPLICASET_CONTROLLER names another binary than that of `cargo
# build`. DEPLOYMENTS=1 takes the place of upstream's Deployment controller as well.
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
repo=$(CDPATH='' cd -- "$here/../.." && pwd -P)
export K8S=${K8S:-1.37}
: "${REPLICASET_CONTROLLER:=$repo/target/debug/replicaset-controller}"
logs=$repo/target/upstream/conformance-$K8S
tests='\[sig-apps\] (ReplicaSet|ReplicationController|Deployment) .*\[Conformance\]'
# The test asks the pods for an answer through the API server.
needs_containers='should serve a basic image on each replica'

say() { printf 'conformance: %s\n' "$*" >&2; }

# --- Inside the control plane: the other components, and the tests ----------

if [[ ${1:-} == inside ]]; then
    export KUBECONFIG=$CONTROL_PLANE_ADMIN_KUBECONFIG
    trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
    kube-scheduler --kubeconfig="$KUBECONFIG" --leader-elect=false --secure-port=0 \
        >"$logs/kube-scheduler.log" 2>&1 &
    "$2" >"$logs/kubelet.log" 2>&1 &
    controllers='*'
    if [[ -n ${DEPLOYMENTS:-} ]]; then
        controllers+=,deployment-controller
        kubectl create clusterrolebinding daemon-deployments --user=replicaset-controller \
            --clusterrole=system:controller:deployment-controller
    fi
    "$REPLICASET_CONTROLLER" --kubeconfig="$CONTROL_PLANE_CONTROLLER_KUBECONFIG" \
        --controllers="$controllers" --leader-elect=false --secure-port=0 >"$logs/daemon.log" 2>&1 &
    code=0
    "$E2E" -provider=skeleton -kubeconfig="$KUBECONFIG" -report-dir="$logs" \
        -ginkgo.focus="$tests" -ginkgo.skip="$needs_containers" -ginkgo.v -ginkgo.no-color \
        >"$logs/e2e.log" 2>&1 || code=$?
    exit "$code"
fi

# --- Build ------------------------------------------------------------------

[[ -x $REPLICASET_CONTROLLER ]] || {
    say "$REPLICASET_CONTROLLER is not there; run 'cargo build' first"
    exit 1
}
cd "$repo/tests/control-plane/$K8S"
export GOWORK=off CGO_ENABLED=0 REPLICASET_CONTROLLER
work=$(mktemp -d "${TMPDIR:-/tmp}/conformance.XXXXXX")
trap 'rm -rf "$work"' EXIT
cp go.mod go.sum "$work"
chmod u+w "$work"/go.*
go mod download k8s.io/kubernetes
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
key=$(cat go.mod go.sum | sha256sum | cut -c1-12)
export E2E=${XDG_CACHE_HOME:-$HOME/.cache}/replicaset-controller/upstream/$version-e2e-$key/e2e
mkdir -p "${E2E%/*}" "$logs"
# The tests import a few modules more than the control plane. Their versions follow from those that
# go.mod pins, and Go's checksum database vouches for them.
flags=(-mod=mod -modfile "$work/go.mod" -buildvcs=false -trimpath)
go build "${flags[@]}" -o "$work/kubelet" "$here/kubelet/main.go"
if [[ ! -x $E2E ]]; then
    say "building $version's end-to-end tests"
    nice go test -c "${flags[@]}" -ldflags '-s -w' -o "$work/e2e" k8s.io/kubernetes/test/e2e
    mv "$work/e2e" "$E2E"
fi

# --- Run --------------------------------------------------------------------

rm -f "$logs"/*
code=0
ours=-replicaset-controller,-replicationcontroller-controller${DEPLOYMENTS:+,-deployment-controller}
KCM_CONTROLLERS="*,$ours" \
    "$repo/tests/control-plane/run.sh" "$here/conformance.sh" inside "$work/kubelet" || code=$?

echo "Kubernetes $version"
sed -nE '/status="skipped"/d
    s/.*<testcase name="\[It\] ([^"]*)".* status="([a-z]*)" time="([0-9.]+)".*/\2 \3 s  \1/p' \
    "$logs"/junit*.xml
say "not run, since no container answers: '$needs_containers' of both kinds"
exit "$code"
