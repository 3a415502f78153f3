//! What to do about one Deployment. Pure: [`decide`] takes the Deployment, its ReplicaSets and the
//! time, and returns the writes in their order, the status and when to sync again.
//!
//! Each sync decides once. A change to a ReplicaSet is one write, however many rules ask for it,
//! and so is the status. An update or a delete names the resource version that it rests
//! on; the name of a new ReplicaSet follows from its template.

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DeploymentStatus;
use serde_json::{Value, json};

use crate::api::Uid;
use crate::event_recorder::EventType;
use crate::fenceposts::{Fenceposts, max_replicas, proportional_sizes, total};
use crate::objects::{Annotations, Deployment, ReplicaSet, Strategy, Template};
use crate::revisions::{
    REVISION, ROLLBACK_TO, changes, desired_replicas_of, max_revision, new_replica_set,
    previous_revision, revision_of, rollback_to, rolled_back, set_replicas, set_revision,
    template_hash, to_object,
};
use crate::status::{
    Counted, PROGRESSING, calculate, condition, copy_failure, is_complete, is_of_another,
    judge_progress, new_condition, progress_reason, reason, recheck_after, set_condition,
};

#[derive(Clone, Debug)]
pub struct View<'a> {
    pub deployment: &'a Deployment,
    /// The ReplicaSets that it owns, in any order.
    pub replica_sets: Vec<Arc<ReplicaSet>>,
    /// The UIDs of the ReplicaSets with a pod that is neither Succeeded nor Failed. Only the
    /// strategy `Recreate` reads them.
    pub with_pods: BTreeSet<Uid>,
    pub counts_terminating: bool,
    pub now: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// The writes, in their order. The first that fails ends the sync.
    pub writes: Vec<Write>,
    /// Events that the sync records whether or not it writes anything.
    pub events: Vec<Note>,
    /// When to decide again even if nothing changes.
    pub next: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Creates the ReplicaSet of a new revision.
    Create {
        /// The ReplicaSet that `object` becomes.
        rs: Arc<ReplicaSet>,
        object: Value,
    },
    Update {
        /// The ReplicaSet as it is now.
        rs: Arc<ReplicaSet>,
        /// The new `spec.replicas`.
        replicas: i32,
        patch: Value,
    },
    /// Deletes a ReplicaSet of an old revision.
    Delete(Arc<ReplicaSet>),
    /// Replaces the annotations of the Deployment, and its template if there is one.
    RollBack {
        /// The template of the revision; `None` if no ReplicaSet has the revision, or if the
        /// Deployment has this template already.
        template: Option<Template>,
        annotations: Annotations,
        /// The event that the sync records after the write.
        note: Note,
    },
    Status {
        status: DeploymentStatus,
        annotations: Annotations,
    },
}

/// The write as a dry run logs it and `explain` shows it; empty for a status.
impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { rs, .. } => {
                // Without the name: kube-controller-manager would choose another hash.
                let plural = if rs.replicas == 1 { "" } else { "s" };
                write!(
                    f,
                    "create a replicaset with {} replica{plural}",
                    rs.replicas
                )
            }
            Self::Update { rs, replicas, .. } if rs.replicas == *replicas => {
                write!(f, "update replicaset {}", rs.key.name)
            }
            Self::Update { rs, replicas, .. } => {
                let (name, before) = (&rs.key.name, rs.replicas);
                write!(f, "scale replicaset {name} from {before} to {replicas}")
            }
            Self::Delete(rs) => write!(f, "delete replicaset {}", rs.key.name),
            Self::RollBack { note, .. } => write!(f, "end a rollback: {}", note.message),
            Self::Status { .. } => Ok(()),
        }
    }
}

/// The ReplicaSets that a Deployment keeps, releases or adopts because of its selector.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    pub kept: Vec<Arc<ReplicaSet>>,
    /// Owned ReplicaSets that the selector does not match.
    pub released: Vec<Arc<ReplicaSet>>,
    /// Orphans that the selector matches.
    pub adopted: Vec<Arc<ReplicaSet>>,
}

