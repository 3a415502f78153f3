#!/usr/bin/env bash
# run.sh [MINUTES]
#
# Lets several autoscalers change the same four Deployments for MINUTES (30), beside the daemon and at
# the same time, on another control plane, beside kube-controller-manager's own ReplicaSet controller:
# HorizontalPodAutoscalers follow loads that change every 15 s, the updater of the vertical pod
# autoscaler evicts pods, Karpenter adds, consolidates and expires nodes of kwok, and pods are marked
# `scale-down: never` and get deletion costs. Then the autoscalers stop. Exits with 1 if the daemon
# creates a pod too many, deletes a marked pod, writes more than three statuses for each pod, or still
# writes after 90 s. K8S chooses the version of Kubernetes, and REPLICASET_CONTROLLER names another
# binary than that of `cargo build`.
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
rig=autoscalers kind=${2:-}
# shellcheck source=tests/rigs/beside.sh
source "$here/../beside.sh"
vpa=v1.8.1 karpenter=v1.14.1 kwok=v0.8.0
vpa_source=$(go env GOMODCACHE)/k8s.io/autoscaler/vertical-pod-autoscaler@$vpa
kwok_source=$(go env GOMODCACHE)/sigs.k8s.io/kwok@$kwok
karpenter_source=$(go env GOMODCACHE)/sigs.k8s.io/karpenter@$karpenter

# --- Inside a control plane: `run.sh inside KIND MINUTES` ---------------------

# shellcheck disable=SC2046 # Several names.
marks() {
    set +e
    while sleep 15; do
        kubectl annotate pods --all replicaset-controller/scale-down-
        kubectl annotate --overwrite $(a_dozen) replicaset-controller/scale-down=never
        kubectl annotate --overwrite $(a_dozen) \
            "controller.kubernetes.io/pod-deletion-cost=$((RANDOM % 100))"
    done
}
a_dozen() { kubectl get pods -o name | shuf -n 12; }

# Karpenter is gone, so there must be a node for the pods that wait for one.
quiet() {
    kubectl annotate pods --all replicaset-controller/scale-down- || true
    kubectl create -f "$here/node.yaml"
}
at_30() {
    local counts='{.items[*].spec.replicas} {.items[*].status.readyReplicas}'
    [[ $(kubectl get deployments -o jsonpath="$counts") == '30 30 30 30 30 30 30 30' ]]
}

if [[ ${1:-} == inside ]]; then
    enter
    {
        port=$((RANDOM % 10000 + 20000))
        openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2 \
            -keyout "$TMPDIR/load.key" -out "$TMPDIR/load.pem"
        cat "$TMPDIR/load.key" >>"$TMPDIR/load.pem"
        kubectl apply --server-side -f "$vpa_source/deploy/vpa-v1-crd-gen.yaml" \
            -f "$karpenter_source/pkg/apis/crds" -f "$karpenter_source/kwok/apis/crds"
        kubectl wait --for=condition=established --timeout=120s crd --all
        # The metrics' Service and APIService; the rest is of the other rig.
        sed "s/PORT/$port/" "$here/../kwokctl/autoscaler.yaml" | awk '/^---$/ && ++n == 2 { exit } 1' |
            kubectl create -f -
        kubectl apply -f "$here/nodes.yaml"
        stages=("$kwok_source"/kustomize/stage/{node/fast,node/heartbeat-with-lease,pod/fast}/*-*.yaml)
        start "$rigs/kwok-$kwok/kwok" --kubeconfig="$KUBECONFIG" --server-address= \
            --node-lease-duration-seconds=40 \
            "${stages[@]/#/--config=}" --manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake
        SYSTEM_NAMESPACE=default METRICS_PORT=$((port + 1)) HEALTH_PROBE_PORT=$((port + 2)) \
            DISABLE_LEADER_ELECTION=true start "$rigs/karpenter-$karpenter/karpenter"
        stopping=($!)
        start python3 "$here/../kwokctl/load.py" $port "$TMPDIR/load.pem" $(($3 * 4))
        for ((i = 0; i < 4; i++)); do
            sed "s/NUMBER/$i/" "$here/workload.yaml" | kubectl create -f -
            kubectl patch vpa "web-$i" --subresource=status --type=merge -p '{"status":
                {"recommendation": {"containerRecommendations": [{"containerName": "web",
                "target": {"cpu": "1"}, "lowerBound": {"cpu": "800m"}, "upperBound": {"cpu": "2"}}]}}}'
        done
        start "$rigs/vpa-$vpa/updater" --kubeconfig="$KUBECONFIG" --updater-interval=20s \
            --eviction-tolerance=0.1 --use-admission-controller-status=false --address=:$((port + 3))
        stopping+=($!)
        start marks
        stopping+=($!)
        sleep $(($3 * 60))
        kill "${stopping[@]}"
        stopped=$EPOCHSECONDS
        quiet
    } >>"$logs/$kind.kubectl.log" 2>&1
    step "30 ready pods each" eventually at_30
    sleep $((stopped + 150 - EPOCHSECONDS))

    cp "$CONTROL_PLANE_AUDIT_LOG" "$logs/$kind.audit.log"
    count() { note "$1" "$(grep -cE "$2" "$CONTROL_PLANE_AUDIT_LOG" || true)"; }
    noted() { sed -n "s/^$kind|$1|//p" "$logs/steps"; }
    last=$(judge rest "$CONTROL_PLANE_AUDIT_LOG" "$stopped")
    surplus=$(judge surplus | cut -d' ' -f2)
    protected=$(judge protected "$CONTROL_PLANE_AUDIT_LOG")
    note "last write after the autoscalers stopped" "$(pass_if "last < 90" "$last s")"
    note "most pods above spec.replicas" "$(pass_if "surplus == 0" "$surplus")"
    note "marked pods deleted by the controller" "$(pass_if "protected == 0" "$protected")"
    count "pods evicted" '"verb":"create".*"subresource":"eviction".*"code":201'
    count "nodes added by Karpenter" '"verb":"create".*"resource":"nodes".*"code":201'
    count "Deployments scaled" '"verb":"update".*"subresource":"scale".*"code":200'
    sent "pods created" create pods 201
    sent "pods deleted" delete pods 200
    sent "statuses written" update replicasets 200
    created=$(noted "pods created") statuses=$(noted "statuses written")
    note "at most three statuses a pod" \
        "$(pass_if "statuses <= created * 3" "$((statuses * 100 / created)) %")"
    exit
fi

# --- Build ------------------------------------------------------------------

prepare
# build NAME MODULE PACKAGE: the module has manifests as well.
build() {
    local target=$rigs/$1
    (cd / && go mod download "$2")
    [[ ! -x $target ]] || return 0
    say "building $1"
    (cd "$(go env GOMODCACHE)/$2" && GOWORK=off CGO_ENABLED=0 nice go build -mod=readonly \
        -buildvcs=false -trimpath -ldflags '-s -w' -o "$target" "$3")
}
build "vpa-$vpa/updater" "k8s.io/autoscaler/vertical-pod-autoscaler@$vpa" ./pkg/updater
build "kwok-$kwok/kwok" "sigs.k8s.io/kwok@$kwok" ./cmd/kwok
build "karpenter-$karpenter/karpenter" "sigs.k8s.io/karpenter@$karpenter" ./kwok

# --- Run --------------------------------------------------------------------

minutes=${1:-30}
half ours "$minutes" &
half upstream "$minutes" &
wait
table "VPA $vpa, Karpenter $karpenter, $minutes min"
