//! What one process has read of the cluster, with the turn at which it read it. The oracles judge a
//! request by every state that its sync could have read, not by the truth, which no process knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::http::Request;
use super::objects::{Change, Kind, Object};

/// What a response or a watch shows its reader.
#[derive(Clone, Debug)]
pub(super) enum News {
    /// One object, or that it is gone.
    Change(Change),
    /// All objects of a kind, at this revision.
    List(Kind, Vec<Arc<Object>>, u64),
    /// Some of them.
    Objects(Vec<Arc<Object>>),
    /// The pods of the ReplicaSet of this name, past the cache.
    PodsOf(String, Vec<Arc<Object>>),
    /// A write of a pod had no effect.
    Rejected(Rejected),
    /// A watch begins that sends all objects first.
    Begins(Kind),
    /// It has sent all of them.
    InitialEventsEnd(Kind, u64),
    /// The reader has seen everything up to this revision.
    Bookmark(Kind, u64),
    /// The API server accepted a write of the Lease.
    LeaseWritten,
}

/// A write of a pod that the API server rejected.
#[derive(Clone, Debug)]
pub(super) enum Rejected {
    /// A create of this name.
    Create(String),
    /// A delete of this UID, with this code.
    Delete(String, u16),
}

impl Rejected {
    pub(super) fn of(request: &Request, code: u16) -> Option<Self> {
        let text = |pointer: &str| {
            let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            let text = body.pointer(pointer).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        match (request.method.as_str(), code) {
            // After a code above 500, of a time-out or of a proxy, the API server may still execute
            // the create.
            ("POST", 400..=500) => Some(Self::Create(text("/metadata/name"))),
            ("DELETE", 409 | 429) => Some(Self::Delete(text("/preconditions/uid"), code)),
            _ => None,
        }
    }
}

/// A version of an object that a thread has read; `None` as object if the object was gone.
#[derive(Clone, Debug)]
struct Seen {
    /// The turn by which the reader has stored it; `u64::MAX` while that is uncertain.
    turn: u64,
    /// The thread that has read it.
    task: usize,
    object: Option<Arc<Object>>,
}

/// An object in a response, and the turn in which the response came.
type Answered = (u64, Arc<Object>);

/// Everything that a process has read.
#[derive(Debug, Default)]
pub(super) struct View {
    objects: BTreeMap<(Kind, String), Vec<Seen>>,
    /// Objects of a streamed list that is not complete.
    collected: BTreeMap<Kind, Vec<Arc<Object>>>,
    /// The objects in responses that are neither lists nor watches.
    answers: BTreeMap<(Kind, String), Vec<Answered>>,
    revisions: BTreeMap<Kind, u64>,
    /// For each thread, the objects that it has read but may not have stored.
    unsettled: BTreeMap<usize, Vec<(Kind, String)>>,
    /// True once the process has read that the API server accepted a write of the Lease.
    pub(super) has_written_lease: bool,
}

impl View {
    pub(super) fn learn(&mut self, news: News, (task, turn): (usize, u64)) {
        match news {
            News::Begins(kind) => {
                self.collected.insert(kind, Vec::new());
            }
            News::Change(change) => {
                let kind = change.object.kind;
                if let Some(collected) = self.collected.get_mut(&kind) {
                    return collected.push(change.object);
                }
                self.revisions.insert(kind, change.revision);
                let object = (!change.is_deletion).then(|| Arc::clone(&change.object));
                self.see(kind, &change.object.name, object, task);
            }
            News::Objects(objects) | News::PodsOf(_, objects) => {
                for object in objects {
                    let key = (object.kind, object.name.clone());
                    self.answers.entry(key).or_default().push((turn, object));
                }
            }
            News::Bookmark(kind, revision) => {
                if !self.collected.contains_key(&kind) {
                    self.revisions.insert(kind, revision);
                }
            }
            News::LeaseWritten => self.has_written_lease = true,
            News::Rejected(_) => {}
            News::InitialEventsEnd(kind, revision) => {
                let objects = self.collected.remove(&kind).unwrap_or_default();
                self.replace(kind, objects, revision, task);
            }
            News::List(kind, objects, revision) => {
                // A streamed list before may have been cut off.
                self.collected.remove(&kind);
                self.replace(kind, objects, revision, task);
            }
        }
    }

