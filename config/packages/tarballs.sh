#!/bin/sh
# Builds the release tarballs into target/dist, with a static binary for each target:
#
#   NAME-VERSION-TARGET.tar.gz          what `make install` installs, licences, SBOM
#   NAME-VERSION-TARGET-debug.tar.gz    line tables and symbols, for bin/.debug or /usr/lib/debug
#   *.whl, *.tgz, *-go.tar.gz           for tests in other languages: see libraries.sh
#   rs-explain.yaml                     krew's manifest, for tarballs that are published at HOMEPAGE
#   SHA256SUMS
#
# The same commit gives the same bytes in any folder, if the tools are the same: rustc (SHA256SUMS
# depends on its version) and the C compiler (Debian's gcc, and gcc-aarch64-linux-gnu for arm64).
set -eu
umask 022
export LC_ALL=C TZ=UTC

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
root=$(CDPATH='' cd -- "$here/../.." && pwd -P)
name=replicaset-controller
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
targets=${TARGETS:-x86_64-unknown-linux-musl aarch64-unknown-linux-musl}
build=$root/target/dist-build
dist=$root/target/dist
cargo_home=${CARGO_HOME:-$HOME/.cargo}
cd "$root"

say() { printf 'dist: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} ||
    die "set SOURCE_DATE_EPOCH: not a git checkout"
# Nothing that is compiled contains a date, and ring is recompiled when the variable changes.
unset SOURCE_DATE_EPOCH

# --- Commit ------------------------------------------------------------------

. "$here/tools.sh"
case $REPLICASET_CONTROLLER_COMMIT in
*-dirty) say "the tree has changes that are not committed: the commit is $REPLICASET_CONTROLLER_COMMIT" ;;
esac

# --- Paths that do not depend on the builder --------------------------------

cargo fetch --locked --quiet
rust_flags='-Cforce-frame-pointers=yes'
c_flags='-U_FORTIFY_SOURCE'
remap() { # remap FROM TO
    rust_flags="$rust_flags$(printf '\037')--remap-path-prefix=$1=$2"
    c_flags="$c_flags -ffile-prefix-map=$1=$2"
}
# The last one that matches wins.
remap "$root" /$name
remap "$build" /$name/target
for sources in "$cargo_home"/registry/src/*; do
    remap "$sources" /crates
done
remap "$(rustc --print sysroot)/lib/rustlib/src/rust" "/rustc/$(rustc -vV | sed -n 's/^commit-hash: //p')"

# --- One target -------------------------------------------------------------

compile() { # compile TARGET
    prefix=${1%%-*}-linux-gnu
    variable=$(printf '%s' "$1" | tr - _)
    # The C in ring needs headers, and no function of the C library that musl lacks.
    command -v "$prefix-gcc" >/dev/null || die "there is no $prefix-gcc: install Debian's gcc-$(
        printf '%s' "$prefix" | tr _ -)"
    upper=$(printf '%s' "$variable" | tr '[:lower:]' '[:upper:]')
    say "compiling for $1"
    env "CC_$variable=$prefix-gcc" "AR_$variable=$prefix-ar" "CFLAGS_$variable=$c_flags" \
        "CARGO_TARGET_${upper}_LINKER=rust-lld" CARGO_ENCODED_RUSTFLAGS="$rust_flags" \
        cargo build --profile dist --locked --target "$1" --target-dir "$build"
}

# Fails if a file names a folder of this machine.
check_paths() { # check_paths FILE
    for path in "$root" "$cargo_home" "$(rustc --print sysroot)"; do
        ! grep -qaF "$path" "$1" || die "$1 contains the path $path"
    done
}

archive() { # archive FOLDER: packs target/dist/FOLDER, and removes it
    tar --directory="$dist" --sort=name --format=gnu --owner=0 --group=0 --numeric-owner \
        --mtime="@$epoch" --create "$1" | gzip -9 -n >"$dist/$1.tar.gz"
    rm -rf "${dist:?}/$1"
}

pack() { # pack TARGET
    folder=$name-$version-$1
    stage=$build/stage
    rm -rf "$stage"
    binary=$build/$1/dist/$name
    check_paths "$binary"
    make -s install BINARY="$binary" PRINTER="$printer" OBJCOPY="${1%%-*}-linux-gnu-objcopy" \
        DESTDIR="$stage" PREFIX=/usr/local SYSCONFDIR=/etc DEBUGDIR=/usr/lib/debug
    mv "$stage/usr/local" "$dist/$folder"
    mv "$stage/etc" "$dist/$folder/etc"
    documents=$dist/$folder/share/doc/$name
    SOURCE_DATE_EPOCH=$epoch "$here/notices.sh" "$1" "$documents"
    chmod -R u=rwX,go=rX "$dist/$folder"
    mkdir -p "$build/libraries/$1"
    cp "$dist/$folder/bin/$name" "$documents/LICENCES" "$documents/sbom.cdx.json" "$build/libraries/$1"
    archive "$folder"
    mkdir "$dist/$folder-debug"
    mv "$stage/usr/lib/debug/usr/local/bin/$name.debug" "$dist/$folder-debug"
    archive "$folder-debug"
}

rm -rf "$dist"
mkdir -p "$dist"
for target in $targets; do
    compile "$target"
done
# Man page and completions are the same for every target, so one that runs here prints them.
printer=$build/$(uname -m)-unknown-linux-musl/dist/$name
[ -x "$printer" ] || die "TARGETS lacks the target of this machine, which prints the man page"
rm -rf "$build/libraries"
for target in $targets; do
    pack "$target"
done
SOURCE_DATE_EPOCH=$epoch "$here/libraries.sh" "$dist" "$build"/libraries/*
cd "$dist"
sed "s|@HOMEPAGE@|${HOMEPAGE:-https://example.invalid/$name}|; s|@VERSION@|$version|" \
    "$here/krew.yaml" >rs-explain.yaml
for target in $targets; do
    sum=$(sha256sum "$name-$version-$target.tar.gz")
    sed -i "s|@SHA256-${target%%-*}@|${sum%% *}|" rs-explain.yaml
done
sha256sum -- * >SHA256SUMS
say "target/dist:"
ls -l -- *
