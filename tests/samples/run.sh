#!/bin/sh
# Runs the samples on the dev server with the real client libraries: the Python package
# `kubernetes` in a virtual environment, and client-go. The environment and Go's build cache are
# outside the checkout. REPLICASET_CONTROLLER names another binary than that of `cargo build`.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
repo=$(CDPATH='' cd -- "$here/../.." && pwd -P)
: "${REPLICASET_CONTROLLER:=$repo/target/debug/replicaset-controller}"
export REPLICASET_CONTROLLER

say() { printf 'samples: %s\n' "$*" >&2; }

[ -x "$REPLICASET_CONTROLLER" ] || {
    say "$REPLICASET_CONTROLLER is not there; run 'cargo build' first"
    exit 1
}

key=$(cat "$here/pytest/requirements.txt" | cksum | cut -d ' ' -f 1)
python=${XDG_CACHE_HOME:-$HOME/.cache}/replicaset-controller/samples/python-$key
if [ ! -e "$python/complete" ]; then
    say "making $python"
    rm -rf "$python"
    python3 -m venv "$python"
    "$python/bin/pip" install --quiet --disable-pip-version-check \
        --requirement "$here/pytest/requirements.txt"
    touch "$python/complete"
fi

say pytest
(cd "$here/pytest" && "$python/bin/python" -B -m pytest -q -p no:cacheprovider)

say 'go test'
(cd "$here/go" && go test -count=1 ./...)