impl Claims {
    /// Sorts the ReplicaSets that the Deployment owns, and the `orphans` of its namespace. A
    /// terminating Deployment claims nothing; one with an empty selector keeps what it owns.
    pub fn of(
        d: &Deployment,
        owned: Vec<Arc<ReplicaSet>>,
        mut orphans: Vec<Arc<ReplicaSet>>,
    ) -> Self {
        let is_selected = |rs: &Arc<ReplicaSet>| d.selects_all() || d.selects(&rs.labels);
        let (kept, mut released): (Vec<_>, Vec<_>) = owned.into_iter().partition(is_selected);
        orphans.retain(|rs| !rs.is_terminating && d.selects(&rs.labels));
        if d.is_terminating {
            (released, orphans) = (Vec::new(), Vec::new());
        }
        Self {
            kept,
            released,
            adopted: orphans,
        }
    }

    /// Returns the ReplicaSets that the Deployment will manage, and a text for each adoption and
    /// release, for a dry run.
    pub fn settled(self) -> (Vec<Arc<ReplicaSet>>, Vec<String>) {
        let name = |verb: &str, rs: &Arc<ReplicaSet>| format!("{verb} replicaset {}", rs.key.name);
        let released = self.released.iter().map(|rs| name("release", rs));
        let texts = released.chain(self.adopted.iter().map(|rs| name("adopt", rs)));
        let texts = texts.collect();
        ([self.kept, self.adopted].concat(), texts)
    }
}

impl Step {
    /// A text for each write that changes more than the status.
    pub fn texts(&self) -> Vec<String> {
        let mut texts: Vec<String> = self.writes.iter().map(Write::to_string).collect();
        texts.retain(|text| !text.is_empty());
        texts
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub type_: EventType,
    pub reason: &'static str,
    pub message: String,
}

impl Note {
    fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            type_: EventType::Warning,
            reason,
            message: message.into(),
        }
    }
}

/// A ReplicaSet and the changes decided so far.
#[derive(Clone, Debug)]
struct Set {
    rs: Arc<ReplicaSet>,
    replicas: i32,
    annotations: Annotations,
    min_ready_seconds: i32,
    /// To be deleted.
    is_surplus: bool,
}

impl Set {
    fn new(rs: &Arc<ReplicaSet>) -> Self {
        Self {
            replicas: rs.replicas,
            annotations: rs.annotations.clone(),
            min_ready_seconds: rs.min_ready_seconds,
            is_surplus: false,
            rs: Arc::clone(rs),
        }
    }

    fn wants_pods(&self) -> bool {
        self.replicas > 0
    }

    /// The available pods that remain after the scale-down that is decided or under way.
    ///
    /// DIFFERS: upstream counts all available pods in the status, which lags behind a scale-down.
    /// Upstream does not scale down twice only because the next sync meets a conflict and ends.
    fn lasting(&self) -> i32 {
        self.rs.available().min(self.replicas)
    }

    fn counted(&self, is_new: bool) -> Counted<'_> {
        Counted {
            replicas: self.replicas,
            status: &self.rs.status,
            is_new,
        }
    }

    fn scale(&mut self, d: &Deployment, replicas: i32) {
        if self.replicas != replicas {
            self.replicas = replicas;
            set_replicas(&mut self.annotations, d);
        }
    }

    /// Returns the write with the decided changes; `None` if nothing changes.
    fn update(&self) -> Option<Write> {
        let annotations = changes(&self.rs.annotations, &self.annotations);
        let mut spec = json!({});
        if self.replicas != self.rs.replicas {
            spec["replicas"] = self.replicas.into();
        }
        if self.min_ready_seconds != self.rs.min_ready_seconds {
            spec["minReadySeconds"] = self.min_ready_seconds.into();
        }
        if annotations.is_empty() && spec == json!({}) {
            return None;
        }
        let metadata = json!({
            "resourceVersion": self.rs.resource_version,
            "uid": self.rs.uid,
            "annotations": annotations,
        });
        Some(Write::Update {
            rs: Arc::clone(&self.rs),
            replicas: self.replicas,
            patch: json!({"metadata": metadata, "spec": spec}),
        })
    }
}

