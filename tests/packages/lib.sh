# Sourced by the scripts beside it.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd -P)
name=replicaset-controller
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
work=$(mktemp -d)
pids=
end() {
    code=$?
    for pid in $pids; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$work"
    exit "$code"
}
trap end EXIT
trap 'exit 130' INT TERM

say() { printf '  %s\n' "$*"; }
fail() { printf '  FAILED: %s\n' "$*" >&2; exit 1; }

# Runs a step, and names it if it fails. Its output is shown only then.
step() { # step WHAT COMMAND...
    what=$1
    shift
    if "$@" >"$work/output" 2>&1; then
        say "ok    $what"
    else
        cat "$work/output" >&2
        fail "$what"
    fi
}

# Waits for a command to succeed, for a minute at most.
eventually() { # eventually COMMAND...
    tries=300
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || fail "not within a minute: $*"
        sleep 0.2
    done
}
