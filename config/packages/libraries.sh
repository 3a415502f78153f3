#!/bin/sh
# Packs programs with the libraries that start them in tests, the same bytes for the same input:
#
#   replicaset_controller-VERSION-….whl     for pip, one for each program, with fixtures for pytest
#   replicaset-controller-VERSION.tgz       for npm, with all programs
#   replicaset-controller-VERSION-go.tar.gz for Go's `replace`, without a program
#
# Usage: libraries.sh OUTPUT-FOLDER PROGRAM-FOLDER...
# The name of a PROGRAM-FOLDER begins with the machine, as x86_64-unknown-linux-musl does. It contains the
# program and, if they are there, LICENCES and sbom.cdx.json. SOURCE_DATE_EPOCH dates the files.
set -eu
umask 022
export LC_ALL=C TZ=UTC

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
root=$(CDPATH='' cd -- "$here/../.." && pwd -P)
name=replicaset-controller
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
output=$1
shift
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

archive() { # archive FOLDER FILE: packs a folder of the stage
    chmod -R u=rwX,go=rX "$stage/$1"
    tar --directory="$stage" --sort=name --format=ustar --owner=0 --group=0 --numeric-owner \
        --mtime="@${SOURCE_DATE_EPOCH:-0}" --create "$1" | gzip -9 -n >"$output/$2"
}

mkdir "$stage/package"
cpus=
for folder in "$@"; do
    notices=
    for notice in "$folder/LICENCES" "$folder/sbom.cdx.json"; do
        if [ -e "$notice" ]; then notices="$notices $notice"; fi
    done
    # shellcheck disable=SC2086 # Words: no path of a build has blanks.
    python3 "$here/python/wheel.py" "$folder/$name" "$output" $notices
    case $(basename "$folder") in
    x86_64*) cpu=x64 ;;
    aarch64*) cpu=arm64 ;;
    *) echo "libraries: npm has no name for the machine of $folder" >&2; exit 1 ;;
    esac
    # shellcheck disable=SC2086
    install -D -m 644 -t "$stage/package/linux-$cpu" "$folder/$name" $notices
    chmod 755 "$stage/package/linux-$cpu/$name"
    cpus="$cpus, \"$cpu\""
done
cp "$here"/npm/* "$root/LICENSE" "$stage/package"
sed -i "s/\"version\": .*/\"version\": \"$version\",/; s/\"cpu\": .*/\"cpu\": [${cpus#, }]/" \
    "$stage/package/package.json"
chmod +x "$stage/package/run.js"
archive package "$name-$version.tgz"

go=$name-$version-go
mkdir "$stage/$go"
cp "$here"/go/* "$root/LICENSE" "$stage/$go"
archive "$go" "$go.tar.gz"