/// A decision under construction.
struct Plan<'a> {
    view: View<'a>,
    d: &'a Deployment,
    /// The old revisions by age.
    old: Vec<Set>,
    /// The ReplicaSet of the Deployment's template.
    new: Option<Set>,
    /// The hash in the name of `new`; `None` if that ReplicaSet exists already.
    new_hash: Option<String>,
    /// The stored status with the conditions that this sync has set. [`calculate`] adds the counts.
    base: DeploymentStatus,
    annotations: Annotations,
    step: Step,
}

/// Decides about a Deployment.
///
/// # Errors
/// If this build does not know the strategy.
pub fn decide(view: View<'_>) -> Result<Step, String> {
    let mut plan = Plan::new(view);
    let d = plan.d;
    if d.selects_all() {
        return Ok(plan.reject_an_empty_selector());
    }
    if d.is_terminating {
        plan.sync_revision();
        return Ok(plan.finish_without_progress());
    }
    plan.note_pause();
    if !d.paused
        && let Some(revision) = rollback_to(d)
    {
        plan.create_new();
        return Ok(plan.roll_back(revision));
    }
    plan.sync_revision();
    if d.paused || plan.was_scaled() {
        plan.scale();
        if d.paused && rollback_to(d).is_none() {
            plan.clean_up();
        }
        return Ok(plan.finish_without_progress());
    }
    match &d.strategy {
        Strategy::Recreate => plan.recreate(),
        Strategy::RollingUpdate { .. } => plan.roll(),
        Strategy::Unknown(other) => return Err(format!("unexpected strategy {other:?}")),
    }
    Ok(plan.finish_rollout())
}

/// The status after the create of a ReplicaSet failed, with the event about it.
pub fn after_failed_create(
    d: &Deployment,
    rs: &ReplicaSet,
    why: &str,
    now: Timestamp,
) -> (Option<Write>, Note) {
    let message = format!(
        "Failed to create new replica set \"{}\": {why}",
        rs.key.name
    );
    let mut status = d.status.clone();
    if d.progress_deadline.is_some() {
        let failed = new_condition(PROGRESSING, "False", reason::CREATE_FAILED, &*message, now);
        set_condition(&mut status, failed);
    }
    let write = (status != d.status).then(|| Write::Status {
        status,
        annotations: d.annotations.clone(),
    });
    (write, Note::warning(reason::CREATE_FAILED, message))
}

/// The status after a create whose name another ReplicaSet has. The higher collision count changes
/// the hash, and so the name that the next sync tries.
pub fn after_collision(d: &Deployment) -> Write {
    let mut status = d.status.clone();
    status.collision_count = Some(status.collision_count.unwrap_or_default().saturating_add(1));
    Write::Status {
        status,
        annotations: d.annotations.clone(),
    }
}

impl View<'_> {
    /// Sorts the ReplicaSets by creation, and returns the index of the *new* one: the oldest with
    /// the Deployment's template.
    pub(crate) fn sort(&mut self) -> Option<usize> {
        let sets = &mut self.replica_sets;
        sets.sort_by(|a, b| a.creation_order().cmp(&b.creation_order()));
        sets.iter()
            .position(|rs| rs.template == self.deployment.template)
    }
}

impl<'a> Plan<'a> {
    fn new(mut view: View<'a>) -> Self {
        let (d, new) = (view.deployment, view.sort());
        let mut old: Vec<Set> = view.replica_sets.iter().map(Set::new).collect();
        let new = new.map(|index| old.remove(index));
        Self {
            d,
            old,
            new,
            new_hash: None,
            base: d.status.clone(),
            annotations: d.annotations.clone(),
            step: Step::default(),
            view,
        }
    }

    fn sets(&self) -> impl Iterator<Item = &Set> {
        self.old.iter().chain(&self.new)
    }

    fn total_replicas(&self) -> i32 {
        total(self.sets().map(|set| set.replicas))
    }

