#!/bin/sh
# Runs a test program in three parts, for `make mutants`: the simulations, the exhausted scopes, and
# the unit tests. A mutant dies in the part whose number is the number of parts begun. The limit is
# CPU time, so that a busy machine kills no mutant: more than twice what the longest part takes.
set -u
# A mutant that the first histories don't kill seldom dies by later ones. A history that fails says
# enough without being made smaller.
export SIMULATION_SEEDS=0..80 SIMULATION_SHRINK_RUNS=0
part() {
    (ulimit -t 75; exec "$@")
    code=$?
    [ "$code" -lt 128 ] || echo "judge: ended by signal $((code - 128))"
    [ "$code" -eq 0 ] || exit "$code"
}
part "$@" simulation --skip scopes
part "$@" scopes interleavings
# No mutant is of the code that these two test.
part "$@" --skip simulation --skip scopes --skip interleavings --skip devserver --skip fuzzing