    fn replace(&mut self, kind: Kind, objects: Vec<Arc<Object>>, revision: u64, task: usize) {
        self.revisions.insert(kind, revision);
        let of_kind = self.objects.keys().filter(|(of, _)| *of == kind);
        let gone: Vec<String> = of_kind.map(|(_, name)| name.clone()).collect();
        for name in gone {
            if objects.iter().all(|object| object.name != name) {
                self.see(kind, &name, None, task);
            }
        }
        for object in objects {
            let name = object.name.clone();
            self.see(kind, &name, Some(object), task);
        }
    }

    fn see(&mut self, kind: Kind, name: &str, object: Option<Arc<Object>>, task: usize) {
        let key = (kind, name.to_owned());
        self.unsettled.entry(task).or_default().push(key.clone());
        let turn = u64::MAX;
        self.objects
            .entry(key)
            .or_default()
            .push(Seen { turn, task, object });
    }

    /// The thread has stored everything that it has read.
    pub(super) fn settle(&mut self, task: usize, turn: u64) {
        for key in self.unsettled.remove(&task).unwrap_or_default() {
            for seen in self.objects.get_mut(&key).into_iter().flatten() {
                if seen.task == task && seen.turn == u64::MAX {
                    seen.turn = turn;
                }
            }
        }
    }

    /// The revision that the process's cache of this kind has reached.
    pub(super) fn revision(&self, kind: Kind) -> u64 {
        self.revisions.get(&kind).copied().unwrap_or(0)
    }

    /// True if the pod of this name and UID was in what the process has read before `turn`.
    pub(super) fn has_seen_before(&self, name: &str, uid: &Value, turn: u64) -> bool {
        let seen = self.objects.get(&(Kind::Pod, name.to_owned()));
        seen.into_iter().flatten().any(|seen| {
            let object = seen.object.as_ref();
            seen.turn < turn && object.is_some_and(|it| it.value["metadata"]["uid"] == *uid)
        })
    }

    /// Every version that a sync which began at `turn` could have read of this object.
    pub(super) fn since(&self, kind: Kind, name: &str, turn: u64) -> Vec<Option<&Object>> {
        let key = (kind, name.to_owned());
        let seen = self.objects.get(&key).map_or(&[][..], |seen| seen);
        let later = seen
            .iter()
            .position(|seen| seen.turn >= turn)
            .unwrap_or(seen.len());
        let first = later.saturating_sub(1);
        // Before its first version there was no such object.
        let before = (later == 0).then_some(None);
        let cached = seen[first..].iter().map(|seen| seen.object.as_deref());
        let answers = self.answers.get(&key).into_iter().flatten();
        let answers = answers.filter(|(at, _)| *at >= turn);
        let answers = answers.map(|(_, object)| Some(&**object));
        before.into_iter().chain(cached).chain(answers).collect()
    }

    /// The version of this object that the process has read last, in a list or watch.
    pub(super) fn newest(&self, kind: Kind, name: &str) -> Option<&Object> {
        let seen = self.objects.get(&(kind, name.to_owned()))?.last()?;
        seen.object.as_deref()
    }

    /// The UIDs of all objects of this kind and name that the process has ever had in its cache.
    pub(super) fn uids(&self, kind: Kind, name: &str) -> impl Iterator<Item = &str> {
        let seen = self.objects.get(&(kind, name.to_owned()));
        let versions = seen.into_iter().flatten();
        let versions = versions.filter_map(|it| it.object.as_ref());
        versions.filter_map(|object| object.value["metadata"]["uid"].as_str())
    }

    /// The names of all objects of a kind that the process has ever read.
    pub(super) fn names(&self, kind: Kind) -> impl Iterator<Item = &str> {
        let all = self.objects.keys();
        all.filter(move |(of, _)| *of == kind)
            .map(|(_, name)| name.as_str())
    }
}
