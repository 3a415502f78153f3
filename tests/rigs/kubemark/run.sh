#!/usr/bin/env bash
# run.sh [startup [PODS] | room [SETS]]
#
# Runs kubemark's hollow kubelets, which are real kubelets with a fake container runtime, and
# kube-scheduler, beside the daemon and then, on a new etcd, beside kube-controller-manager's own
# ReplicaSet controller; every rate limit is the default. startup: PODS pods (3000) in Deployments
# of 30, and how long a pod takes to start. room: SETS ReplicaSets (500) want 40 pods each, the nodes
# take half of them, and SETS/10 more name a full node, whose kubelet rejects the pods. Prints both
# halves side by side; exits with 1 if a step fails beside the daemon or a pod is too many. K8S
# chooses the version of Kubernetes, NODES the number of kubelets (100 pods each), and
# REPLICASET_CONTROLLER names another binary than that of `cargo build`.
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
rig=kubemark kind=${2:-} scenario=${3:-} size=${4:-}
# shellcheck source=tests/rigs/beside.sh
source "$here/../beside.sh"

# --- Inside a control plane: `run.sh inside KIND SCENARIO SIZE` ---------------

ready_nodes() {
    [[ $(kubectl get nodes -o jsonpath='{.items[*].status.conditions[?(@.type=="Ready")].status}' |
        grep -o True | wc -l) == "$NODES" ]]
}

# existing [ROLE]: how many pods there are.
existing() { kubectl get pods ${1:+-l "role=$1"} -o name | wc -l; }

# workload KIND NAME REPLICAS [ROLE [ANNOTATION [NODE]]]
workload() {
    printf '%s\n' '---' 'apiVersion: apps/v1' "kind: $1" \
        "metadata: {name: $2, labels: {role: ${4:-all}}, annotations: {${5:-}}}" \
        "spec:" "  replicas: $3" "  selector: {matchLabels: {app: $2}}" "  template:" \
        "    metadata: {labels: {app: $2, role: ${4:-all}}}" \
        "    spec: {nodeName: '${6:-}', containers: [{name: web, image: registry.k8s.io/pause}]}"
}

all_run() {
    (($(grep -c '"runs": true' "$objects") >= size)) && [[ $(judge startup) == "$size "* ]]
}
create_deployments() {
    for ((i = 0; i < size; i += 30)); do
        workload Deployment "web-$i" $((size - i < 30 ? size - i : 30))
    done | kubectl create -f -
    eventually all_run
}
startup() {
    local count p50 p99 created
    step "$size pods run" create_deployments
    read -r count p50 p99 created < <(judge startup)
    note "the last is created after" "$created s"
    note "pod startup, p50" "$p50 s"
    note "pod startup, p99" "$p99 s"
    note "pods measured" "$count"
}

# reports FIELD COUNT: whether each scheduled ReplicaSet's status has COUNT there.
reports() {
    [[ $(kubectl get rs -l role=scheduled -o jsonpath="{range .items[*]}{.status.$1}{'\n'}{end}" |
        sort | uniq -c) =~ ^\ *$size\ $2$ ]]
}
a_quarter() { (($(existing) > size * 10)); }
all_40() { reports replicas 40 && (($(existing scheduled) == size * 40)); }
all_4() { reports readyReplicas 4 && reports replicas 4; }
create_sets() {
    for ((i = 0; i < size; i++)); do workload ReplicaSet "set-$i" 40 scheduled; done |
        kubectl create -f - &
    local creating=$!
    eventually a_quarter
    crash
    wait "$creating"
    eventually all_40
}
shrink() {
    kubectl scale rs -l role=scheduled --replicas=4
    eventually all_4
}
room() {
    local backoff='replicaset-controller/failed-pod-backoff: 10s..5m'
    step "$size ReplicaSets get 40 pods, past a kill -9" create_sets
    for ((i = 0; i < size; i += 20)); do
        workload ReplicaSet "reject-$i" 40 rejected "" hollow-0
        workload ReplicaSet "delay-$i" 40 delayed "$backoff" hollow-0
    done | kubectl create -f - >>"$logs/$kind.kubectl.log"
    sleep 120
    kubectl delete rs -l role!=scheduled --cascade=orphan >>"$logs/$kind.kubectl.log"
    note "pods rejected by a kubelet in 120 s" "$(existing rejected)"
    note "the same, with failed-pod-backoff" "$(existing delayed)"
    # Until here nobody asked for less.
    sent "pods deleted by the controller" delete pods 200
    step "4 pods each have room, and run" shrink
    surplus=$(judge surplus | cut -d' ' -f2)
    note "most pods above spec.replicas" "$(pass_if "surplus == 0" "$surplus")"
}

if [[ ${1:-} == inside ]]; then
    enter
    port=$((RANDOM % 10000 + 20000))
    for ((i = 0; i < NODES; i++)); do
        start "$KUBEMARK" --morph=kubelet --name="hollow-$i" --kubeconfig="$KUBECONFIG" --max-pods=100 \
            --kubelet-port=$((port + i)) --kubelet-read-only-port=0 --use-host-image-service=false \
            --kube-api-qps=50 --kube-api-burst=100
    done
    eventually ready_nodes || die "the kubelets do not become ready, see $logs/$kind.kubemark.log"
    "$scenario"
    sent "pods created" create pods 201
    sent "statuses written" update replicasets 200
    exit
fi

# --- Build ------------------------------------------------------------------

prepare
scenario=${1:-startup}
case $scenario in
startup) size=${2:-3000} nodes=$(((size + 99) / 100)) ;;
room) size=${2:-500} nodes=$(((size * 20 + 99) / 100)) ;;
*) die "usage: run.sh [startup [PODS] | room [SETS]]" ;;
esac
export NODES=${NODES:-$nodes}

module=$repo/tests/control-plane/$K8S
version=$(cd "$module" && GOWORK=off go list -m -f '{{.Version}}' k8s.io/kubernetes)
export KUBEMARK=$rigs/kubemark-$version/kubemark
if [[ ! -x $KUBEMARK ]]; then
    say "building kubemark $version"
    work=$(mktemp -d "${TMPDIR:-/tmp}/kubemark.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    cp "$module"/go.* "$work"
    chmod u+w "$work"/go.*
    (cd "$module" && GOWORK=off CGO_ENABLED=0 nice go build -mod=mod -modfile "$work/go.mod" \
        -buildvcs=false -trimpath -ldflags '-s -w' -o "$work/kubemark" k8s.io/kubernetes/cmd/kubemark)
    mkdir -p "${KUBEMARK%/*}"
    mv "$work/kubemark" "$KUBEMARK"
fi

# --- Run --------------------------------------------------------------------

half ours "$scenario" "$size"
half upstream "$scenario" "$size"
table "kubemark $version, $NODES nodes"