    fn set_progress(&mut self, status: &str, reason: &str, message: impl Into<String>) {
        let condition = new_condition(PROGRESSING, status, reason, message, self.view.now);
        set_condition(&mut self.base, condition);
    }

    fn reject_an_empty_selector(mut self) -> Step {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        self.step
            .events
            .push(Note::warning("SelectingAll", message));
        if self.base.observed_generation.unwrap_or_default() < self.d.generation {
            self.base.observed_generation = Some(self.d.generation);
        }
        let status = self.base.clone();
        self.finish(status)
    }

    /// Marks the rollout as paused or resumed, so that a pause does not count as lack of progress.
    fn note_pause(&mut self) {
        let known = progress_reason(&self.base);
        if self.d.progress_deadline.is_none() || known == Some(reason::TIMED_OUT) {
            return;
        }
        let was_paused = known == Some(reason::PAUSED);
        if self.d.paused && !was_paused {
            self.set_progress("Unknown", reason::PAUSED, "Deployment is paused");
        } else if !self.d.paused && was_paused {
            self.set_progress("Unknown", reason::RESUMED, "Deployment is resumed");
        }
    }

    /// Gives the new ReplicaSet, if there is one, its revision, and the Deployment the same one.
    fn sync_revision(&mut self) {
        let highest = max_revision(self.old.iter().map(|set| &set.annotations));
        let revision = highest.saturating_add(1);
        let (d, is_created) = (self.d, self.new_hash.is_some());
        let Some(new) = &mut self.new else { return };
        set_revision(&mut new.annotations, d, revision);
        new.min_ready_seconds = d.min_ready_seconds;
        let revision = new.annotations.get(REVISION).cloned();
        self.annotations
            .extend(revision.map(|revision| (REVISION.to_owned(), revision)));
        let name = new.rs.key.name.clone();
        if d.progress_deadline.is_none() {
            return;
        }
        if is_created {
            let message = format!("Created new replica set \"{name}\"");
            self.set_progress("True", reason::CREATED, message);
        } else if condition(&self.base, PROGRESSING).is_none_or(|it| is_of_another(it, &name)) {
            let message = format!("Found new replica set \"{name}\"");
            self.set_progress("True", reason::FOUND, message);
        }
    }

    /// Creates the ReplicaSet of the Deployment's template unless there is one.
    fn create_new(&mut self) {
        if self.new.is_none() {
            let hash = template_hash(self.d);
            let rs = Arc::new(new_replica_set(self.d, &hash, self.view.now));
            self.new = Some(Set::new(&rs));
            self.new_hash = Some(hash);
            let replicas = self.size_of_new();
            self.new.as_mut().expect("it was set above").replicas = replicas;
        }
        self.sync_revision();
    }

    /// True if `spec.replicas` has changed since the ReplicaSets were scaled.
    fn was_scaled(&self) -> bool {
        let mut active = self.sets().filter(|set| set.wants_pods());
        active.any(|set| {
            let desired = desired_replicas_of(&set.annotations);
            desired.is_some_and(|desired| desired != self.d.replicas)
        })
    }

    /// Scales without a rollout: the only active ReplicaSet to the whole size, several by their
    /// shares.
    fn scale(&mut self) {
        let d = self.d;
        let is_saturated = self.new.as_ref().is_some_and(|new| {
            new.replicas == d.replicas
                && desired_replicas_of(&new.annotations) == Some(d.replicas)
                && new.rs.available() == d.replicas
        });
        let is_rolling = matches!(d.strategy, Strategy::RollingUpdate { .. });
        let n_old = self.old.len();
        let mut sets: Vec<&mut Set> = self.old.iter_mut().chain(&mut self.new).collect();
        let active = sets.iter().enumerate().filter(|(_, set)| set.wants_pods());
        let active: Vec<usize> = active.map(|(index, _)| index).collect();
        match active[..] {
            // No ReplicaSet wants pods: scale the new one, or else the youngest.
            [] => {
                if let Some(last) = sets.last_mut() {
                    last.scale(d, d.replicas);
                }
            }
            [only] => sets[only].scale(d, d.replicas),
            _ if is_saturated => sets[..n_old].iter_mut().for_each(|old| old.scale(d, 0)),
            _ if is_rolling => {
                let sized = active
                    .iter()
                    .map(|index| (sets[*index].replicas, &*sets[*index].rs));
                for (index, replicas) in proportional_sizes(d, &sized.collect::<Vec<_>>()) {
                    let set = &mut *sets[active[index]];
                    set.replicas = replicas;
                    set_replicas(&mut set.annotations, d);
                }
            }
            _ => {}
        }
    }

