#!/usr/bin/env bash
# run.sh [deployment | room | autoscaler]
#
# Makes a cluster by kwokctl as the manual's page on installing says, with the binaries of
# tests/control-plane, and one with kube-controller-manager's own ReplicaSet controller after it.
# deployment: a Deployment gets PODS pods (1000), is rolled out, and is scaled to zero. room: SETS
# ReplicaSets (500) want 40 pods each on nodes that run 2,200, the controller is killed, pods are
# deleted, the sets shrink to what fits. autoscaler: a Deployment follows a load for four minutes.
# Prints the times of both and what the controllers sent. K8S
# chooses the version of Kubernetes, KWOK that of kwok, and REPLICASET_CONTROLLER names another
# binary than that of `cargo build`.
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
repo=$(CDPATH='' cd -- "$here/../../.." && pwd -P)
kwok=${KWOK:-v0.8.0}
scenario=${1:-deployment}
pods=${PODS:-1000}
sets=${SETS:-500}
: "${REPLICASET_CONTROLLER:=$repo/target/debug/replicaset-controller}"
rig=kwokctl
logs=$repo/target/$rig
patience=1200

# shellcheck source=tests/rigs/steps.sh
source "$here/../steps.sh"

[[ -x $REPLICASET_CONTROLLER ]] || die "$REPLICASET_CONTROLLER is not there; run 'cargo build' first"

# The commands of the page, of which the last is the daemon, which stays.
recipe=$(sed -n '/^With \*\*kwok\*\*:$/,/^```$/p' "$repo/src/manual/install.md" | sed '1,/^```sh$/d; /^```$/d')
[[ $recipe == *'kwokctl create cluster'*'replicaset-controller '* ]] ||
    die "src/manual/install.md has no recipe for kwok any more"

servers=$("$repo/tests/control-plane/build.sh")
tools=${XDG_CACHE_HOME:-$HOME/.cache}/replicaset-controller/rigs/kwok-$kwok
if [[ ! -x $tools/kwokctl ]]; then
    say "building kwok $kwok"
    GOWORK=off CGO_ENABLED=0 GOBIN=$tools nice go install -trimpath -ldflags '-s -w' \
        "sigs.k8s.io/kwok/cmd/kwok@$kwok" "sigs.k8s.io/kwok/cmd/kwokctl@$kwok"
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/kwokctl.XXXXXX")
daemon=
load=
tear_down() {
    [[ -z $load ]] || kill "$load" || true
    [[ -z $daemon ]] || { kill -- "-$daemon" && wait "$daemon" || true; }
    daemon=
    [[ ! -d $work/kwok ]] || kwokctl delete cluster || true
} >>"$logs/kwokctl.log" 2>&1
trap 'tear_down; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

