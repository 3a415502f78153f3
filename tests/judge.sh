#!/bin/sh
# Runs a test program in two parts, for `make mutants`: most mutants die in the unit tests, which
# take a third of the time.
set -eu
"$@" --skip simulation --skip scopes --skip interleavings
"$@" simulation scopes interleavings
