//! The faults of a round. Each drives its daemons through several changes of the scene, and leaves
//! daemons behind that bring it to rest.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::judge::Terms;
use super::site::Daemon;
use super::stage::{Scene, Stage};
use crate::support::KubeControllerManager;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// kill -9, again and again.
    Kills,
    /// SIGSTOP and SIGCONT of one of two daemons, SIGTERM of the other, a held watch.
    Stops,
    /// A connection that is cut, slow, reordered or held.
    Network,
    /// Two API servers on one etcd, of which one lags.
    TwoServers,
    /// kill -9 of API server, etcd or both.
    Servers,
    /// etcd returns to an earlier state. The daemon ends, or is killed if no list shows it.
    Restore,
    /// kube-controller-manager takes turns by a shared lease; either is killed or terminated.
    Successor,
    /// kube-controller-manager writes at the same time.
    SecondWriter,
}

impl Fault {
    pub(super) const ALL: [Self; 8] = [
        Self::Kills,
        Self::Stops,
        Self::Network,
        Self::TwoServers,
        Self::Servers,
        Self::Restore,
        Self::Successor,
        Self::SecondWriter,
    ];

    /// How often a fault is drawn.
    fn weight(self) -> usize {
        match self {
            Self::Kills => 10,
            Self::Stops | Self::Network => 3,
            Self::TwoServers | Self::Servers => 2,
            Self::Restore | Self::Successor | Self::SecondWriter => 1,
        }
    }

    pub(super) fn draw(rng: &mut fastrand::Rng) -> Self {
        let sum = Self::ALL.map(Self::weight).iter().sum();
        let mut at = rng.usize(0..sum);
        for fault in Self::ALL {
            if at < fault.weight() {
                return fault;
            }
            at -= fault.weight();
        }
        Self::Kills
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kills => "kills",
            Self::Stops => "stops",
            Self::Network => "network",
            Self::TwoServers => "two servers",
            Self::Servers => "servers",
            Self::Restore => "restore",
            Self::Successor => "successor",
            Self::SecondWriter => "second writer",
        }
    }

    /// Whether it meets other rounds too.
    pub(super) fn is_shared(self) -> bool {
        matches!(
            self,
            Self::Servers | Self::Restore | Self::Successor | Self::SecondWriter
        )
    }
}

/// How a fault has left the round.
pub(super) struct Left {
    pub(super) unrest: Vec<String>,
    pub(super) daemons: Vec<Daemon>,
    pub(super) n_kills: usize,
    pub(super) terms: Terms,
}

/// Short, but a leader does not lose its lease on a busy machine.
const TIMES: [&str; 4] = [
    "--leader-elect=true",
    "--leader-elect-lease-duration=15s",
    "--leader-elect-renew-deadline=10s",
    "--leader-elect-retry-period=500ms",
];

/// Longer than any round.
const ALWAYS: Duration = Duration::from_hours(1);

/// How late a watch may be on a busy machine.
const LAG: Duration = Duration::from_secs(2);

pub(super) fn run(fault: Fault, stage: &mut Stage) -> Left {
    match fault {
        Fault::Kills => kills(stage),
        Fault::Stops => stops(stage),
        Fault::Network => network(stage),
        Fault::TwoServers => two_servers(stage),
        Fault::Servers => servers(stage),
        Fault::Restore => restore(stage),
        Fault::Successor => successor(stage),
        Fault::SecondWriter => second_writer(stage),
    }
}

fn own_namespace(stage: &Stage) -> Vec<String> {
    vec![format!("--namespace={}", stage.api.namespace())]
}

/// Starts a daemon and, if the scene begins with pods, waits for them.
fn prepare(stage: &mut Stage, daemons: &mut [Daemon]) {
    stage.begin();
    for daemon in daemons.iter_mut() {
        daemon.start();
    }
    if stage.scene != Scene::ScaleUp {
        stage.rest(&mut |_| {});
    }
}

