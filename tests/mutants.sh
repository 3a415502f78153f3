#!/bin/sh
# Judges a sample of mutants, for `make mutants`: every eleventh of 277 shards, of which each adds a
# line to tests/records/mutants.jsonl. Shards that the file has are skipped, so that a run that was
# cut off goes on; without the file, a new run begins. `mutants.sh LIST [PATTERN]` judges again, by
# the tests of HEAD, the mutants in one of the file's lists (`missed`, `unit_tests` and so on), or
# only those of them that match a pattern. The mutants are of HEAD: each of the jobs changes its own
# copy under target/mutants, which keeps what it built. Needs cargo-mutants, jq and flock.
set -eu
cd "$(dirname -- "$0")/.."
record=$PWD/tests/records/mutants.jsonl
commit=$(git rev-parse --short HEAD)
jobs=${MUTANT_JOBS:-2}

# Prints the names of the mutants with one of the summaries, as a JSON array.
names() { # names PART SUMMARY...
    part=$1 && shift
    for summary; do
        jq -r --arg s "$summary" '.outcomes[] | select(.summary == $s and .scenario != "Baseline")
            | [.scenario.Mutant.name, .log_path] | @tsv' "$out/mutants.out/outcomes.json"
    done | while IFS="$(printf '\t')" read -r name log; do
        begun=$(grep -c '^running [0-9]* tests*$' "$out/mutants.out/$log" || true)
        # Each test program runs its three parts.
        case $part in any | $(((begun - 1) % 3 + 1))) printf '%s\n' "$name" ;; esac
    done | jq -R . | jq -cs .
}

# Makes the copy of a job.
prepare() { # prepare JOB
    out=$PWD/target/mutants/$1
    tree=$out/tree
    mkdir -p "$tree"
    # A build that was cut off may leave the code of a mutant there, for the next one to take.
    rm -rf "$tree/target/simulation/incremental"
    find "$tree" -mindepth 1 -maxdepth 1 ! -name target -exec rm -r {} +
    # Cargo goes by the time of a file, so each must be newer than what was built of another commit.
    git archive HEAD | tar -xm -C "$tree"
    baseline=run
}

mutate() { # mutate OPTION...
    # cargo-mutants ends with 2 if a mutant was missed, and with 3 if one timed out.
    code=0
    (
        cd "$tree"
        cargo mutants --workspace --config tests/mutants.toml --output "$out" --in-place --timeout 240 \
            --baseline "$baseline" --colors never "$@" || code=$?
        times >"$out/times"
        exit "$code"
    ) || code=$?
    [ "$code" -le 3 ] && [ "$code" -ne 1 ] || exit "$code"
    # Once is enough for a tree.
    baseline=skip
}

judge() { # judge SHARD
    began=$(date +%s)
    mutate --shard "$1" --sharding round-robin
    jq -cn --arg shard "$1" --arg commit "$commit" \
        --arg date "$(date -u +%F)" \
        --argjson wall_seconds "$(($(date +%s) - began))" \
        --argjson cpu_seconds "$(awk -F '[ms ]+' 'NR == 2 { print 60 * ($1 + $3) + $2 + $4 }' \
            "$out/times")" \
        --argjson simulation "$(names 1 CaughtMutant)" \
        --argjson scopes "$(names 2 CaughtMutant)" \
        --argjson unit_tests "$(names 3 CaughtMutant)" \
        --argjson timeout "$(names any Timeout)" \
        --argjson missed "$(names any MissedMutant)" \
        --argjson unviable "$(names any Unviable | jq length)" \
        '{$shard, $commit, $date, $wall_seconds, $cpu_seconds, $simulation, $scopes,
          $unit_tests, $timeout, $missed, $unviable}' >>"$record"
}

# The place in the list of the mutant of this name. It may have moved since.
place_of() { # place_of NAME
    NAME=$1 awk '
        function split_name(it, part) {
            match(it, /:[0-9]+:[0-9]+:/)
            part["text"] = substr(it, 1, RSTART) substr(it, RSTART + RLENGTH)
            split(substr(it, RSTART + 1), number, ":")
            part["at"] = 1000 * number[1] + number[2]
        }
        BEGIN { split_name(ENVIRON["NAME"], wanted) }
        {
            split_name($0, it)
            apart = it["at"] - wanted["at"]
            apart = apart < 0 ? -apart : apart
            if (it["text"] == wanted["text"] && (place == "" || apart < nearest)) {
                place = NR - 1
                nearest = apart
            }
        }
        END { print place }' "$out/list"
}

# The list of the record in which the last mutant belongs; nothing if it did not compile.
verdict() {
    [ "$(names any MissedMutant)" = '[]' ] || echo missed
    [ "$(names any Timeout)" = '[]' ] || echo timeout
    [ "$(names 1 CaughtMutant)" = '[]' ] || echo simulation
    [ "$(names 2 CaughtMutant)" = '[]' ] || echo scopes
    [ "$(names 3 CaughtMutant)" = '[]' ] || echo unit_tests
}

judge_again() { # judge_again LIST JOB
    prepare "$2"
    (cd "$tree" && cargo mutants --workspace --config tests/mutants.toml --list) >"$out/list"
    awk -v jobs="$jobs" -v job="$2" 'NR % jobs == job' target/mutants/again >"$out/again"
    while IFS= read -r name; do
        # A mutant of code that is gone leaves the record. A shard of one is the only way to choose
        # any mutant.
        place=$(place_of "$name")
        killed=
        if [ -n "$place" ]; then
            mutate --shard "$place/$(wc -l <"$out/list")" --sharding round-robin </dev/null
            killed=$(verdict)
            if [ -z "$killed" ] || [ "$killed" = "$1" ]; then continue; fi
        fi
        (
            flock 9
            jq -c --arg name "$name" --arg list "$1" --arg killed "$killed" \
                'if .[$list] | index([$name])
                then .[$list] -= [$name] | if $killed == "" then . else .[$killed] += [$name] end
                else . end' "$record" >"$out/record"
            cp "$out/record" "$record"
        ) 9>target/mutants/lock
    done <"$out/again"
}

work() { # work JOB
    prepare "$1"
    number=0
    for shard in ${SHARDS:-$(seq 0 11 276)}; do
        number=$((number + 1))
        [ $((number % jobs)) -eq "$1" ] || continue
        grep -qs "\"shard\":\"$shard/277\"" "$record" || judge "$shard/277"
    done
}

if [ -n "${1:-}" ]; then
    mkdir -p target/mutants
    jq -r --arg list "$1" '.[$list][]?' "$record" | grep -E -- "${2:-.}" >target/mutants/again || {
        echo "the record has no such mutants in the list '$1'" >&2
        exit 1
    }
fi
pids=
job=0
while [ "$job" -lt "$jobs" ]; do
    if [ -n "${1:-}" ]; then
        judge_again "$1" "$job" &
    else
        work "$job" &
    fi
    pids="$pids $!"
    job=$((job + 1))
done
for pid in $pids; do
    wait "$pid"
done
