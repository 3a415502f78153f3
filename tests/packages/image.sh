#!/bin/sh
# The image of `make image`, run as nobody, on a read-only root, without capabilities, against the control
# plane of tests/control-plane: the daemon creates pods, and stops at SIGTERM with exit code 0.
. "$(dirname -- "$0")/lib.sh"

if [ -z "${CONTROL_PLANE_URL:-}" ]; then
    exec "$root/tests/control-plane/run.sh" "$0"
fi
engine=${ENGINE:-podman}
image=$name:$version
admin="kubectl --kubeconfig=$CONTROL_PLANE_ADMIN_KUBECONFIG"
container=rsc-$$

$admin config view --kubeconfig="$CONTROL_PLANE_TOKEN_KUBECONFIG" --minify --flatten --raw >"$work/kubeconfig"
chmod 444 "$work/kubeconfig"
chmod 755 "$work"
$admin create serviceaccount default >/dev/null 2>&1 || true

step "the image holds one file" sh -c '[ "$('"$engine"' image inspect --format "{{len .RootFS.Layers}}" '"$image"')" = 1 ]'
$engine run --rm --name "$container" --network=host --read-only --cap-drop=all \
    --security-opt=no-new-privileges --volume "$work:/etc/rsc:ro" "$image" \
    run --kubeconfig=/etc/rsc/kubeconfig --leader-elect=false --secure-port=0 >"$work/log" 2>&1 &
pid=$!
pids="$pids $pid"
step "kubectl apply" $admin apply -f "$root/config/replicasets.yaml"
eventually sh -c '[ "$('"$admin"' get rs web -o jsonpath={.status.replicas})" = 8 ]'
say "ok    8 pods by a container of user $($engine top "$container" huser 2>/dev/null | tail -n 1)"
$engine kill --signal=TERM "$container" >/dev/null
wait "$pid" || { cat "$work/log"; fail "exit code $?"; }
pids=
say "ok    it stops at SIGTERM"
