#!/bin/sh
# The Debian package of `make deb`, under a systemd of its own as PID 1 of a Debian container, against the
# control plane of tests/control-plane: installed, started, reloaded, frozen until the watchdog kills it,
# upgraded, removed, purged. JOURNAL=1 prints the daemon's journal at the end.
. "$(dirname -- "$0")/lib.sh"

if [ -z "${CONTROL_PLANE_URL:-}" ]; then
    exec "$root/tests/control-plane/run.sh" "$0"
fi
admin="kubectl --kubeconfig=$CONTROL_PLANE_ADMIN_KUBECONFIG"
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/replicaset-controller
debian=$cache/debian-$codename.tar
deb=$(ls "$root"/target/debian/${name}_*.deb)
machine=$work/machine

# --- A Debian with systemd --------------------------------------------------

if ! [ -e "$debian" ]; then
    step "mmdebstrap (once)" mmdebstrap --variant=minbase --format=tar \
        --include=systemd,systemd-sysv,dbus,procps "$codename" "$debian.new"
    mv "$debian.new" "$debian"
fi
mkdir "$machine"
tar -C "$machine" -xf "$debian"
# mmdebstrap copies the name of this machine.
rm -f "$machine/etc/hostname"
# It shares the network, so that it reaches the control plane at 127.0.0.1.
systemd-nspawn --quiet --directory="$machine" --hostname=debian --boot --register=no --keep-unit --console=pipe \
    --resolv-conf=off --timezone=off </dev/null >"$work/boot.log" 2>&1 &
nspawn=$!
pids=$nspawn
leader() { pgrep -P "$nspawn" | head -n 1; }
inside() { nsenter --target="$(leader)" --all --wdns=/ "$@"; }
is_up() { inside systemctl is-system-running | grep -qE 'running|degraded'; }
eventually is_up
say "ok    systemd $(inside systemctl --version | sed -n '1s/^systemd \([0-9]*\).*/\1/p') is PID 1 of a container"

show() { inside systemctl show --property="$1" --value "$name"; }
journal() { inside journalctl --quiet --unit="$name" "$@"; }
logged() { journal --output=cat | grep -q "$1"; }
install_deb() { # install_deb FILE
    cp "$1" "$machine/var/cache/new.deb"
    inside dpkg --force-confold --install /var/cache/new.deb
}
pod_count() { $admin get rs web -o jsonpath='{.status.replicas}'; }
has_pods() { [ "$(pod_count)" = "$1" ]; }

# --- Installation -----------------------------------------------------------

step "dpkg --install" install_deb "$deb"
step "the user exists" inside id $name
[ "$(show ActiveState)" = inactive ] || fail "the installation started the daemon"
inside dpkg-query --show --showformat='${Conffiles}' $name | grep -q "/etc/$name/config.yaml" ||
    fail "config.yaml is no conffile"
step "man page" test -s "$machine/usr/share/man/man8/$name.8.gz"
step "completions" test -s "$machine/usr/share/bash-completion/completions/$name"
for file in LICENCES sbom.cdx.json; do
    step "$file" test -s "$machine/usr/share/doc/$name/$file"
done
inside $name --version | grep -qF "($(git -C "$root" describe --always --exclude='*')" ||
    fail "the version names no commit"
inside $name dev 2>&1 | grep -q "unknown command 'dev'" || fail "the binary has the dev server"

# --- Start ------------------------------------------------------------------

$admin create serviceaccount default >/dev/null 2>&1 || true
$admin config view --minify --flatten --raw --kubeconfig="$CONTROL_PLANE_TOKEN_KUBECONFIG" \
    >"$work/kubeconfig"
install -m 600 "$work/kubeconfig" "$machine/etc/$name/kubeconfig"
echo REPLICASET_CONTROLLER_SECURE_PORT=0 >"$machine/etc/$name/environment"
echo REPLICASET_CONTROLLER_LEADER_ELECT=false >>"$machine/etc/$name/environment"
mkdir -p "$machine/etc/systemd/system/$name.service.d"
# The unit's minute, shortened for the test.
printf '[Service]\nWatchdogSec=6\n' >"$machine/etc/systemd/system/$name.service.d/test.conf"
inside systemctl daemon-reload
step "systemctl enable --now" inside systemctl enable --now $name
step "kubectl apply" $admin apply -f "$root/config/replicasets.yaml"
eventually has_pods 8
counts() { inside systemctl status $name | grep -q 'Status: "running; 3 ReplicaSets, '; }
eventually counts
inside systemctl status $name | sed 's/^/        /; s/ *$//' | head -n 10
pid=$(show MainPID)
owner=$(inside ps -o user= -p "$pid")
inside id "$owner" >/dev/null || fail "the daemon runs as $owner"
[ "$owner" != root ] || fail "the daemon runs as root"

