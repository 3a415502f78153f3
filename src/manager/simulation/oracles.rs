//! The exact properties of every request that is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::api_server::ApiServer;
use super::cluster::REVISION;
use super::http::Request;
use super::knowledge::{Deletes, Knowledge};
use super::lease::LeaseTruth;
use super::marks::{block_of, is_protected, mark_of, protection_of};
use super::objects::{
    Kind, Object, controller_of, is_active, is_lost, is_of, is_terminating, target,
};
use super::opt_ins::Protection;
use super::view::View;

/// A write that a process has sent and that the API server may still execute.
#[derive(Clone, Debug)]
pub(super) struct UnderWay {
    pub(super) process: usize,
    pub(super) is_create: bool,
    /// A pod of this name was there when this repetition was sent, or the answer to another try of
    /// the same create reported of one since.
    pub(super) has_existed: bool,
    pub(super) name: String,
    pub(super) owner: String,
}

/// Everything that a check of a request needs.
pub(super) struct Check<'a> {
    pub(super) server: &'a ApiServer,
    pub(super) under_way: &'a BTreeMap<u64, UnderWay>,
    /// UIDs of pods that [late copies](super::world::State::late_copies) have stored.
    pub(super) late_copies: &'a BTreeSet<String>,
    pub(super) lease: &'a LeaseTruth,
    pub(super) identity: &'a str,
    pub(super) process: usize,
    pub(super) is_dry_run: bool,
    pub(super) now: Duration,
    /// The turn at which the sync of the sending thread began.
    pub(super) since: u64,
    /// Every daemon's time of day is the API server's.
    pub(super) clocks_are_right: bool,
    /// Pods that a sync deletes at most.
    pub(super) burst_replicas: usize,
}

/// Judges a request at the moment when its last byte leaves the process.
///
/// PROPERTY P41: A dry run sends nothing but reads.
pub(super) fn judge(
    check: &Check<'_>,
    known: &mut Knowledge,
    request: &Request,
) -> Result<(), String> {
    if check.is_dry_run && request.method != "GET" {
        return Err(format!("a dry run sends {}", request.describe()));
    }
    let Some((kind, name, _)) = target(&request.path) else {
        return Ok(());
    };
    if kind == Kind::Lease || request.method == "GET" {
        return Ok(());
    }
    check.holds_the_lease(request)?;
    if kind == Kind::Event {
        return Ok(());
    }
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    match (request.method.as_str(), kind, name) {
        ("POST", Kind::Pod, None) => check.may_create(known, &body),
        ("DELETE", Kind::Pod, Some(name)) => check.may_delete(known, name, &body),
        ("PUT", Kind::ReplicaSet, Some(name)) => check.may_report(known, name, &body),
        _ => Ok(()),
    }
}