mkdir -p "$logs" "$work/bin"
rm -f "$logs"/*
ln -s "$REPLICASET_CONTROLLER" "$work/bin/replicaset-controller"
export PATH=$work/bin:$tools:$servers:$PATH
export KUBECONFIG=$work/kubeconfig
# Otherwise kwokctl downloads the binaries.
export KWOK_WORKDIR=$work/kwok KWOK_RUNTIME=binary KWOK_ETCD_BINARY=$servers/etcd
export KWOK_CONTROLLER_BINARY=$tools/kwok KWOK_KUBECTL_BINARY=$servers/kubectl
export KWOK_KUBE_APISERVER_BINARY=$servers/kube-apiserver
export KWOK_KUBE_CONTROLLER_MANAGER_BINARY=$servers/kube-controller-manager
export KWOK_KUBE_SCHEDULER_BINARY=$servers/kube-scheduler
export KWOK_KUBE_AUDIT_POLICY=$work/audit-policy.yaml
cat >"$KWOK_KUBE_AUDIT_POLICY" <<'POLICY'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, verbs: [create, delete], resources: [{resources: [pods]}]}
- {level: Metadata, verbs: [update], resources: [{group: apps, resources: [replicasets/status]}]}
- {level: None}
POLICY

# What the functions below note is of this controller: ours or upstream's.
kind=ours
audit_log=$KWOK_WORKDIR/clusters/kwok/logs/audit.log

scale_up() {
    kubectl create deployment web --image=nginx --replicas="$pods"
    kubectl rollout status deployment web --timeout=20m
}
roll_out() {
    kubectl set image deployment web nginx=nginx:2
    kubectl rollout status deployment web --timeout=20m
}
no_pods() { [[ -z $(kubectl get pods -o name) ]]; }
to_zero() {
    kubectl scale deployment web --replicas=0
    eventually no_pods
}
deployment() {
    step "a Deployment gets $pods pods" scale_up
    step "it is rolled out" roll_out
    step "it goes to zero" to_zero
    sent "pods created" create pods 201
    sent "pods deleted" delete pods 200
}

# reports FIELD COUNT: whether each ReplicaSet's status has COUNT there.
reports() {
    [[ $(kubectl get rs -o jsonpath="{range .items[*]}{.status.$1}{'\n'}{end}" | sort | uniq -c) =~ \
        ^\ *$sets\ $2$ ]]
}
# existing: how many pods there are, without a list of them.
existing() {
    kubectl get --raw '/api/v1/namespaces/default/pods?limit=1' |
        jq '(.items | length) + (.metadata.remainingItemCount // 0)'
}
a_quarter() { (($(existing) > sets * 10)); }
all_40() { reports replicas 40 && (($(existing) == sets * 40)); }
all_4() { reports readyReplicas 4 && reports replicas 4; }
create_sets() {
    for ((i = 1; i <= sets; i++)); do
        sed "s/NAME/set-$i/" <<'SET'
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: NAME, labels: {app: NAME}}
spec:
  replicas: 40
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec: {containers: [{name: web, image: nginx}]}
---
SET
    done | kubectl create -f - &
    local creating=$!
    eventually a_quarter
    crash
    wait "$creating"
    eventually all_40
}
delete_running() {
    kubectl delete pod --field-selector=status.phase=Running --wait=false
    eventually all_40
}
shrink() {
    kubectl scale rs --all --replicas=4
    eventually all_4
}
room() {
    step "$sets ReplicaSets get 40 pods, past a kill -9" create_sets
    step "the running pods are replaced" delete_running
    # Until here nobody asked for less.
    sent "pods too many" delete pods 200
    step "4 pods each have room, and run" shrink
}

autoscaler() {
    openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2 -out "$work/load.pem" \
        -keyout "$work/load.key" 2>>"$logs/load.log"
    cat "$work/load.key" >>"$work/load.pem"
    port=$((RANDOM % 10000 + 20000))
    python3 "$here/load.py" $port "$work/load.pem" >>"$logs/load.log" 2>&1 &
    load=$!
    step "16 changes of load, then rest at 30 pods" follow
    kill "$load"
    load=
    sent "pods created" create pods 201
    sent "pods deleted" delete pods 200
    note "pods left" "$(existing)"
}
at_30() {
    [[ $(kubectl get deployment web \
        -o jsonpath='{.spec.replicas} {.status.replicas} {.status.readyReplicas}') == '30 30 30' ]]
}
follow() {
    kubectl create deployment web --image=nginx
    sed "s/PORT/$port/" "$here/autoscaler.yaml" | kubectl create -f -
    sleep 245
    eventually at_30
}

# start: the daemon by the recipe's last command, or the first time the whole recipe.
start() {
    set -m
    bash -euc "$1" >>"$logs/daemon.log" 2>&1 &
    daemon=$!
    set +m
}
crash() {
    if [[ $kind == ours ]]; then
        kill -KILL -- "-$daemon"
        start "${recipe##*$'\n'}"
    else
        local pid
        pid=$(<"$KWOK_WORKDIR/clusters/kwok/pids/kube-controller-manager.pid")
        kill -KILL "$pid"
        while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
        kwokctl start cluster
    fi
}
answers() { kubectl get --raw /readyz >/dev/null 2>&1; }

unlimited=()
if [[ $scenario == room ]]; then
    export REPLICASET_CONTROLLER_KUBE_API_QPS=0
    unlimited=(--extra-args=kube-controller-manager=kube-api-{qps,burst}=100000)
fi
for kind in ours upstream; do
    say "$kind"
    if [[ $kind == ours ]]; then
        start "$recipe"
        eventually answers || die "no API server, see $logs/daemon.log"
    else
        kwokctl create cluster "${unlimited[@]}" >>"$logs/kwokctl.log" 2>&1
    fi
    kwokctl scale node --replicas 20 >>"$logs/kwokctl.log" 2>&1
    eventually has_account || die "no service account"
    "$scenario"
    sent "statuses written" update replicasets 200
    tear_down
    rm -rf "$work/kwok"
done

table "kwok $kwok"
