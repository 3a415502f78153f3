#!/usr/bin/env bash
# run.sh COMMAND [ARGUMENT...]
#
# Starts etcd and kube-apiserver of the Kubernetes version K8S, which build.sh
# builds if need be, on free loopback ports, runs COMMAND against them and tears
# everything down again; exits with COMMAND's exit code.
# README.md describes COMMAND's environment.
#
# The API server runs with its default admission plugins, ServiceAccount among
# them, and without controllers. So nothing creates the ServiceAccount
# `default`, and until a test creates it in its namespace, every pod there is
# rejected with 403 (`error looking up service account NAMESPACE/default`).
# Nor does anything finish the deletion of a namespace, collect garbage or run
# a pod. KCM_CONTROLLERS starts single controllers of kube-controller-manager.
#
# Functions that a trap or another function calls by name look unused:
# shellcheck disable=SC2317
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)

say() { printf 'control-plane: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

[[ $# -gt 0 ]] || die "usage: run.sh COMMAND [ARGUMENT...]"
bin=$("$here/build.sh")
command -v openssl >/dev/null || die "openssl is needed to make the certificates"

kcm_controllers=${KCM_CONTROLLERS:-}
if [[ -z $kcm_controllers && ${RUN_KCM:-} == 1 ]]; then
    kcm_controllers=serviceaccount-controller,namespace-controller,garbage-collector-controller
fi
if [[ -n $kcm_controllers && ! -x $bin/kube-controller-manager ]]; then
    die "no kube-controller-manager in $bin, which RUN_KCM and KCM_CONTROLLERS ask for:" \
        "unset KUBEBUILDER_ASSETS and run 'make control-plane'"
fi

# --- Teardown ---------------------------------------------------------------

dir=$(mktemp -d "${TMPDIR:-/tmp}/control-plane.XXXXXX")
dir=$(CDPATH='' cd -- "$dir" && pwd -P)
command_pid=

# Who wrote when is what some tests are about.
audit_log=${CONTROL_PLANE_AUDIT_LOG-$dir/audit.log}

# The data dies with the servers, so there is nothing to shut down in order.
# They may exit a little later; until then they may add files to a directory that
# is being removed.
stop_servers() {
    local file pid i remains=("$dir")
    for file in "$dir"/*.pid; do
        [[ -e $file ]] || continue
        pid=$(<"$file")
        if [[ $pid =~ ^[0-9]+$ ]]; then kill -KILL -- "-$pid" 2>/dev/null || true; fi
    done
    if [[ -e $dir/keep ]]; then remains=("$dir/etcd-data" "$dir"/*.pid "$dir/alive"); fi
    for ((i = 0; i < 50; i++)); do
        rm -rf "${remains[@]}" 2>/dev/null && return
        sleep 0.05
    done
}

stop_command() {
    local i
    [[ -n $command_pid ]] || return 0
    kill -TERM -- "$command_target" 2>/dev/null || return 0
    for ((i = 0; i < 100; i++)); do
        kill -0 -- "$command_target" 2>/dev/null || return 0
        sleep 0.05
    done
    kill -KILL -- "$command_target" 2>/dev/null || true
}

on_exit() {
    local code=$?
    trap '' INT TERM HUP
    set +e
    stop_command
    stop_servers
    exit "$code"
}
trap on_exit EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# If this script is killed outright, its end of the fifo closes and the
# watchdog, in a process group of its own, tears down in its place.
mkfifo "$dir/alive"
exec 9<>"$dir/alive"
watchdog() {
    local line
    trap '' INT TERM HUP
    trap - EXIT
    set +e
    exec 9>&-
    while read -r line; do
        case $line in
        "pid "*) command_pid=${line#pid } command_target=$command_pid ;;
        "group "*) command_pid=${line#group } command_target=-$command_pid ;;
        esac
    done
    [[ -d $dir ]] || exit 0
    stop_command
    stop_servers
}
set -m
watchdog <"$dir/alive" >/dev/null 2>&1 &
set +m

# Prints why a server did not start, keeps the logs and gives up.
give_up() {
    local name=$1
    shift
    : >"$dir/keep"
    say "$name $*; the end of $dir/$name.log:"
    tail -n 30 "$dir/$name.log" >&2 || true
    die "the logs stay in $dir (remove it when done)"
}
if [[ ${CONTROL_PLANE_KEEP:-} == 1 ]]; then
    : >"$dir/keep"
    say "the logs will stay in $dir"
fi

# --- Certificates and kubeconfigs -------------------------------------------

openssl_quiet() {
    openssl "$@" >>"$dir/openssl.log" 2>&1 || give_up openssl "failed"
}

key() { openssl_quiet genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$dir/$1.key"; }

# certificate NAME SUBJECT EXTENSION...: a key and a certificate under the CA.
certificate() {
    local name=$1 subject=$2
    shift 2
    key "$name"
    printf '%s\n' 'basicConstraints=critical,CA:FALSE' 'keyUsage=critical,digitalSignature' "$@" \
        >"$dir/$name.ext"
    openssl_quiet req -new -config "$dir/openssl.cnf" -key "$dir/$name.key" -subj "$subject" -out "$dir/$name.csr"
    openssl_quiet x509 -req -sha256 -days 3650 -in "$dir/$name.csr" -extfile "$dir/$name.ext" \
        -CA "$dir/ca.crt" -CAkey "$dir/ca.key" -set_serial "0x$(openssl rand -hex 8)" -out "$dir/$name.crt"
    rm -f "$dir/$name.csr" "$dir/$name.ext"
}

saved_umask=$(umask)
umask 077
printf '%s\n' '[req]' 'distinguished_name=dn' '[dn]' '[ca]' \
    'basicConstraints=critical,CA:TRUE' 'keyUsage=critical,keyCertSign,cRLSign,digitalSignature' \
    'subjectKeyIdentifier=hash' >"$dir/openssl.cnf"
key ca
openssl_quiet req -x509 -new -config "$dir/openssl.cnf" -extensions ca -sha256 -days 3650 \
    -key "$dir/ca.key" -subj /CN=control-plane-ca -out "$dir/ca.crt"
certificate apiserver /CN=kube-apiserver extendedKeyUsage=serverAuth \
    subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc
certificate admin /O=system:masters/CN=admin extendedKeyUsage=clientAuth
certificate controller /CN=replicaset-controller extendedKeyUsage=clientAuth
key service-account
openssl_quiet pkey -in "$dir/service-account.key" -pubout -out "$dir/service-account.pub"

token=$(openssl rand -hex 24)
printf '%s,replicaset-controller-token,replicaset-controller-token\n' "$token" >"$dir/tokens.csv"

base64_of() { openssl base64 -A -in "$1"; }

# kubeconfig NAME USER-LINE...: the CA and the user's credentials.
kubeconfig() {
    local name=$1
    shift
    cat >"$dir/$name.kubeconfig" <<EOF
apiVersion: v1
kind: Config
clusters:
- name: control-plane
  cluster:
    server: $url
    certificate-authority-data: $(base64_of "$dir/ca.crt")
users:
- name: $name
  user:
$(printf '    %s\n' "$@")
contexts:
- name: control-plane
  context:
    cluster: control-plane
    user: $name
current-context: control-plane
EOF
}

# --- Servers ----------------------------------------------------------------

# $dir/start NAME starts a server with the flags in $dir/NAME.command, in a
# process group of its own whose id is the server's pid. Tests bring a server
# back with it: same flags, same port, same data. One that still runs is killed
# first, and one that was just killed may hold its port for a moment.
cat >"$dir/start" <<'EOF'
#!/usr/bin/env bash
set -eu
dir=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
if [[ -e $dir/$1.pid ]]; then
    kill -KILL -- "-$(<"$dir/$1.pid")" 2>/dev/null || true
fi
if [[ -e $dir/$1.port ]]; then
    for ((i = 0; i < 200; i++)); do
        (exec 3<>"/dev/tcp/127.0.0.1/$(<"$dir/$1.port")") 2>/dev/null || break
        sleep 0.05
    done
fi
set -m
bash "$dir/$1.command" </dev/null >>"$dir/$1.log" 2>&1 9>&- &
echo $! >"$dir/$1.pid"
EOF
chmod 700 "$dir/start"

# command_file NAME ARGUMENT...
command_file() {
    local name=$1
    shift
    { printf 'exec'; printf ' %q' "$@"; echo; } >"$dir/$name.command"
}

alive() { kill -0 "$(<"$dir/$1.pid")" 2>/dev/null; }

# A port of 127.0.0.1, below the ones that outgoing connections get, on which
# nothing listens. Someone may still take it before the server does; then the
# server exits and gets another port.
free_port() {
    local port
    while :; do
        port=$((RANDOM % 20000 + 11000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return
        fi
    done
}

etcd_ready() {
    grep -q '"serving client traffic' "$dir/etcd.log" && alive etcd
}

# The certificate is this run's, so no other server can answer here.
admin() {
    "$bin/kubectl" --kubeconfig "$dir/admin.kubeconfig" --request-timeout=5s "$@"
}

apiserver_ready() {
    admin get --raw /readyz >/dev/null 2>&1
}

# start NAME PREPARE READY SECONDS: PREPARE writes the command file with a free
# port, READY checks whether the server is up.
start() {
    local name=$1 prepare=$2 ready=$3 seconds=$4 attempt deadline
    for attempt in 1 2 3 4 5; do
        "$prepare"
        : >"$dir/$name.log"
        "$dir/start" "$name" 9>&-
        deadline=$((SECONDS + seconds))
        while alive "$name"; do
            "$ready" && return
            ((SECONDS < deadline)) || give_up "$name" "was not ready after $seconds s"
            sleep 0.05
        done
        if [[ $attempt == 5 ]] || ! grep -q 'address already in use' "$dir/$name.log"; then
            give_up "$name" "exited"
        fi
    done
}

prepare_etcd() {
    local port
    port=$(free_port)
    echo "$port" >"$dir/etcd.port"
    etcd_url=http://127.0.0.1:$port
    rm -rf "$dir/etcd-data"
    # An hour of churn fills the 2 GiB that etcd allows by itself.
    command_file etcd "$bin/etcd" --name=test --data-dir="$dir/etcd-data" --unsafe-no-fsync \
        --quota-backend-bytes=$((8 << 30)) \
        --listen-client-urls="$etcd_url" --advertise-client-urls="$etcd_url" \
        --listen-peer-urls=http://127.0.0.1:0 \
        --initial-advertise-peer-urls=http://127.0.0.1:2380 \
        --initial-cluster=test=http://127.0.0.1:2380
}

prepare_apiserver() {
    local port flags=()
    port=$(free_port)
    echo "$port" >"$dir/kube-apiserver.port"
    url=https://127.0.0.1:$port
    if [[ -n $audit_log ]]; then
        cat >"$dir/audit-policy.yaml" <<'EOF'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
EOF
        flags+=(--audit-policy-file="$dir/audit-policy.yaml" --audit-log-path="$audit_log")
    fi
    # Several flags, separated by blanks.
    # shellcheck disable=SC2206
    flags+=(${KUBE_APISERVER_FLAGS:-})
    command_file kube-apiserver "$bin/kube-apiserver" \
        --etcd-servers="$etcd_url" \
        --bind-address=127.0.0.1 --secure-port="$port" --advertise-address=127.0.0.1 \
        --endpoint-reconciler-type=none --service-cluster-ip-range=10.0.0.0/24 \
        --cert-dir="$dir" --tls-cert-file="$dir/apiserver.crt" --tls-private-key-file="$dir/apiserver.key" \
        --client-ca-file="$dir/ca.crt" --token-auth-file="$dir/tokens.csv" \
        --authorization-mode=Node,RBAC --allow-privileged=true \
        --service-account-issuer=https://kubernetes.default.svc \
        --service-account-key-file="$dir/service-account.pub" \
        --service-account-signing-key-file="$dir/service-account.key" \
        ${flags[@]+"${flags[@]}"}
    kubeconfig admin \
        "client-certificate-data: $(base64_of "$dir/admin.crt")" \
        "client-key-data: $(base64_of "$dir/admin.key")"
    kubeconfig controller \
        "client-certificate: $dir/controller.crt" \
        "client-key: $dir/controller.key"
    kubeconfig token "token: $token"
}

prepare_kcm() {
    command_file kube-controller-manager "$bin/kube-controller-manager" \
        --kubeconfig="$dir/admin.kubeconfig" --controllers="$kcm_controllers" \
        --leader-elect=false --secure-port=0 --cert-dir="$dir" \
        --service-account-private-key-file="$dir/service-account.key" --root-ca-file="$dir/ca.crt"
}

kcm_ready() {
    grep -q '"Caches are synced"' "$dir/kube-controller-manager.log"
}

began=${EPOCHREALTIME:-}
start etcd prepare_etcd etcd_ready 30
start kube-apiserver prepare_apiserver apiserver_ready 90
if [[ -n $began ]]; then
    ended=$EPOCHREALTIME
    say "ready at $url after $(((${ended/[.,]/} - ${began/[.,]/}) / 1000)) ms, logs in $dir"
fi

# --- Roles ------------------------------------------------------------------

# The stock role and the system namespaces come from hooks of the API server
# that finish around the time at which it says it is ready.
eventually() {
    local deadline=$((SECONDS + 30))
    until admin get --raw "$1" >/dev/null 2>&1; do
        ((SECONDS < deadline)) || give_up kube-apiserver "does not serve $1"
        sleep 0.1
    done
}
rbac=/apis/rbac.authorization.k8s.io/v1
eventually /api/v1/namespaces/default

for name in replicaset-controller replication-controller; do
    role=system:controller:$name
    eventually "$rbac/clusterroles/$role"
    cat >"$dir/bindings.json" <<EOF
{
  "apiVersion": "rbac.authorization.k8s.io/v1",
  "kind": "ClusterRoleBinding",
  "metadata": {"name": "tests:$name"},
  "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "$role"},
  "subjects": [
    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "replicaset-controller"},
    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "replicaset-controller-token"}
  ]
}
EOF
    admin create --raw "$rbac/clusterrolebindings" -f "$dir/bindings.json" \
        >"$dir/bindings.log" 2>&1 || give_up bindings "could not be created"
done

# The authorizer reads bindings from a cache of its own.
for name in controller token; do
    deadline=$((SECONDS + 30))
    until "$bin/kubectl" --kubeconfig "$dir/$name.kubeconfig" --request-timeout=5s \
        get --raw '/apis/apps/v1/replicasets?limit=1' >/dev/null 2>&1; do
        ((SECONDS < deadline)) || give_up kube-apiserver "still rejects the $name identity"
        sleep 0.1
    done
done

if [[ -n $kcm_controllers ]]; then
    start kube-controller-manager prepare_kcm kcm_ready 30
fi

# --- The command ------------------------------------------------------------

umask "$saved_umask"
export CONTROL_PLANE_DIR=$dir
export CONTROL_PLANE_BIN=$bin
export CONTROL_PLANE_URL=$url
export CONTROL_PLANE_CA=$dir/ca.crt
export CONTROL_PLANE_ETCD=$etcd_url
export CONTROL_PLANE_AUDIT_LOG=$audit_log
export CONTROL_PLANE_ADMIN_KUBECONFIG=$dir/admin.kubeconfig
export CONTROL_PLANE_CONTROLLER_KUBECONFIG=$dir/controller.kubeconfig
export CONTROL_PLANE_TOKEN_KUBECONFIG=$dir/token.kubeconfig
# A kubectl without flags must find neither another cluster nor more
# rights than the controller has.
export KUBECONFIG=$CONTROL_PLANE_CONTROLLER_KUBECONFIG
export KUBECACHEDIR=$dir/kubectl-cache
export PATH=$bin:$PATH

# In the background, so that signals are handled at once. With a terminal the
# command stays in this process group, which is the one that may read from it.
exec 8<&0
if [[ -t 0 ]]; then
    (trap - INT QUIT; exec "$@" <&8 8<&- 9>&-) &
    command_pid=$!
    command_target=$command_pid
    echo "pid $command_pid" >&9
else
    set -m
    (exec "$@" <&8 8<&- 9>&-) &
    command_pid=$!
    command_target=-$command_pid
    set +m
    echo "group $command_pid" >&9
fi
exec 8<&-
code=0
wait "$command_pid" 2>/dev/null || code=$?
exit "$code"