impl Check<'_> {
    /// PROPERTY P1: No write but of the Lease is sent while the API server has a valid lease of
    /// another process, unless another client changed the Lease within the last 15 s, or etcd went
    /// back within the last 30 s.
    fn holds_the_lease(&self, request: &Request) -> Result<(), String> {
        let lease = self.lease;
        let is_anothers = !lease.holder.is_empty() && lease.holder != self.identity;
        if is_anothers
            && self.now < lease.renewed + lease.duration
            && self.now >= lease.tampered_until
        {
            return Err(format!(
                "{} sends {} while the lease of {} is valid",
                self.identity,
                request.describe(),
                lease.holder
            ));
        }
        Ok(())
    }

    /// PROPERTY P2: No create is sent for a ReplicaSet that the sync could not have read with this
    /// template, or only while it was being deleted.
    ///
    /// PROPERTY P3: No create is sent that, counted with the active pods that the process has
    /// created or read and with its creates under way, exceeds the largest `spec.replicas` that the
    /// sync could have read, unless it repeats one that may have an effect. A pod that the late
    /// copy of an answered create has stored counts once the process has read it.
    fn may_create(&self, known: &mut Knowledge, body: &Value) -> Result<(), String> {
        let metadata = &body["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default().to_owned();
        let owner = controller_of(body).unwrap_or_default().to_owned();
        let is_known = known.created.contains(&name);
        known.created.insert(name.clone());
        known.undone.remove(&name);
        let template = &metadata["annotations"][REVISION];
        let versions = self.versions(&known.view, &owner);
        let of_template = versions.filter(|rs| {
            rs.value["spec"]["template"]["metadata"]["annotations"][REVISION] == *template
        });
        let Some(replicas) = of_template.map(replicas_of).max() else {
            return Err(format!(
                "{name} is created for an owner that was never read with the template {template}, \
                 or is being deleted"
            ));
        };
        self.is_proven(known, &owner, &format!("creates {name}"))?;
        if known.may_be_lost(self.since) {
            return Ok(());
        }
        self.waits_for_failures(known, &owner, &name, replicas)?;
        if is_known {
            return Ok(());
        }
        let mut counted: BTreeSet<&str> = BTreeSet::new();
        for pod in self.server.all(Kind::Pod) {
            let uid = &pod.value["metadata"]["uid"];
            let is_counted = controller_of(&pod.value) == Some(&*owner) && is_active(&pod.value);
            let is_late = uid
                .as_str()
                .is_some_and(|uid| self.late_copies.contains(uid));
            if is_counted
                && (known.created.contains(&pod.name) && !is_late
                    || known.view.has_seen_before(&pod.name, uid, self.since))
            {
                counted.insert(&pod.name);
            }
        }
        let own = self
            .under_way
            .values()
            .filter(|it| it.process == self.process && it.is_create);
        let own = own.filter(|it| it.owner == owner && !it.has_existed);
        counted.extend(own.map(|it| &*it.name));
        counted.insert(&name);
        if i64::try_from(counted.len()).is_ok_and(|n| n > replicas) {
            return Err(format!(
                "{name} is one too many: {replicas} wanted, there are {counted:?}"
            ));
        }
        Ok(())
    }

    /// PROPERTY P4: No delete is sent but of a pod, by its UID, that the sync could have read as
    /// controlled by a ReplicaSet that it could have read too, not being deleted.
    ///
    /// PROPERTY P5: No delete is sent with which the process has deleted more pods than the active
    /// pods that the sync could have read exceed the smallest `spec.replicas` that it could have
    /// read, unless it repeats a delete that may have had an effect, be it before etcd went back.
    ///
    /// PROPERTY P6: No delete is sent of a pod while as many pods as are surplus come before it by
    /// node, phase and readiness in every state that the sync could have read, unless it repeats a
    /// delete that may have had an effect, be it before etcd went back.
    fn may_delete(&self, known: &mut Knowledge, name: &str, body: &Value) -> Result<(), String> {
        let uid = &body["preconditions"]["uid"];
        let text = uid.as_str().unwrap_or_default().to_owned();
        let version = &body["preconditions"]["resourceVersion"];
        let revision = version.as_str().and_then(|version| version.parse().ok());
        let deletes = known.deleted.entry(text).or_default();
        let is_repeated = deletes.may_be_repeated();
        deletes.was_sent(revision, self.since);
        let view = &known.view;
        let of_uid = |pod: &&Object| pod.value["metadata"]["uid"] == *uid;
        let versions = view.since(Kind::Pod, name, self.since);
        let versions: Vec<&Object> = versions.into_iter().flatten().filter(of_uid).collect();
        let owners: BTreeSet<&str> = versions
            .iter()
            .filter_map(|pod| controller_of(&pod.value))
            .collect();
        // An owner of before may be gone, and another have adopted the pod.
        let is_there = |owner: &&&str| self.replicas(view, owner).next().is_some();
        let owner = owners.iter().find(is_there).or(owners.first());
        let Some(owner) = owner.copied() else {
            return Err(format!(
                "{name} ({uid}) is deleted, which no ReplicaSet was seen to own"
            ));
        };
        let owner = owner.to_owned();
        let version = &body["preconditions"]["resourceVersion"];
        let leftover = versions.iter().find(|pod| Self::is_leftover(pod, version));
        if let Some(pod) = leftover {
            return if known.may_be_lost(self.since) {
                Ok(())
            } else {
                self.may_discard(known, &owner, pod)
            };
        }
        let replicas = self.replicas(view, &owner).min();
        let Some(replicas) = replicas else {
            return Err(format!(
                "{name} is deleted for an owner that was never read, or is being deleted"
            ));
        };
        self.is_proven(known, &owner, &format!("deletes {name}"))?;
        if let Some(protection) = self.protection(view, &owner) {
            let is_chosen = |pod: &&&Object| pod.value["metadata"]["resourceVersion"] == *version;
            let Some(chosen) = versions.iter().find(is_chosen) else {
                return Err(format!(
                    "{name} is deleted in no version that was read: {version}"
                ));
            };
            if protection.timeout.is_none() && is_protected(&chosen.value) {
                return Err(format!(
                    "{name} is deleted in version {version}, marked never"
                ));
            }
        }
        if is_repeated || known.may_be_lost(self.since) {
            return Ok(());
        }
        let candidates = self.candidates(known, &owner);
        let is_deleted = |(uid, pod): &(&String, &Candidate)| {
            let deletes = known.deleted.get(*uid);
            deletes.is_some_and(|deletes| deletes.may_count(pod.newest))
        };
        let n_deleted = candidates.iter().filter(is_deleted).count();
        let surplus = i64::try_from(candidates.len()).unwrap_or(i64::MAX) - replicas;
        if i64::try_from(n_deleted).is_ok_and(|n| n > surplus) {
            return Err(format!(
                "{name} is deleted, but {replicas} are wanted of {} and {n_deleted} are deleted",
                candidates.len()
            ));
        }
        // The deletes of one sync leave in any order.
        let is_protecting = self.protection(view, &owner).is_some();
        let own = versions.iter().map(|pod| rank(pod, is_protecting)).min();
        let precedes =
            |other: &&Candidate| other.is_always_active && other.ranks.iter().max() < own.as_ref();
        let n_before = candidates.values().filter(precedes).count();
        if i64::try_from(n_before).is_ok_and(|n| n >= surplus) {
            return Err(format!(
                "{name} ({own:?}) is deleted, but {n_before} pods come before it, and only \
                 {surplus} are too many: {candidates:?}"
            ));
        }
        self.is_preferred(known, &owner, name, &candidates)
    }

    /// PROPERTY P7: No status is sent with a generation that the sync could not have read.
    ///
    /// PROPERTY P8: No status is sent that counts fewer pods, or fewer ready pods, than every state
    /// that the sync could have read has for certain, or more than any of them may have.
    fn may_report(&self, known: &Knowledge, name: &str, body: &Value) -> Result<(), String> {
        let uid = body["metadata"]["uid"].as_str().unwrap_or_default();
        if known.may_be_lost(self.since) {
            return Ok(());
        }
        let versions = known.view.since(Kind::ReplicaSet, name, self.since);
        let generations = versions.into_iter().flatten().filter_map(|rs| {
            let metadata = &rs.value["metadata"];
            (metadata["uid"] == uid).then(|| metadata["generation"].as_i64().unwrap_or(0))
        });
        let generations: BTreeSet<i64> = generations.collect();
        let reported = |field: &str| body["status"][field].as_i64().unwrap_or(0);
        let generation = reported("observedGeneration");
        if !generations.contains(&generation) {
            return Err(format!(
                "{name}'s status reports generation {generation} of {generations:?}"
            ));
        }
        let pods = self.candidates(known, uid);
        let counted = |is: fn(&Rank) -> bool| {
            // A delete counts as soon as it is answered.
            let certain = |(uid, pod): &(&String, &Candidate)| {
                let is_deleted = known.deleted.get(*uid).is_some_and(Deletes::are_open);
                pod.is_always_active && !is_deleted && pod.ranks.iter().all(is)
            };
            let possible = |(_, pod): &(&String, &Candidate)| pod.ranks.iter().any(is);
            let n = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
            n(pods.iter().filter(certain).count())..=n(pods.iter().filter(possible).count())
        };
        let all = counted(|_| true);
        let ready = counted(|(_, _, _, ready)| *ready);
        if all.contains(&reported("replicas")) && ready.contains(&reported("readyReplicas")) {
            return Ok(());
        }
        Err(format!(
            "{name}'s status reports {} pods of {all:?}, {} of them ready of {ready:?}",
            reported("replicas"),
            reported("readyReplicas")
        ))
    }

    /// PROPERTY P9: After a failover nothing is created or deleted for a ReplicaSet before both
    /// caches have reached the state at the failover, unless the process has read the ReplicaSet
    /// and its pods past the caches since.
    fn is_proven(&self, known: &Knowledge, owner: &str, what: &str) -> Result<(), String> {
        let Some(acquired) = known.acquired_at else {
            return Ok(());
        };
        let has_reached = |kind| known.view.revision(kind) >= acquired;
        if has_reached(Kind::Pod) && has_reached(Kind::ReplicaSet)
            || known.read_live.contains(owner)
            || known.may_be_lost(self.since)
        {
            return Ok(());
        }
        Err(format!(
            "{} {what} before it has read what was there at its failover ({acquired})",
            self.identity
        ))
    }

    /// `spec.replicas` in every version of the owner that the sync could have read, except those
    /// that are being deleted: nothing is created or deleted for these.
    pub(super) fn replicas<'a>(
        &self,
        view: &'a View,
        owner: &'a str,
    ) -> impl Iterator<Item = i64> + 'a {
        self.versions(view, owner).map(replicas_of)
    }

    fn versions<'a>(
        &self,
        view: &'a View,
        owner: &'a str,
    ) -> impl Iterator<Item = &'a Object> + 'a {
        let since = self.since;
        view.names(Kind::ReplicaSet)
            .flat_map(move |name| view.since(Kind::ReplicaSet, name, since))
            .flatten()
            .filter(move |rs| rs.value["metadata"]["uid"] == *owner && !is_terminating(rs))
    }

    /// The protection of the owner, which never changes.
    fn protection(&self, view: &View, owner: &str) -> Option<Protection> {
        let names = view.names(Kind::ReplicaSet);
        let mut versions = names.flat_map(|name| view.since(Kind::ReplicaSet, name, self.since));
        let is_owner = |rs: &&Object| rs.value["metadata"]["uid"] == *owner;
        let owner = versions.find_map(|rs| rs.filter(is_owner))?;
        protection_of(&owner.value)
    }

    /// The pods that the sync could have counted for this owner, by UID.
    fn candidates(&self, known: &Knowledge, owner: &str) -> BTreeMap<String, Candidate> {
        let is_protecting = self.protection(&known.view, owner).is_some();
        let mut candidates = BTreeMap::new();
        for name in known.view.names(Kind::Pod) {
            let versions = known.view.since(Kind::Pod, name, self.since);
            let is_owned = |pod: &Object| controller_of(&pod.value) == Some(owner);
            let is_active = |pod: &Object| is_active(&pod.value);
            // From the response to an adoption only the owner is used: the rest is as the watch
            // reported it.
            if !versions.iter().flatten().any(|pod| is_owned(pod)) {
                continue;
            }
            // One that lost its labels is not counted, also if its release finds it gone.
            let is_counted = |pod: &Object| is_of(pod, owner) && is_active(pod);
            let always = versions.iter().all(|pod| pod.is_some_and(is_counted));
            for pod in versions.into_iter().flatten().filter(|pod| is_active(pod)) {
                let uid = pod.value["metadata"]["uid"].as_str().unwrap_or_default();
                let candidate: &mut Candidate = candidates.entry(uid.to_owned()).or_default();
                candidate.ranks.push(rank(pod, is_protecting));
                candidate.newest = pod.revision.max(candidate.newest);
                name.clone_into(&mut candidate.name);
                let node = pod.value["spec"]["nodeName"].as_str();
                candidate.nodes.insert(node.unwrap_or_default().to_owned());
                let labels = &pod.value["metadata"]["labels"];
                candidate.labels.insert(labels.to_string());
                candidate.is_always_active = always;
            }
        }
        candidates
    }
}

