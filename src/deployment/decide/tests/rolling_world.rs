//! Rollouts in a random world: pods become available or fail, and a status lags behind scale-downs.
//! Whatever happens, the controller itself never asks for too many pods, and never takes away an
//! available one that is needed.

use proptest::prelude::*;

use super::{deployment, replica_set, size, status, view};
use crate::decide::{Write, decide};
use crate::fenceposts::Fenceposts;
use crate::objects::{Deployment, ReplicaSet};

/// What happens between two syncs.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A pod of the ReplicaSet at this index becomes available.
    Ready(usize),
    /// A pod becomes unavailable.
    Fail(usize),
    /// The status of the ReplicaSet shows the effect of scale-downs, too.
    Report(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0_usize..3).prop_map(Event::Ready),
        1 => (0_usize..3).prop_map(Event::Fail),
        4 => (0_usize..3).prop_map(Event::Report),
    ];
    prop::collection::vec(event, 0..120)
}

/// A ReplicaSet, and how many of its pods are available in truth.
#[derive(Clone, Debug)]
struct Truth {
    rs: ReplicaSet,
    available: i32,
}

impl Truth {
    /// The ReplicaSet controller deletes pods that are not available first.
    fn resize(&mut self, replicas: i32) {
        self.rs.replicas = replicas;
        self.available = self.available.min(replicas);
    }

    /// What a pod does is reported at once.
    fn change(&mut self, by: i32) {
        self.available += by;
        let reported = self.rs.status.available_replicas.get_or_insert_default();
        *reported += by;
    }

    fn report(&mut self) {
        self.rs.status.replicas = self.rs.replicas;
        self.rs.status.available_replicas = Some(self.available);
        self.rs.status.ready_replicas = Some(self.available);
    }
}

fn total(world: &[Truth], of: fn(&Truth) -> i32) -> i32 {
    world.iter().map(of).sum()
}

/// Decides once and applies the writes. Returns whether there were any to ReplicaSets.
fn sync(d: &mut Deployment, world: &mut Vec<Truth>) -> bool {
    let sets: Vec<ReplicaSet> = world.iter().map(|it| it.rs.clone()).collect();
    let step = decide(view(d, &sets)).expect("a known strategy");
    for write in &step.writes {
        if let Write::Create { rs, .. } = write {
            let mut rs = ReplicaSet::clone(rs);
            rs.uid = "new".into();
            world.push(Truth { rs, available: 0 });
        }
        if let Write::Update { rs, replicas, .. } = write {
            let changed = world.iter_mut().filter(|it| it.rs.uid == rs.uid);
            changed.for_each(|it| it.resize(*replicas));
        }
    }
    if let Some(status) = status(&step) {
        d.status = status.clone();
    }
    step.writes.iter().any(|write| size(write).is_some())
}

proptest! {
    #[test]
    fn a_rollout_keeps_its_limits_and_ends(
        replicas in 1_i32..12,
        surge in 0_i32..4,
        missing in 0_i32..4,
        old in (0_i32..8, 0_i32..8),
        events in events(),
    ) {
        let mut d = deployment(&[&move |it| {
            it["spec"]["replicas"] = replicas.into();
            it["spec"]["strategy"]["rollingUpdate"] =
                serde_json::json!({"maxSurge": surge, "maxUnavailable": missing});
        }]);
        let limits = Fenceposts::of(&d);
        let (max_total, min_available) =
            (replicas + limits.max_surge, replicas - limits.max_unavailable);
        // Of the old revisions, together as many pods as there may be.
        let first = old.0.min(max_total);
        let second = old.1.min(max_total - first);
        let sets = [replica_set(1, first, first), replica_set(2, second, second)];
        let mut world = sets.map(|rs| Truth { available: rs.replicas, rs }).to_vec();

        let check = |d: &mut Deployment, world: &mut Vec<Truth>| {
            let before = (total(world, |it| it.rs.replicas), total(world, |it| it.available));
            let changed = sync(d, world);
            let after = (total(world, |it| it.rs.replicas), total(world, |it| it.available));
            prop_assert!(after.0 <= max_total.max(before.0), "{after:?} pods of {max_total}");
            prop_assert!(
                after.1 >= min_available.min(before.1),
                "{before:?} to {after:?} available, at least {min_available}: {world:?}"
            );
            Ok(changed)
        };
        for event in events {
            check(&mut d, &mut world)?;
            let (Event::Ready(index) | Event::Fail(index) | Event::Report(index)) = event;
            let Some(truth) = world.get_mut(index) else { continue };
            match event {
                Event::Ready(_) if truth.available < truth.rs.replicas => truth.change(1),
                Event::Fail(_) if truth.available > 0 => truth.change(-1),
                Event::Ready(_) | Event::Fail(_) => {}
                Event::Report(_) => truth.report(),
            }
        }
        // From now on every pod becomes available, so the rollout ends.
        for _ in 0..100 {
            for truth in &mut world {
                truth.available = truth.rs.replicas;
                truth.report();
            }
            check(&mut d, &mut world)?;
        }
        let sizes: Vec<i32> = world.iter().map(|it| it.rs.replicas).collect();
        prop_assert_eq!(sizes, [0, 0, replicas]);
    }
}