fn kills(stage: &mut Stage) -> Left {
    let mut daemons = [Daemon::direct(
        stage.site,
        stage.rng.usize(0..2),
        &own_namespace(stage),
    )];
    prepare(stage, &mut daemons);
    let n_kills = stage.rng.usize(10..25);
    for _ in 0..n_kills {
        daemons[0].start();
        if stage.rng.u8(0..3) > 0 {
            stage.change();
        }
        stage.pause(5..350);
        daemons[0].kill();
        stage.note("kill -9");
        stage.run_pods(false);
    }
    daemons[0].start();
    stage.note("calm");
    let unrest = stage.rest(&mut |_| {});
    let n_starts = daemons[0].n_starts;
    Left {
        unrest,
        daemons: daemons.into(),
        n_kills,
        terms: Terms {
            lag: LAG,
            is_alone: true,
            has_lease: false,
            n_lists_max: n_starts,
            n_starts,
        },
    }
}

/// Starts daemons that have exited, as a supervisor would: a leader that lost its lease exits.
fn supervise(daemons: &mut [Daemon]) {
    for daemon in daemons {
        daemon.start();
    }
}

fn stops(stage: &mut Stage) -> Left {
    let mut arguments = own_namespace(stage);
    arguments.extend(TIMES.map(str::to_owned));
    let stop = stage.stop.clone();
    let mut daemons = [0, 1].map(|number| Daemon::relayed(stage.site, number, &arguments, &stop));
    prepare(stage, &mut daemons);
    for _ in 0..stage.rng.usize(2..5) {
        supervise(&mut daemons);
        let first = stage.rng.usize(0..2);
        if stage.rng.bool() {
            let watching = stage.rng.usize(0..2);
            hold_one(stage, &daemons[watching]);
        }
        stage.change();
        signal(&daemons[first], Signal::SIGSTOP);
        stage.note(&format!("SIGSTOP of daemon {first}"));
        stage.pause(0..3000);
        stage.change();
        if stage.rng.bool() {
            signal(&daemons[1 - first], Signal::SIGTERM);
            stage.note("SIGTERM of the other");
        }
        // Either side of the lease's duration.
        stage.pause(0..9000);
        signal(&daemons[first], Signal::SIGCONT);
        stage.note("SIGCONT");
        stage.change();
        stage.run_pods(false);
        stage.pause(0..1500);
        release(stage, &daemons);
    }
    calm(stage, daemons.into(), true)
}

fn signal(daemon: &Daemon, signal: Signal) {
    if let Some(process) = &daemon.process {
        // It may have exited by itself; it is not reaped, so its id is still its own.
        process.signal(signal);
    }
}

fn hold_one(stage: &mut Stage, daemon: &Daemon) {
    let Some(relay) = &daemon.relay else { return };
    let n_connections = relay.received().len();
    if n_connections > 0 {
        let connection = stage.rng.usize(0..n_connections);
        relay.hold(connection);
        stage.note(&format!("what comes on connection {connection} is held"));
    }
}

fn release(stage: &mut Stage, daemons: &[Daemon]) {
    for relay in daemons.iter().filter_map(|daemon| daemon.relay.as_ref()) {
        relay.release();
    }
    stage.note("held bytes are released");
}

fn network(stage: &mut Stage) -> Left {
    let stop = stage.stop.clone();
    let arguments = own_namespace(stage);
    let mut daemons = [Daemon::relayed(stage.site, 0, &arguments, &stop)];
    prepare(stage, &mut daemons);
    for _ in 0..stage.rng.usize(4..8) {
        let relay = daemons[0].relay.clone().expect("it has one");
        stage.change();
        stage.pause(0..200);
        match stage.rng.u8(0..3) {
            0 => {
                relay.cut();
                stage.note("cut");
                stage.change();
                stage.pause(0..3000);
                relay.restore();
                stage.note("restored");
            }
            1 => {
                let delay = stage.rng.u64(2..120);
                relay.slow(delay);
                stage.note(&format!("slow and reordered, up to {delay} ms"));
                stage.change();
                stage.pause(500..3000);
                relay.slow(0);
            }
            _ => {
                hold_one(stage, &daemons[0]);
                stage.change();
                stage.pause(500..3000);
                release(stage, &daemons);
            }
        }
        stage.run_pods(false);
    }
    calm(stage, daemons.into(), false)
}

