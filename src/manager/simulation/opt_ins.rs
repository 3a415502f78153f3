//! What the ReplicaSets of a history opt in to.

use fastrand::Rng;

/// Annotations of a ReplicaSet, without the prefix.
pub(super) type OptIns = &'static [(&'static str, &'static str)];

/// What a ReplicaSet may opt in to.
pub(super) const OPT_INS: [OptIns; 4] = [
    &[],
    &[],
    &[(BACK_OFF, "2s..30s")],
    &[(KEPT, "1"), ("failed-pods-min-age", "1s")],
];

/// True if a daemon whose time of day is far behind takes a Failed pod for too young, for as long.
pub(super) fn need_right_clocks(opt_ins: OptIns) -> bool {
    opt_ins.iter().any(|(name, _)| *name == KEPT)
}

pub(super) const BACK_OFF: &str = "failed-pod-backoff";
pub(super) const KEPT: &str = "failed-pods-kept";
/// A ReplicaSet that opts in to protection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Protection {
    /// `protected-timeout`, in seconds.
    pub(super) timeout: Option<u64>,
}

/// Draws from a generator of its own, so that the rest of a history does not depend on it.
pub(super) fn opt_ins(seed: u64, n_sets: usize) -> Vec<OptIns> {
    let mut rng = Rng::with_seed(seed ^ 0xfa11);
    let opt_ins = |_| rng.choice(OPT_INS).unwrap_or_default();
    (0..n_sets).map(opt_ins).collect()
}

/// Half of the ReplicaSets prefer something. The draw has a generator of its own, too.
pub(super) fn orders(seed: u64, n_sets: usize) -> Vec<&'static str> {
    let mut rng = Rng::with_seed(seed ^ 0x0dde_5ca1);
    let lists = ["spread,consolidate", "consolidate,spread"];
    let mut draw = || match rng.usize(..6) {
        0 => "spread",
        1 => "consolidate",
        2 => lists[rng.usize(..2)],
        _ => "",
    };
    (0..n_sets).map(|_| draw()).collect()
}
