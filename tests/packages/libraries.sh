#!/bin/sh
# The packages of `make dist` for pip, npm and Go: they bring the licences of what is in the program, and
# work in bare environments without network (tests/samples/run.sh).
. "$(dirname -- "$0")/lib.sh"
dist=$root/target/dist

check_files() { # check_files PACKAGE
    for file in LICENSE LICENCES sbom.cdx.json; do
        grep -q "/$file$" "$work/list" || fail "$1 has no $file"
    done
    say "ok    licences of $1"
}

for wheel in "$dist"/*.whl; do
    unzip -Z1 "$wheel" >"$work/list"
    check_files "${wheel##*/}"
done
tar -tzf "$dist/$name-$version.tgz" >"$work/list"
check_files "$name-$version.tgz"
TESTS= PACKAGES=$dist "$root/tests/samples/run.sh"
