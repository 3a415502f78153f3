#!/bin/sh
# Runs everyday calls of several clients on the dev server and prints a table of verdicts. Needs Go,
# Cargo, npm and Python, and their registries for the first run. REPLICASET_CONTROLLER names another
# binary than that of `cargo build`; arguments name the clients to run. What is built or installed
# stays outside the checkout.
set -u

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
: "${REPLICASET_CONTROLLER:=$here/../../../target/debug/replicaset-controller}"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/replicaset-controller/clients
work=$(mktemp -d)
server=
trap 'kill $server 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# start FLAGS: a new server, whose kubeconfig is $KUBECONFIG and whose address is $url
start() {
    export KUBECONFIG="$work/kubeconfig"
    rm -f "$KUBECONFIG"
    "$REPLICASET_CONTROLLER" dev --port=0 --write-kubeconfig="$KUBECONFIG" "$@" \
        >"$work/server.log" 2>&1 &
    server=$!
    until [ -e "$KUBECONFIG" ]; do
        kill -0 "$server" || { cat "$work/server.log"; exit 1; }
        sleep 0.1
    done
    url=$(grep -o 'http://[0-9.:]*' "$KUBECONFIG" | head -n 1)
}

# check NAME COMMAND...: runs it on the server, stops the server, and notes the verdict
check() {
    name=$1
    shift
    if "$@" >"$work/$name.log" 2>&1; then verdict=pass; else verdict=FAIL; fi
    [ $verdict = pass ] || cat "$work/$name.log" >&2
    printf '%-20s %-5s %s\n' "$name" "$verdict" "$(tail -n 1 "$work/$name.log")" | tee -a "$work/table"
    kill "$server"
    wait "$server" 2>/dev/null
}

in_go() { (cd "$here/go" && go run "$@"); }

in_python() {
    if [ ! -x "$cache/python/bin/kopf" ]; then
        python3 -m venv "$cache/python" || return
        "$cache/python/bin/pip" install --quiet --disable-pip-version-check \
            --requirement "$here/python/requirements.txt" || return
    fi
    "$cache/python/bin/python" -B "$here/python/$1"
}

in_node() {
    mkdir -p "$cache/node" && cp "$here/node/"* "$cache/node" || return
    (cd "$cache/node" && npm install --silent --no-audit --no-fund && node "$1")
}

in_rust() { cargo run --quiet --manifest-path "$here/rust/Cargo.toml" --target-dir "$cache/rust"; }

wanted() { [ -z "$clients" ] || case " $clients " in *" $1 "*) ;; *) return 1 ;; esac }
clients=$*

# client NAME COMMAND...: the same on a new server with everything on
client() {
    wanted "$1" || return
    start
    check "$@"
}

if wanted kinds; then
    start --no-controller --no-kubelet
    check kinds in_go ./kinds "$url"
fi
client controller-runtime in_go ./controller
client python in_python everyday.py
client kopf in_python shops.py
client javascript in_node everyday.js
client kube-rs in_rust

[ -s "$work/table" ] && ! grep -q FAIL "$work/table"
