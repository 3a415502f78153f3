# Sourced by the rigs that run steps beside the daemon (kind is ours) and beside
# kube-controller-manager's own controller (upstream), and note what their table shows.
# shellcheck shell=bash
# shellcheck disable=SC2154 # The rig sets rig, kind, logs, audit_log and patience.

say() { printf '%s: %s\n' "$rig" "$*" >&2; }
die() { say "$*"; exit 1; }

note() { printf '%s|%s|%s\n' "$kind" "$1" "$2" | tee -a "$logs/steps"; }

# step WHAT COMMAND...: notes how long it takes.
step() {
    local what=$1 began=$EPOCHREALTIME verdict=pass
    shift
    "$@" >>"$logs/$kind.kubectl.log" 2>&1 || verdict=FAIL
    local ms=$((${EPOCHREALTIME/[.,]/} / 1000 - ${began/[.,]/} / 1000))
    note "$what" "$verdict $((ms / 1000)).$((ms % 1000 / 100)) s"
}

# sent WHAT VERB RESOURCE CODE: notes how many such requests of the controller the audit log has.
sent() {
    note "$1" "$(grep -F replicaset-controller "$audit_log" | grep -F "\"verb\":\"$2\"" |
        grep -F "\"resource\":\"$3\"" | grep -cF "\"code\":$4" || true)"
}

# eventually COMMAND...: within as many seconds as only a hang takes.
eventually() {
    local deadline=$((SECONDS + patience))
    until "$@"; do
        ((SECONDS < deadline)) || return 1
        sleep 0.5
    done
}
has_account() { kubectl get serviceaccount default >/dev/null 2>&1; }

# table TITLE: exits with 1 if a step failed beside the daemon.
table() {
    awk -F'|' -v title="$1" '
        !($2 in seen) { seen[$2]; rows[++n] = $2 }
        { cell[$2, $1] = $3; failed += $1 == "ours" && /FAIL/ }
        END {
            printf "%-48s %-16s %s\n", title, "ours", "upstream"
            for (i = 1; i <= n; i++)
                printf "%-48s %-16s %s\n", rows[i], cell[rows[i], "ours"], cell[rows[i], "upstream"]
            exit n == 0 || failed > 0
        }' "$logs/steps" | tee "$logs/table.txt"
}
