#!/bin/sh
# Builds the Debian package of this machine's architecture into target/debian, from what `make install`
# installs, and a package with line tables and symbols beside it.
#
# BINARY is a release binary for this system; without it the script builds one without the dev server.
set -eu
umask 022

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
root=$(CDPATH='' cd -- "$here/../.." && pwd -P)
name=replicaset-controller
stage=$root/target/deb/stage
cd "$root"

. "$here/tools.sh"
tool cargo-deb 3.8.0

if [ -z "${BINARY:-}" ]; then
    BINARY=$root/target/deb/dist/$name
    RUSTFLAGS="${RUSTFLAGS:-} -C force-frame-pointers=yes" \
        cargo build --profile dist --locked --package $name --no-default-features --target-dir target/deb
fi
rm -rf "$stage"
make -s install BINARY="$BINARY" DESTDIR="$stage" PREFIX=/usr SYSCONFDIR=/etc DEBUGDIR=/usr/lib/debug
# cargo-deb finds the unit and the user by the names of these files, and writes `copyright` and
# `changelog.gz` itself.
mkdir "$stage/units"
mv "$stage/usr/lib/systemd/system/$name.service" "$stage/units"
cp "$here/sysusers.conf" "$stage/units/$name.sysusers"
rm "$stage/usr/share/doc/$name/LICENSE" "$stage/usr/share/doc/$name/CHANGELOG.md"
host=$(rustc -vV | sed -n 's/^host: //p')
"$here/notices.sh" "$host" "$stage/usr/share/doc/$name" --no-default-features
rm -rf target/debian
cargo deb --no-build --no-strip --quiet
cargo deb --no-build --no-strip --quiet --variant=dbg
ls -l target/debian/*.deb
