#!/usr/bin/env bash
# Runs what `make dist`, `make image` and `make deb` built, each as its users do. As root, on Debian:
#
#   apt-get install podman qemu-user-static systemd-container mmdebstrap
#
# TESTS names some of the parts: tarballs, libraries, image, deb. Each part names the step that fails. The output of
# a part that passes is kept in tests/records/packages-PART.txt.
set -euo pipefail
cd "$(dirname "$0")/../.."

# What is tested, and on what.
about() { # about PART
  (. /etc/os-release && echo "$PRETTY_NAME, $(uname -m), Linux $(uname -r | cut -d- -f1)")
  case $1 in
  tarballs) wc --bytes target/dist/*-musl*.tar.gz ;;
  libraries) wc --bytes target/dist/*.whl target/dist/*.tgz target/dist/*-go.tar.gz ;;
  deb) wc --bytes target/debian/*.deb ;;
  image)
    ${ENGINE:-podman} --version
    echo "engine: ${ENGINE:-podman} run ${RUN_FLAGS:-}"
    ${ENGINE:-podman} image ls --format '{{.Repository}}:{{.Tag}} {{.Size}}' replicaset-controller
    ;;
  esac
}

check() { # check PART
  about "$1"
  SECONDS=0
  "tests/packages/$1.sh"
  echo "passed in $SECONDS s"
}

for part in ${TESTS:-tarballs libraries image deb}; do
  printf '\n== %s\n' "$part"
  output=target/packages-$part.txt
  # Only what is the same on every machine: no folders of this one.
  check "$part" 2>&1 | sed -u "s|$PWD/||g; s|$HOME/|~/|g; s|${TMPDIR:-/tmp}/[a-z-]*\.[[:alnum:]]*|TEMPORARY|g" |
    tee "$output"
  mv "$output" "tests/records/packages-$part.txt"
done