#[derive(Debug, Default)]
pub(super) struct Candidate {
    pub(super) is_always_active: bool,
    pub(super) name: String,
    pub(super) ranks: Vec<Rank>,
    pub(super) nodes: BTreeSet<String>,
    pub(super) labels: BTreeSet<String>,
    /// The newest revision in which it was active.
    pub(super) newest: u64,
}

/// Rank in the order as far as it depends on one pod alone: lower is deleted first.
pub(super) type Rank = (u8, bool, u8, bool);

fn replicas_of(rs: &Object) -> i64 {
    rs.value["spec"]["replicas"].as_i64().unwrap_or(1)
}

fn rank(pod: &Object, is_protecting: bool) -> Rank {
    let status = &pod.value["status"];
    let phase = match status["phase"].as_str().unwrap_or_default() {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    let mark = match mark_of(&pod.value) {
        _ if !is_protecting => 0,
        "first" => 0,
        "never" => 2,
        _ => 1,
    };
    (
        mark,
        !pod.value["spec"]["nodeName"].is_null(),
        phase,
        is_ready(&pod.value),
    )
}

/// True if the pod's condition says so.
pub(super) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// Begins what [`unsettled`] returns if nothing but the numbers of the status is wrong.
pub(super) const STATUS_REPORTS: &str = "'s status reports";

/// What is wrong with the state that a ReplicaSet has become stable in; `None` if nothing is.
pub(super) fn unsettled(server: &ApiServer, rs: &Object) -> Option<String> {
    if is_terminating(rs) {
        return Some(format!("{} is being deleted", rs.name));
    }
    let uid = rs.value["metadata"]["uid"].as_str().unwrap_or_default();
    let owned = server
        .all(Kind::Pod)
        .filter(|pod| controller_of(&pod.value) == Some(uid));
    let active: Vec<_> = owned.filter(|pod| is_active(&pod.value)).collect();
    let n_active = i64::try_from(active.len()).unwrap_or(i64::MAX);
    let n_ready = active.iter().filter(|pod| is_ready(&pod.value)).count();
    let (metadata, spec, status) = (
        &rs.value["metadata"],
        &rs.value["spec"],
        &rs.value["status"],
    );
    let wanted = spec["replicas"].as_i64().unwrap_or(1);
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let reported = (
        number("replicas"),
        number("readyReplicas"),
        number("observedGeneration"),
    );
    let truth = (
        n_active,
        i64::try_from(n_ready).unwrap_or(i64::MAX),
        metadata["generation"].as_i64().unwrap_or(0),
    );
    let protection = protection_of(&rs.value);
    let is_protected = |pod: &&&Arc<Object>| protection.is_some() && is_protected(&pod.value);
    let n_protected = active.iter().filter(is_protected).count();
    let n_protected = i64::try_from(n_protected).unwrap_or(i64::MAX);
    let is_over = protection.is_some_and(|protection| protection.timeout.is_some());
    let wanted = if is_over {
        wanted
    } else {
        wanted.max(n_protected)
    };
    for pod in server.all(Kind::Pod).filter(|pod| is_active(&pod.value)) {
        let owner = controller_of(&pod.value);
        if owner.is_none() && pod.value["metadata"]["labels"]["app"] == *rs.name {
            return Some(format!("{} is not adopted by {}", pod.name, rs.name));
        }
        if owner == Some(uid) && is_lost(&pod.value) {
            return Some(format!("{} is not released by {}", pod.name, rs.name));
        }
    }
    if n_active != wanted {
        return Some(format!("{} has {n_active} pods of {wanted}", rs.name));
    }
    let is_blocked = wanted > spec["replicas"].as_i64().unwrap_or(1);
    if block_of(&rs.value).is_some() != is_blocked {
        return Some(format!("{}'s status is wrong about a block", rs.name));
    }
    (reported != truth).then(|| format!("{}{STATUS_REPORTS} {reported:?} of {truth:?}", rs.name))
}
