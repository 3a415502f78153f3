//! `--dry-run`: the controller decides, but writes nothing. It logs each decision once, and again
//! only when there is more to do, and counts these records.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::api::{ObjectKey, Pod, ReplicaSet, Uid};
use crate::controller::decide::plan::Plan;
use crate::controller::decide::{Pods, Step};
use crate::controller::{Mode, ReplicaSetController};

/// Maximum pods that a log record names.
const NAMED_MAX: usize = 5;

/// What the last sync of each ReplicaSet would do. No thread logs under its lock.
#[derive(Debug, Default)]
pub struct DryRun(Mutex<HashMap<ObjectKey, Work>>);

#[derive(Debug)]
struct Work {
    owner: Uid,
    generation: i64,
    /// The log's text after "would". Its first word is the label's value in the metric.
    text: String,
    /// The pods to create or delete, by this sync and by the next ones.
    n_pods: usize,
    changed: HashSet<Uid>,
}

impl DryRun {
    /// Records what a sync of `key` would do. Returns the text to log if it is new.
    fn decided(&self, key: &ObjectKey, work: Option<Work>) -> Option<String> {
        let mut open = self.0.lock();
        let (before, work) = (open.remove(key), work?);
        let is_new = before.is_none_or(|before| work.exceeds(&before));
        let work = open.entry(key.clone()).insert_entry(work).into_mut();
        is_new.then(|| work.text.clone())
    }

    pub fn n_open(&self) -> usize {
        self.0.lock().len()
    }
}

impl Work {
    fn of(rs: &ReplicaSet, decision: &Step) -> Option<Self> {
        let (has, replicas, delete) = (decision.active.len(), rs.replicas, &decision.delete);
        let wanted = usize::try_from(replicas).unwrap_or(0);
        let n_pods = match decision.plan {
            Plan::Create(_) => wanted - has - decision.effects.n_backed_off(),
            Plan::Delete(_) => has - wanted - decision.effects.n_kept(),
            Plan::Nothing => 0,
        };
        let pods = if n_pods == 1 { "pod" } else { "pods" };
        let mut texts = match decision.plan {
            Plan::Create(_) => vec![format!("create {n_pods} {pods}: {has} of {replicas}")],
            Plan::Delete(_) => vec![format!(
                "delete {n_pods} {pods}: {has}, not {replicas}: {}",
                names(delete)
            )],
            Plan::Nothing => Vec::new(),
        };
        let mut changed: HashSet<Uid> = delete.iter().map(|pod| pod.uid.clone()).collect();
        for (verb, pods) in [
            ("adopt", &decision.adopt[..]),
            ("release", &decision.release),
            ("discard Failed", decision.effects.extra_deletes()),
        ] {
            texts.extend((!pods.is_empty()).then(|| format!("{verb} {}", names(pods))));
            changed.extend(pods.iter().map(|pod| pod.uid.clone()));
        }
        (!texts.is_empty()).then(|| Self {
            owner: rs.uid.clone(),
            generation: rs.generation,
            text: texts.join(", and "),
            n_pods,
            changed,
        })
    }

    /// True if there is more to do than `before`. If there is less, another writer has done a part.
    fn exceeds(&self, before: &Self) -> bool {
        let verb = first_word(&self.text);
        // If the burst leaves deletes to later syncs, each deletion by another writer changes which
        // pods this sync would choose.
        let is_whole = verb != "delete" || self.n_pods <= self.changed.len();
        self.owner != before.owner
            || self.generation != before.generation
            || verb != first_word(&before.text)
            || self.n_pods > before.n_pods
            || is_whole && !self.changed.is_subset(&before.changed)
    }
}

impl ReplicaSetController {
    #[must_use]
    pub fn only_deciding(mut self, dry_run: Arc<DryRun>) -> Self {
        self.mode = Mode::DryRun(dry_run);
        self
    }

    /// Decides for the ReplicaSet `key`, and logs what is new. Sends no request.
    pub(super) fn dry_run(&self, key: &ObjectKey, dry_run: &DryRun) {
        let Some(rs) = self.cache.replica_sets.get(key) else {
            self.memories.forget(key, None);
            dry_run.decided(key, None);
            return;
        };
        let Ok(selector) = &rs.selector else {
            dry_run.decided(key, None);
            return self.log_unusable_selector(&rs);
        };
        self.log_mistakes(&rs);
        let [owned, orphans] = self.cache.pods_for(&self.owner_key(&rs), &key.namespace);
        let pods = Pods::Listed { owned, orphans };
        let decision = self.view_of(&rs, selector, pods).decide();
        self.note_backed_off(&rs, &decision);
        self.requeue(key, decision.next(&rs, self.clock.now()));
        if let Some(text) = dry_run.decided(key, Work::of(&rs, &decision)) {
            let decisions = &self.metrics.dry_run_decisions;
            decisions.with_label_values(&[first_word(&text)]).inc();
            log::info!(object:% = self.kind.named(key); "would {text}");
        }
    }
}

fn first_word(text: &str) -> &str {
    text.split(' ').next().unwrap_or_default()
}

fn names(pods: &[Arc<Pod>]) -> String {
    let mut names: Vec<&str> = pods.iter().map(|pod| &*pod.key.name).collect();
    names.sort_unstable();
    let n_more = names.len().saturating_sub(NAMED_MAX);
    names.truncate(NAMED_MAX);
    match n_more {
        0 => names.join(" "),
        _ => format!("{} and {n_more} more", names.join(" ")),
    }
}

#[cfg(test)]
mod tests;