fn two_servers(stage: &mut Stage) -> Left {
    let name = stage.api.namespace().to_owned();
    let second = stage.site.start_second(&name);
    let stop = stage.stop.clone();
    let mut daemons = [Daemon::between(
        stage.site,
        second,
        &own_namespace(stage),
        &stop,
    )];
    prepare(stage, &mut daemons);
    for _ in 0..stage.rng.usize(4..8) {
        let relay = daemons[0].relay.clone().expect("it has one");
        let lag = stage.rng.u64(0..800);
        relay.slow(lag);
        if stage.rng.bool() {
            // Its new connections may go to the other server than before.
            relay.restore();
            stage.note("connections are broken");
        }
        stage.note(&format!("one API server lags up to {lag} ms"));
        if stage.rng.bool() {
            stage.site.signal_server(&name, Signal::SIGSTOP);
            stage.change();
            stage.pause(0..1500);
            stage.site.signal_server(&name, Signal::SIGCONT);
            // Its watch cache is older than what the daemon has read from the other one.
            relay.restore();
            stage.note("one API server stood still, connections are broken");
        }
        stage.change();
        stage.pause(0..500);
        stage.change();
        stage.run_pods(false);
        stage.pause(0..1500);
    }
    let mut left = calm(stage, daemons.into(), false);
    if left.terms.n_starts > 1 {
        let found = "the daemon took a server that lags for a restored one, or died";
        left.unrest.push(found.to_owned());
    }
    left
}

/// The last calm, after which everything must become stable.
fn calm(stage: &mut Stage, mut daemons: Vec<Daemon>, has_lease: bool) -> Left {
    stage.note("calm");
    let unrest = stage.rest(&mut |_| supervise(&mut daemons));
    let n_starts = daemons.iter().map(|daemon| daemon.n_starts).sum();
    Left {
        unrest,
        daemons,
        n_kills: 0,
        terms: Terms {
            lag: ALWAYS,
            is_alone: true,
            has_lease,
            n_lists_max: usize::MAX,
            n_starts,
        },
    }
}

fn servers(stage: &mut Stage) -> Left {
    let mut daemons = [Daemon::direct(stage.site, 0, &own_namespace(stage))];
    prepare(stage, &mut daemons);
    let mut n_kills = 0;
    for _ in 0..stage.rng.usize(2..4) {
        stage.change();
        stage.pause(0..250);
        let servers: &[&str] = match stage.rng.u8(0..3) {
            0 => &["kube-apiserver"],
            1 => &["etcd"],
            _ => &["kube-apiserver", "etcd"],
        };
        for server in servers {
            stage.site.kill_server(server);
            n_kills += 1;
        }
        stage.note(&format!("kill -9 of {servers:?}"));
        stage.pause(0..2000);
        for server in servers.iter().rev() {
            stage.site.start_server(server);
        }
        stage.site.wait_until_ready();
        stage.note("ready again");
    }
    let mut left = calm(stage, daemons.into(), false);
    left.n_kills = n_kills;
    left.terms.n_lists_max = 1 + n_kills;
    left
}

/// How long a daemon may take to see that etcd went back, if its next list shows that.
const SEES_WITHIN: Duration = Duration::from_secs(20);

fn restore(stage: &mut Stage) -> Left {
    // While the API server is down the relay closes connections, after which the daemon lists.
    let stop = stage.stop.clone();
    let arguments = own_namespace(stage);
    let mut daemons = [Daemon::relayed(stage.site, 0, &arguments, &stop)];
    prepare(stage, &mut daemons);
    stage.change();
    stage.pause(0..500);
    stage.site.save_etcd();
    stage.note("etcd is saved");
    for _ in 0..stage.rng.usize(1..4) {
        stage.change();
        stage.pause(0..800);
        stage.run_pods(false);
    }
    stage.site.restore_etcd();
    stage.note("etcd is restored");
    for _ in 0..stage.rng.usize(1..4) {
        stage.pause(0..1500);
        stage.change();
    }
    let has_ended = ends_after_restore(stage, &mut daemons[0]);
    if !has_ended {
        // etcd may have passed the daemon's versions again, so that no list shows it.
        daemons[0].kill();
        stage.note("kill -9");
    }
    let mut left = calm(stage, daemons.into(), false);
    left.n_kills = usize::from(!has_ended);
    // Versions were issued twice, so they give no order.
    left.terms.is_alone = false;
    left
}