    /// Marks the oldest revisions beyond `revisionHistoryLimit` as surplus, unless they have pods.
    fn clean_up(&mut self) {
        let Some(limit) = self.d.revision_history_limit else {
            return;
        };
        let mut old: Vec<&mut Set> = self
            .old
            .iter_mut()
            .filter(|set| !set.rs.is_terminating)
            .collect();
        let surplus = old.len().saturating_sub(limit);
        old.sort_by_key(|set| revision_of(&set.annotations));
        for set in old.into_iter().take(surplus) {
            let status = &set.rs.status;
            let is_observed = status.observed_generation.unwrap_or_default() >= set.rs.generation;
            set.is_surplus = status.replicas == 0 && set.replicas == 0 && is_observed;
        }
    }

    /// Gives the Deployment the template of a revision, and removes the request to roll back, even
    /// if no ReplicaSet has that revision.
    fn roll_back(mut self, revision: i64) -> Step {
        let revision = match revision {
            0 => previous_revision(self.sets().map(|set| &set.annotations)),
            revision => revision,
        };
        let found = self
            .sets()
            .find(|set| revision != 0 && revision_of(&set.annotations) == Some(revision));
        let name = &self.d.key.name;
        let mut annotations = self.d.annotations.clone();
        annotations.remove(ROLLBACK_TO);
        let mut template = None;
        let note = match found {
            None => {
                let message = match revision {
                    0 => "Unable to find last revision.",
                    _ => "Unable to find the revision to rollback to.",
                };
                Note::warning("DeploymentRollbackRevisionNotFound", message)
            }
            Some(set) if set.rs.template == self.d.template => {
                let what = "The rollback revision contains the same template as current deployment";
                let message = format!("{what} \"{name}\"");
                Note::warning("DeploymentRollbackTemplateUnchanged", message)
            }
            Some(set) => {
                annotations = rolled_back(self.d, &set.annotations);
                template = Some(set.rs.template.clone());
                Note {
                    type_: EventType::Normal,
                    reason: "DeploymentRollback",
                    message: format!("Rolled back deployment \"{name}\" to revision {revision}"),
                }
            }
        };
        self.write_replica_sets();
        self.step.writes.push(Write::RollBack {
            template,
            annotations,
            note,
        });
        self.step
    }

    fn calculate(&self) -> DeploymentStatus {
        let (d, view) = (self.d, &self.view);
        calculate(
            d,
            &self.base,
            &self.counted(),
            view.counts_terminating,
            view.now,
        )
    }

    fn counted(&self) -> Vec<Counted<'_>> {
        let old = self.old.iter().map(|set| set.counted(false));
        old.chain(self.new.iter().map(|set| set.counted(true)))
            .collect()
    }

    fn finish_without_progress(self) -> Step {
        let status = self.calculate();
        self.finish(status)
    }

    fn finish_rollout(mut self) -> Step {
        let mut status = self.calculate();
        let (d, now) = (self.d, self.view.now);
        let new = self.new.as_ref().map(|new| &*new.rs.key.name);
        judge_progress(d, &self.base, &mut status, new, now);
        copy_failure(&mut status, &self.counted());
        if status == d.status {
            self.step.next = recheck_after(d, now);
        }
        self.finish(status)
    }

    fn finish(mut self, status: DeploymentStatus) -> Step {
        self.write_replica_sets();
        if status != self.d.status || self.annotations != self.d.annotations {
            self.step.writes.push(Write::Status {
                status,
                annotations: self.annotations,
            });
        }
        self.step
    }

    /// The new ReplicaSet first: if it cannot be created, the old ones stay as they are.
    fn write_replica_sets(&mut self) {
        let mut writes = Vec::new();
        for set in self.new.iter().chain(&self.old) {
            match &self.new_hash {
                Some(hash) if set.rs.uid.is_empty() => {
                    let rs = Arc::new(ReplicaSet {
                        replicas: set.replicas,
                        annotations: set.annotations.clone(),
                        ..ReplicaSet::clone(&set.rs)
                    });
                    let object = to_object(self.d, &rs, hash);
                    writes.push(Write::Create { rs, object });
                }
                _ if set.is_surplus => writes.push(Write::Delete(Arc::clone(&set.rs))),
                _ => writes.extend(set.update()),
            }
        }
        self.step.writes.extend(writes);
    }
}

