#!/bin/sh
# Checks the dependencies against deny.toml: licences, bans and sources, and known vulnerabilities if a copy
# of the RustSec database is there (`cargo deny fetch db` makes one).
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
cd "$here/../.."

. "$here/tools.sh"
tool cargo-deny 0.20.2

cargo fetch --locked --quiet
cargo deny --locked check bans licenses sources
databases=${CARGO_HOME:-$HOME/.cargo}/advisory-dbs
if [ -n "$(find "$databases" -maxdepth 2 -name .git 2>/dev/null)" ]; then
    cargo deny --locked check --disable-fetch advisories
else
    echo "vulnerabilities are not checked: there is no copy of the RustSec database in $databases"
fi