/// Waits until the daemon ends because of a restore; false if it does not see it.
fn ends_after_restore(stage: &mut Stage, daemon: &mut Daemon) -> bool {
    let deadline = Instant::now() + SEES_WITHIN;
    loop {
        let process = daemon.process.as_mut().expect("it was started");
        if let Some(status) = process.try_wait() {
            let log = daemon.log();
            assert_eq!(status.code(), Some(1), "{log}");
            assert!(log.contains("went back from"), "{log}");
            stage.note("the daemon has ended with code 1");
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        stage.pause(50..60);
    }
}

/// The flags with which kube-controller-manager takes turns.
const THEIRS: [&str; 2] = [
    "--controllers=replicaset-controller",
    "--leader-elect-resource-name=replicaset-controller-shared",
];

fn successor(stage: &mut Stage) -> Left {
    let site = stage.site;
    let mut arguments: Vec<String> = TIMES.map(str::to_owned).into();
    arguments.push(THEIRS[1].to_owned());
    let mut daemons = vec![Daemon::direct(site, 0, &arguments)];
    let theirs = [&TIMES[..], &THEIRS].concat();
    let start = |number| KubeControllerManager::start(&site.plane, number, &theirs);
    let mut manager = Some(start(1));
    prepare(stage, &mut daemons);
    for n in 0..stage.rng.usize(2..4) {
        supervise(&mut daemons);
        stage.change();
        stage.pause(0..1500);
        match stage.rng.u8(0..4) {
            0 => {
                daemons[0].kill();
                stage.note("kill -9 of the daemon");
            }
            1 => {
                signal(&daemons[0], Signal::SIGTERM);
                stage.note("SIGTERM of the daemon");
            }
            2 => {
                drop(manager.take());
                stage.note("kill -9 of kube-controller-manager");
            }
            _ => {
                if let Some(mut manager) = manager.take() {
                    manager.signal(Signal::SIGTERM);
                }
                stage.note("SIGTERM of kube-controller-manager");
            }
        }
        stage.change();
        stage.pause(0..9000);
        // It exits when it loses the lease, and when its start finds no leader for long.
        if manager.is_none() {
            manager = Some(start(n + 2));
        }
        stage.run_pods(false);
    }
    // It writes what this round no longer judges.
    drop(manager);
    stage.note("kube-controller-manager ends");
    calm(stage, daemons, true)
}

fn second_writer(stage: &mut Stage) -> Left {
    let site = stage.site;
    let mut daemons = [Daemon::direct(site, 0, &own_namespace(stage))];
    let flags = [
        "--controllers=replicaset-controller",
        "--leader-elect=false",
    ];
    let manager = KubeControllerManager::start(&site.plane, 1, &flags);
    prepare(stage, &mut daemons);
    for _ in 0..stage.rng.usize(4..8) {
        stage.change();
        stage.pause(0..800);
        stage.run_pods(false);
    }
    drop(manager);
    stage.note("kube-controller-manager ends");
    let mut left = calm(stage, daemons.into(), false);
    left.terms.is_alone = false;
    left
}

/// PROPERTY P32: SIGTERM ends every daemon with exit code 0, and no thread has panicked.
pub(super) fn end(stage: &mut Stage, daemons: &mut [Daemon]) -> Vec<String> {
    let mut wrong = Vec::new();
    for daemon in daemons {
        // Before it handles signals, SIGTERM kills a process.
        let waiting = &stage.site.waiting;
        waiting.eventually("the daemon runs", || {
            daemon.log().contains(" pods listed in ")
        });
        signal(daemon, Signal::SIGTERM);
        let Some(process) = &mut daemon.process else {
            continue;
        };
        let code = process.exit().code();
        if code != Some(0) {
            wrong.push(format!("SIGTERM ended a daemon with {code:?}"));
        }
        if daemon.log().contains("panicked") {
            wrong.push("a thread of a daemon panicked".to_owned());
        }
    }
    stage.note("SIGTERM");
    wrong
}

/// The last lines of the daemons' logs.
pub(super) fn logs(daemons: &[Daemon], n_lines: usize) -> String {
    let mut last = String::new();
    for log in daemons.iter().map(Daemon::log) {
        let lines: Vec<&str> = log.lines().collect();
        last += &lines[lines.len().saturating_sub(n_lines)..].join("\n");
        last.push('\n');
    }
    last
}