/// The two strategies of a rollout.
impl Plan<'_> {
    /// Replaces old pods step by step: the new ReplicaSet grows as far as `maxSurge` allows. In a
    /// sync in which it need not grow, the old ones shrink as far as `maxUnavailable` allows.
    fn roll(&mut self) {
        self.create_new();
        let (d, is_created) = (self.d, self.new_hash.is_some());
        let size = self.size_of_new();
        let new = self.new.as_mut().expect("it was created above");
        // A ReplicaSet that this sync creates has its size already.
        if !is_created && new.replicas != size {
            return new.scale(d, size);
        }
        if !self.shrink_old() && is_complete(d, &d.status) {
            self.clean_up();
        }
    }

    /// Replaces all pods at once: the new ReplicaSet gets pods when none of the others has any.
    fn recreate(&mut self) {
        let d = self.d;
        let mut scaled = false;
        for old in self.old.iter_mut().filter(|old| old.wants_pods()) {
            old.scale(d, 0);
            scaled = true;
        }
        if scaled || self.has_old_pods() {
            return;
        }
        if self.new.is_none() {
            self.create_new();
        }
        if let Some(new) = &mut self.new {
            new.scale(d, d.replicas);
        }
        if is_complete(d, &d.status) {
            self.clean_up();
        }
    }

    fn has_old_pods(&self) -> bool {
        let mut old = self.old.iter();
        old.any(|set| set.rs.status.replicas > 0 || self.view.with_pods.contains(&set.rs.uid))
    }

    /// The size that the new ReplicaSet may have now.
    fn size_of_new(&self) -> i32 {
        let d = self.d;
        let replicas = self.new.as_ref().map_or(0, |new| new.replicas);
        if replicas >= d.replicas || d.strategy == Strategy::Recreate {
            return d.replicas;
        }
        let free = (max_replicas(d) - self.total_replicas()).max(0);
        replicas + free.min(d.replicas - replicas)
    }

    /// Scales old ReplicaSets down: first by the pods that are not available, since these serve no
    /// traffic, then by available ones as far as `maxUnavailable` allows. Returns true if one did.
    ///
    /// Pods of the new ReplicaSet that are not available yet count against the limit. Otherwise a
    /// broken revision would replace a working one.
    fn shrink_old(&mut self) -> bool {
        let d = self.d;
        let min_available = d.replicas - Fenceposts::of(d).max_unavailable;
        let new = self.new.as_ref();
        let missing = new.map_or(0, |new| new.replicas - new.lasting());
        let mut spare = self.total_replicas() - min_available - missing;
        if spare <= 0 {
            return false;
        }
        let before = self.total_replicas();
        for old in self.old.iter_mut().filter(|old| old.wants_pods()) {
            let unavailable = (old.replicas - old.lasting()).min(spare);
            old.scale(d, old.replicas - unavailable);
            spare -= unavailable;
        }
        let available = total(self.sets().map(Set::lasting));
        let mut spare = (available - min_available).max(0);
        for old in self.old.iter_mut().filter(|old| old.wants_pods()) {
            let healthy = old.replicas.min(spare);
            old.scale(d, old.replicas - healthy);
            spare -= healthy;
        }
        self.total_replicas() < before
    }
}
