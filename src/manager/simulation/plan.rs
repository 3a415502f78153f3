//! What happens in one history, drawn from its seed before it begins: a value that can be made
//! smaller when it fails.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

use super::faults::KINDS;
use super::opt_ins::{OptIns, Protection, need_right_clocks, opt_ins, orders};
use crate::api::RetryBackoff;

/// The number of a daemon that stands for the leader.
pub(super) const LEADER: usize = usize::MAX;

/// One change of the cluster, or one fault of a process or a server.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    Scale(usize, i64),
    DeletePod(usize),
    FailPod(usize),
    UnreadyPod(usize),
    RelabelPod(usize),
    /// A user marks a pod for scale-downs, or removes its mark.
    MarkPod(usize, Option<&'static str>),
    AddOrphan(usize),
    Recreate(usize, i64),
    DeleteForeground(usize),
    RejectPods(u32),
    TakeNames(u32),
    AddFinalizer(usize),
    Quota(usize, Duration),
    TerminateNamespace(Duration),
    Kill(usize),
    Freeze(usize, Duration, bool),
    Terminate(usize),
    /// The leader is paused for this long, and its successor ends in order shortly before.
    SleepThroughATerm(Duration),
    StepClock(usize, i64),
    /// A daemon reaches no API server for this long.
    Isolate(usize, Duration),
    DeleteLease,
    EmptyLease,
    ServerDown(usize, Duration),
    BothServersDown(Duration),
    CutPods,
    CutReplicaSets,
    CutAll,
    Compact,
    Restore,
    Lag(Duration, Duration),
    CacheLag(usize, Duration, Duration),
}

impl Action {
    /// The kind of fault that this is; `None` for a user's ordinary change.
    pub(super) fn fault(&self) -> Option<&'static str> {
        Some(match self {
            Self::Scale(..) | Self::MarkPod(..) => return None,
            Self::DeletePod(_) => "pod deleted",
            Self::FailPod(_) => "pod failed",
            Self::UnreadyPod(_) => "pod no longer ready",
            Self::RelabelPod(_) => "pod relabelled",
            Self::AddOrphan(_) => "orphan",
            Self::Recreate(..) => "ReplicaSet recreated",
            Self::DeleteForeground(_) => "foreground deletion",
            Self::RejectPods(_) => "kubelet rejects",
            Self::TakeNames(_) => "name taken by a stranger",
            Self::AddFinalizer(_) => "finalizer on a pod",
            Self::Quota(..) => "quota",
            Self::TerminateNamespace(_) => "namespace terminates and returns",
            Self::Kill(_) => "daemon killed",
            Self::Freeze(_, _, false) => "daemon stopped and continued",
            Self::Freeze(_, _, true) => "machine suspended",
            Self::Terminate(_) => "daemon terminated in order",
            Self::SleepThroughATerm(_) => "leader that slept through a term",
            Self::StepClock(..) => "time of day set",
            Self::Isolate(..) => "daemon cut off",
            Self::DeleteLease => "Lease deleted",
            Self::EmptyLease => "Lease emptied",
            Self::ServerDown(..) => "API server restarted",
            Self::BothServersDown(_) => "all API servers down",
            Self::CutPods => "pod watch cut",
            Self::CutReplicaSets => "ReplicaSet watch cut",
            Self::CutAll => "all connections cut",
            Self::Compact => "compaction",
            Self::Restore => "etcd restored",
            Self::Lag(..) => "slow network",
            Self::CacheLag(..) => "watch cache behind",
        })
    }
}

/// Every kind of [`Action::fault`].
pub(super) const FAULTS: [&str; 30] = [
    "leader that slept through a term",
    "pod deleted",
    "pod failed",
    "pod no longer ready",
    "pod relabelled",
    "orphan",
    "ReplicaSet recreated",
    "foreground deletion",
    "kubelet rejects",
    "name taken by a stranger",
    "finalizer on a pod",
    "quota",
    "namespace terminates and returns",
    "daemon killed",
    "daemon stopped and continued",
    "machine suspended",
    "daemon terminated in order",
    "time of day set",
    "daemon cut off",
    "Lease deleted",
    "Lease emptied",
    "API server restarted",
    "all API servers down",
    "pod watch cut",
    "ReplicaSet watch cut",
    "all connections cut",
    "compaction",
    "etcd restored",
    "slow network",
    "watch cache behind",
];

/// One history.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) n_daemons: usize,
    /// A dry run watches them, as one more daemon.
    pub(super) has_dry_run: bool,
    /// `spec.replicas` of each ReplicaSet at first.
    pub(super) replicas: Vec<i64>,
    /// What each ReplicaSet opts in to.
    pub(super) opt_ins: Vec<OptIns>,
    /// `scale-down-order` of each ReplicaSet; empty for none.
    pub(super) orders: Vec<&'static str>,
    /// Which of them opt in to protection.
    pub(super) protection: Vec<Option<Protection>>,
    pub(super) n_workers: u16,
    pub(super) burst_replicas: usize,
    pub(super) qps: f32,
    pub(super) status_update_interval: Duration,
    pub(super) retry_backoff: RetryBackoff,
    /// The daemons have no right to watch quotas.
    pub(super) hides_quotas: bool,
    pub(super) slowness: Option<u32>,
    pub(super) crash_rate: Option<u32>,
    pub(super) fault_kinds: u32,
    pub(super) fault_rate: u32,
    pub(super) actions: Vec<(Duration, Action)>,
    pub(super) length: Duration,
}

