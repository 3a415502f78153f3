# Sourced by the scripts beside it: cargo's tools for packages, in a cache that all checkouts share, and
# the commit that the program names in `--version`.

if [ -z "${REPLICASET_CONTROLLER_COMMIT:-}" ]; then
    # Ends in `-dirty` if the tree has changes that are not committed.
    REPLICASET_CONTROLLER_COMMIT=$(git describe --always --dirty --exclude='*' 2>/dev/null || true)
fi
export REPLICASET_CONTROLLER_COMMIT

tools=${XDG_CACHE_HOME:-$HOME/.cache}/replicaset-controller/tools

tool() { # tool CRATE VERSION [FLAG...]
    installed=$tools/$1-$2
    if ! [ -x "$installed/bin/$1" ]; then
        printf 'installing %s %s into %s\n' "$1" "$2" "$installed" >&2
        crate=$1 crate_version=$2
        shift 2
        cargo install --locked --root "$installed" --version "$crate_version" "$@" "$crate"
    fi
    PATH=$installed/bin:$PATH
}