# --- Reload, levels, watchdog -----------------------------------------------

step "systemctl reload" inside systemctl reload $name
eventually logged 'SIGHUP: re-read credentials'
for line in "INFO 6" "WARN 4" "ERROR 3"; do
    level=${line% *} priority=${line#* }
    others=$(journal --output=json | grep "$level " | grep -vc "\"PRIORITY\":\"$priority\"" || true)
    [ "$others" = 0 ] || fail "$others lines of level $level have another priority than $priority"
done
journal --output=json | grep -q '"PRIORITY":"6"' || fail "no line of priority 6"
say "ok    the journal knows the level of each line"
inside kill -STOP "$pid"
restarted() { [ "$(show MainPID)" != "$pid" ] && [ "$(show ActiveState)" = active ]; }
eventually restarted
journal | grep -q 'Watchdog timeout' || fail "no word of the watchdog"
say "ok    the watchdog restarts a frozen daemon"

# --- A token that renews itself, by the units of install.md -----------------

cp "$(command -v kubectl)" "$machine/usr/local/bin"
awk -v machine="$machine" '/^```ini$/ { getline; file = machine $2; next } /^```$/ { file = "" }
    file { print >file }' "$root/src/manual/install.md"
inside $name rbac | $admin apply -f - >/dev/null
$admin -n kube-system create role $name:token --verb=create --resource=serviceaccounts/token \
    --resource-name=$name >/dev/null
$admin -n kube-system create rolebinding $name:token --role=$name:token \
    --serviceaccount=kube-system:$name >/dev/null
mkdir -p "$machine/var/lib/$name"
$admin -n kube-system create token $name --duration=1h >"$machine/var/lib/$name/token"
cp "$machine/var/lib/$name/token" "$work/first"
conf="kubectl --kubeconfig=$machine/etc/$name/kubeconfig config"
$conf set-credentials daemon >/dev/null
$conf set users.daemon.tokenFile "/var/lib/$name/token" >/dev/null
$conf set-context --current --user=daemon >/dev/null
inside systemctl daemon-reload
step "the timer starts" inside systemctl enable --now $name-token.timer
step "the token is renewed" inside systemctl start $name-token
! inside cmp --quiet "/var/lib/$name/token" - <"$work/first" || fail "the token is the first one"
step "the daemon starts with it" inside systemctl restart $name
step "kubectl scale" $admin scale rs web --replicas=10
eventually has_pods 10

# --- Upgrade ----------------------------------------------------------------

echo '# changed by the administrator' >>"$machine/etc/$name/config.yaml"
dpkg-deb --raw-extract "$deb" "$work/next"
sed -i 's/^Version: .*/Version: 99.0-1/' "$work/next/DEBIAN/control"
dpkg-deb --root-owner-group --build "$work/next" "$work/next.deb" >/dev/null
pid=$(show MainPID)
step "upgrade" install_deb "$work/next.deb"
eventually restarted
grep -q 'changed by the administrator' "$machine/etc/$name/config.yaml" || fail "config.yaml was replaced"
step "kubectl scale" $admin scale rs web --replicas=12
eventually has_pods 12
say "ok    the upgrade restarts the daemon and keeps its configuration"

# --- Removal ----------------------------------------------------------------

step "dpkg --remove" inside dpkg --remove $name
! inside pgrep -f "^/usr/bin/$name" >/dev/null || fail "the daemon runs on after its removal"
[ -e "$machine/etc/$name/config.yaml" ] || fail "the removal took the configuration"
[ -z "${JOURNAL:-}" ] || journal --output=short
step "dpkg --purge" inside dpkg --purge $name
! [ -e "$machine/etc/$name/config.yaml" ] || fail "the purge left the configuration"
! [ -e "$machine/usr/lib/systemd/system/$name.service" ] || fail "the purge left the unit"
inside systemctl poweroff --force >/dev/null 2>&1 || true