/// Shortest and longest time of a history until its faults end, in seconds.
const LENGTH: std::ops::Range<u64> = 540..660;

/// Maximum number of actions.
const ACTIONS_MAX: usize = 90;

impl Plan {
    /// The history of this seed.
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let length = Duration::from_secs(rng.u64(LENGTH));
        let n_daemons = rng.usize(1..=3);
        let n_sets = rng.usize(1..=3);
        let mut plan = Self {
            seed,
            n_daemons,
            has_dry_run: has_dry_run(seed),
            replicas: (0..n_sets).map(|_| rng.i64(0..9)).collect(),
            opt_ins: opt_ins(seed, n_sets),
            orders: orders(seed, n_sets),
            protection: Vec::new(),
            n_workers: rng.u16(1..=4),
            burst_replicas: rng.usize(2..20),
            qps: rng.choice([0.0, 0.0, 20.0]).unwrap_or_default(),
            status_update_interval: Duration::from_millis(500 * rng.u64(0..3)),
            // No draw, so that this changes nothing else.
            retry_backoff: match seed % 8 {
                0 => RetryBackoff::Kcm,
                _ => RetryBackoff::ByReason,
            },
            hides_quotas: seed.is_multiple_of(3),
            slowness: rng.choice([None, Some(400), Some(60)]).unwrap_or_default(),
            crash_rate: rng.choice([None, None, Some(300)]).unwrap_or_default(),
            // Each kind of fault is absent in half of the histories: fewer kinds go deeper.
            fault_kinds: rng.u32(..1 << KINDS.len()),
            fault_rate: rng.choice([0, 10, 40, 120]).unwrap_or_default(),
            actions: Vec::new(),
            length,
        };
        let kinds = rng.u32(..);
        let restores = rng.u32(..4) == 0;
        let factor = pause_factor(seed);
        let mut at = Duration::from_secs(2);
        while at < length && plan.actions.len() < ACTIONS_MAX {
            let action = plan.draw(&mut rng, kinds, restores);
            plan.actions.push((at, action));
            let pause = match rng.u32(..20) {
                0..12 => Duration::from_micros(rng.u64(0..150_000)),
                12..18 => Duration::from_millis(rng.u64(0..8_000)),
                _ => Duration::from_secs(rng.u64(5..120)),
            };
            at += factor * pause;
        }
        if !plan.clocks_are_right() {
            for opt_ins in &mut plan.opt_ins {
                if need_right_clocks(opt_ins) {
                    *opt_ins = &[];
                }
            }
        }
        plan.protect();
        plan
    }

    /// True if the daemon of this number is a dry run.
    pub(super) fn is_dry_run(&self, number: usize) -> bool {
        self.has_dry_run && number == self.n_daemons
    }

    /// True unless a daemon's time of day is wrong at some time.
    pub(super) fn clocks_are_right(&self) -> bool {
        let steps = |action: &Action| matches!(action, Action::StepClock(..));
        !self.actions.iter().any(|(_, action)| steps(action))
    }

    /// Some ReplicaSets opt in to protection, and users annotate pods, mostly during a scale-down.
    /// Drawn apart, so that the rest of a history does not depend on it.
    fn protect(&mut self) {
        let mut rng = Rng::with_seed(!self.seed);
        // A timeout is a matter of the time of day.
        let has_steps = !self.clocks_are_right();
        for _ in &self.replicas {
            self.protection.push(match rng.u32(..6) {
                0 | 1 => Some(Protection { timeout: None }),
                2 if !has_steps => Some(Protection {
                    timeout: Some(rng.u64(0..90)),
                }),
                _ => None,
            });
        }
        if self.protection.iter().all(Option::is_none) {
            return;
        }
        let is_scale =
            |(at, action): &(Duration, Action)| matches!(action, Action::Scale(..)).then_some(*at);
        let scales: Vec<Duration> = self.actions.iter().filter_map(is_scale).collect();
        for scale in scales {
            for _ in 0..rng.u32(..5) {
                let apart = Duration::from_micros(rng.u64(0..40_000));
                let at = if rng.bool() {
                    scale + apart
                } else {
                    scale.saturating_sub(apart)
                };
                let marks = [Some("never"), Some("never"), Some("first"), None];
                let mark = rng.choice(marks).unwrap_or_default();
                self.actions
                    .push((at, Action::MarkPod(rng.usize(..64), mark)));
            }
        }
        self.actions.sort_by_key(|(at, _)| *at);
    }

    fn draw(&self, rng: &mut Rng, kinds: u32, restores: bool) -> Action {
        let (set, pod) = (rng.usize(..self.replicas.len()), rng.usize(..64));
        let any = rng.usize(..self.n_daemons);
        let daemon = if rng.u32(..3) == 0 { any } else { LEADER };
        let short = Duration::from_millis(rng.u64(20..3_000));
        let long = Duration::from_millis(rng.u64(1_000..40_000));
        // Numbers without an arm scale.
        let action = match rng.u32(..42) {
            8 => Action::Isolate(daemon, long),
            9 => Action::DeleteForeground(set),
            10 | 11 => Action::DeletePod(pod),
            12 => Action::FailPod(pod),
            13 => Action::UnreadyPod(pod),
            14 => Action::RelabelPod(pod),
            15 => Action::AddOrphan(set),
            16 => Action::Recreate(set, rng.i64(0..8)),
            17 => Action::RejectPods(rng.u32(1..5)),
            18 => Action::TakeNames(rng.u32(1..4)),
            19 => Action::AddFinalizer(pod),
            20 => Action::Quota(rng.usize(0..12), long),
            21 => Action::TerminateNamespace(short),
            22 | 23 => Action::Kill(daemon),
            24 | 25 => Action::Freeze(daemon, long, rng.u32(..4) == 0),
            26 => Action::Terminate(daemon),
            27 => Action::StepClock(daemon, rng.i64(-7_200..7_200)),
            28 => Action::DeleteLease,
            29 => Action::EmptyLease,
            30 => Action::ServerDown(pod % 2, long),
            31 => Action::BothServersDown(short),
            32 => Action::CutPods,
            33 => Action::CutReplicaSets,
            34 => Action::CutAll,
            35 => Action::Compact,
            36 | 37 | 41 if restores => Action::Restore,
            38 => Action::Lag(Duration::from_millis(rng.u64(20..800)), long),
            39 => Action::CacheLag(pod % 2, Duration::from_millis(rng.u64(50..4_000)), long),
            40 => Action::SleepThroughATerm(Duration::from_millis(rng.u64(16_000..26_000))),
            _ => return scale(set, rng),
        };
        // Half of the kinds are absent, as with the faults of requests.
        let kind = action.fault();
        let bit = FAULTS.iter().position(|fault| Some(*fault) == kind);
        if bit.is_some_and(|bit| kinds & (1 << bit) == 0) {
            return scale(set, rng);
        }
        action
    }
}

