#!/bin/sh
# Writes into a folder what a copy of the program must bring along, and what is in it:
#
#   LICENCES        the licences of all crates in the program
#   sbom.cdx.json   the same crates as a CycloneDX list
#
# Usage: notices.sh TARGET FOLDER [--no-default-features]
# SOURCE_DATE_EPOCH dates the list, by default with the commit's time.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
root=$(CDPATH='' cd -- "$here/../.." && pwd -P)
target=$1 folder=$2
shift 2
cd "$root"

. "$here/tools.sh"
tool cargo-about 0.9.3 --features cli
tool cargo-cyclonedx 0.5.9

cargo fetch --locked --quiet
cargo about generate --fail --locked --offline --target "$target" "$@" --config "$here/licences.toml" \
    "$here/licences.hbs" >"$folder/LICENCES"
# It writes beside each Cargo.toml of the workspace.
list=sbom.cdx
trap 'find "$root/src" "$root/tests/bench" "$root/$list.json" -name "$list.json" -delete' EXIT
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} \
    cargo cyclonedx --quiet --format json --spec-version 1.5 --target "$target" "$@" \
    --override-filename "$list"
sed "s|$root|/replicaset-controller|g" "$list.json" >"$folder/sbom.cdx.json"
chmod 644 "$folder/LICENCES" "$folder/sbom.cdx.json"
