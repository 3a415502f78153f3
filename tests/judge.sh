#!/bin/sh
# Runs a test program in three parts, for `make mutants`: first whole daemons under simulation and the
# exhausted scopes, then the unit tests, then the controller under simulation. A mutant dies in the
# part whose number is the number of parts begun. The limit is CPU time, so that a busy machine kills
# no mutant: three times what the longest part takes.
set -u
# Less than a minute of CPU time. A history that fails says enough without being made smaller.
export SIMULATION_SEEDS=0..150 SIMULATION_SHRINK_RUNS=0
part() {
    (ulimit -t 150; exec "$@")
    code=$?
    [ "$code" -lt 128 ] || echo "judge: ended by signal $((code - 128))"
    [ "$code" -eq 0 ] || exit "$code"
}
part "$@" manager::simulation scopes interleavings
part "$@" --skip simulation --skip scopes --skip interleavings
part "$@" controller::simulation --skip scopes