impl Plan {
    /// The opt-in annotations of a ReplicaSet, without the prefix.
    pub(super) fn opt_ins_of(&self, set: usize) -> Vec<(&'static str, String)> {
        let opt_ins = self.opt_ins[set].iter().copied();
        let order = Some(self.orders[set]).filter(|order| !order.is_empty());
        let opt_ins = opt_ins.chain(order.map(|order| ("scale-down-order", order)));
        let mut all: Vec<_> = opt_ins
            .map(|(name, value)| (name, value.to_owned()))
            .collect();
        if let Some(protection) = self.protection[set] {
            all.push(("scale-down-protection", "on".to_owned()));
            let timeout = protection.timeout;
            all.extend(timeout.map(|timeout| ("protected-timeout", format!("{timeout}s"))));
        }
        all
    }
}

/// To zero in a third of the cases: such a ReplicaSet is cached without its template, like an old
/// revision of a Deployment, which a roll-back scales up again.
fn scale(set: usize, rng: &mut Rng) -> Action {
    Action::Scale(set, rng.i64(-4..10).max(0))
}

/// The factor of the pauses between actions. In dense histories one fault meets another; in sparse
/// ones, what a fault leaves behind has time to end. The draw has a generator of its own.
fn pause_factor(seed: u64) -> u32 {
    let factors = [1, 1, 2, 3];
    Rng::with_seed(seed ^ 0x9a_ce00)
        .choice(factors)
        .unwrap_or(1)
}

/// A quarter of the histories have one. The draw has a generator of its own, too.
fn has_dry_run(seed: u64) -> bool {
    Rng::with_seed(seed ^ 0x00d7_2a17).u32(..4) == 0
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {} daemons (dry run: {}) with {} workers, {:?} replicas, {:?} {:?} {:?}, \
             burst {}, {} requests a second, status every {:?}, back-off {}, quotas hidden {}, \
             slowness {:?}, crashes {:?}, {}/1000 requests fail:",
            self.seed,
            self.n_daemons,
            self.has_dry_run,
            self.n_workers,
            self.replicas,
            self.opt_ins,
            self.orders,
            self.protection,
            self.burst_replicas,
            self.qps,
            self.status_update_interval,
            self.retry_backoff,
            self.hides_quotas,
            self.slowness,
            self.crash_rate,
            self.fault_rate
        )?;
        for (bit, kind) in KINDS.iter().enumerate() {
            if self.fault_rate > 0 && self.fault_kinds & (1 << bit) != 0 {
                writeln!(f, "  {kind}")?;
            }
        }
        for (at, action) in &self.actions {
            writeln!(f, "  {:9.4} {action:?}", at.as_secs_f64())?;
        }
        Ok(())
    }
}
