# Sourced by the rigs that run one scenario twice, each on a new control plane: beside the daemon
# (ours) and beside kube-controller-manager's own ReplicaSet controller (upstream). The rig is then
# `run.sh inside KIND ARGUMENT...`, and notes under $logs what the table shows.
# shellcheck shell=bash
# shellcheck disable=SC2154 # The rig sets rig, here and kind.

repo=$(CDPATH='' cd -- "$here/../../.." && pwd -P)
export K8S=${K8S:-1.37}
: "${REPLICASET_CONTROLLER:=$repo/target/debug/replicaset-controller}"
export REPLICASET_CONTROLLER
logs=$repo/target/$rig
rigs=${XDG_CACHE_HOME:-$HOME/.cache}/replicaset-controller/rigs
objects=$logs/$kind.objects

audit_log=${CONTROL_PLANE_AUDIT_LOG:-}
patience=1800

# shellcheck source=tests/rigs/steps.sh
source "$here/../steps.sh"

# pass_if CONDITION VALUE
pass_if() { if (($1)); then echo "pass, $2"; else echo "FAIL, $2"; fi; }

# judge COMMAND [ARGUMENT...]: by what the watch saw.
judge() { "$here/../objects.py" "$1" "$objects" "${@:2}"; }

# start PROGRAM [FLAG...]: in the background, with its output in a log; $! is its process.
start() {
    "$@" >>"$logs/$kind.${1##*/}.log" 2>&1 &
}
start_controller() {
    if [[ $kind == ours ]]; then
        start "$REPLICASET_CONTROLLER" --kubeconfig="$CONTROL_PLANE_CONTROLLER_KUBECONFIG" \
            --leader-elect=false --secure-port=0
        controller=$!
    else
        "$CONTROL_PLANE_DIR/start" kube-controller-manager
    fi
}
crash() {
    [[ $kind == upstream ]] || kill -KILL "$controller"
    start_controller
}

# enter: what each half begins with.
enter() {
    export KUBECONFIG=$CONTROL_PLANE_ADMIN_KUBECONFIG TMPDIR=$CONTROL_PLANE_DIR
    trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
    TOKEN=$(sed -n 's/^ *token: //p' "$CONTROL_PLANE_TOKEN_KUBECONFIG") \
        start "$here/../objects.py" watch "$objects"
    eventually has_account || die "no service account"
    start kube-scheduler --kubeconfig="$KUBECONFIG" --leader-elect=false --secure-port=0
    [[ $kind == upstream ]] || start_controller
}

# half KIND ARGUMENT...
half() {
    # A rotated audit log would not be counted.
    local controllers='*' KUBE_APISERVER_FLAGS=--audit-log-maxsize=10000
    kind=$1
    say "$kind"
    [[ $kind == upstream ]] || controllers+=,-replicaset-controller
    export KUBE_APISERVER_FLAGS
    KCM_CONTROLLERS=$controllers "$repo/tests/control-plane/run.sh" "$here/run.sh" inside "$@" \
        2>"$logs/$kind.control-plane.log" || note "the rig" FAIL
}

prepare() {
    [[ -x $REPLICASET_CONTROLLER ]] ||
        die "$REPLICASET_CONTROLLER is not there; run 'cargo build' first"
    mkdir -p "$rigs" "$logs"
    rm -f "$logs"/*
}
