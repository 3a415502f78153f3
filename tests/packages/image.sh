#!/bin/sh
# The image of `make image`, run as nobody, on a read-only root, without capabilities, against the control
# plane of tests/control-plane: the daemon creates pods, and stops at SIGTERM with exit code 0.
#
# In a container that lacks CAP_SYS_RESOURCE, or on cgroups of version 1:
#   ENGINE='podman --runtime=runc' RUN_FLAGS='--ulimit=nofile=1024:1024 --ulimit=nproc=1000:1000'
. "$(dirname -- "$0")/lib.sh"

if [ -z "${CONTROL_PLANE_URL:-}" ]; then
    exec "$root/tests/control-plane/run.sh" "$0"
fi
engine=${ENGINE:-podman}
image=${IMAGE:-$name:$version}
admin="kubectl --kubeconfig=$CONTROL_PLANE_ADMIN_KUBECONFIG"
container=$name-$$

$admin config view --kubeconfig="$CONTROL_PLANE_TOKEN_KUBECONFIG" --minify --flatten --raw \
    >"$work/kubeconfig"
chmod 444 "$work/kubeconfig"
chmod 755 "$work"
$admin create serviceaccount default >/dev/null 2>&1 || true

[ "$($engine image inspect --format '{{len .RootFS.Layers}}' "$image")" = 2 ] ||
    fail "$image has more than the program and its licences"
$engine create --name "$container-files" "$image" >/dev/null
$engine cp "$container-files:/licenses" "$work"
$engine rm "$container-files" >/dev/null
for file in LICENSE LICENCES sbom.cdx.json; do
    [ -s "$work/licenses/$file" ] || fail "$image has no /licenses/$file"
done
user=$($engine image inspect --format '{{.Config.User}}' "$image")
[ "$user" = 65532:65532 ] || fail "$image runs as $user"
# shellcheck disable=SC2086 # Words.
$engine run ${RUN_FLAGS:-} --rm --name "$container" --network=host --read-only --cap-drop=all \
    --security-opt=no-new-privileges --volume "$work:/etc/$name:ro" "$image" \
    run --kubeconfig="/etc/$name/kubeconfig" --leader-elect=false --secure-port=0 >"$work/log" 2>&1 &
pid=$!
pids=$pid
step "kubectl apply" $admin apply -f "$root/config/replicasets.yaml"
has_pods() { [ "$($admin get rs web -o jsonpath='{.status.replicas}')" = 8 ]; }
eventually has_pods
main=$($engine inspect --format '{{.State.Pid}}' "$container")
say "ok    8 pods, by a container with: $(sed -n 's/\t/ /g; /^Uid\|^CapEff\|^NoNewPrivs/p' \
    "/proc/$main/status" | tr '\n' ' ')"
grep -q '^Uid:[[:space:]]*65532' "/proc/$main/status" || fail "another user"
grep -q '^CapEff:[[:space:]]*0*$' "/proc/$main/status" || fail "it has capabilities"
$engine kill --signal=TERM "$container" >/dev/null
wait "$pid" || { cat "$work/log" >&2; fail "it ends with exit code $?"; }
pids=
say "ok    it stops at SIGTERM"
