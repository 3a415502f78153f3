#!/bin/sh
# Runs what `make dist`, `make image` and `make deb` built, each as its users do. As root, on Debian:
#
#   apt-get install podman qemu-user-static systemd-container mmdebstrap
#
# TESTS names some of the parts: tarballs, image, deb. Each part names the step that fails.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
for part in ${TESTS:-tarballs image deb}; do
    printf '\n== %s\n' "$part"
    "$here/$part.sh"
done
