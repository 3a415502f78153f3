//! The state of the fixture's cluster, and its changes: by the daemon's writes, and by pods that
//! become Ready and unready. Each read makes the object anew from its number.
//!
//! Each lock is held for a few operations only, except that of the watches: a change is sent under
//! it, so that versions arrive in their order, and a slow reader of pods delays their changes.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use parking_lot::Mutex;
use replicaset_controller::api::protobuf::{
    Envelope, Fields, ObjectMeta, Parts, ProtobufError, last, text,
};

use crate::layout::{Layout, REPLICAS, texts_of_pod};
use crate::sample::{FIRST_VERSION, Samples, put_frame};

/// Changes that wait for the reader of a watch. At the bound, the next change waits.
const WAITING_MAX: usize = 1000;

/// The lowest bit of a pod's entry: set while the pod is Ready. The others are its version.
const READY: u64 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    ReplicaSet,
    Pod,
    /// There are none.
    ReplicationController,
}

pub(crate) struct World {
    pub(crate) layout: Layout,
    samples: Samples,
    version: AtomicU64,
    /// Of each pod its version and [`READY`]; 0 while there is none.
    pods: Vec<AtomicU64>,
    /// The ends of the names that the daemon chose.
    suffixes: Mutex<HashMap<usize, String>>,
    /// The version and status of each ReplicaSet whose status was written.
    written: Mutex<HashMap<usize, (u64, Vec<u8>)>>,
    watches: [Mutex<Vec<SyncSender<Vec<u8>>>>; 3],
    pub(crate) counts: Counts,
}

/// What the daemon has sent.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) first_write: OnceLock<Instant>,
    pub(crate) creates: AtomicUsize,
    /// Creates of a pod that was not missing.
    pub(crate) overshoot: AtomicUsize,
    pub(crate) deletes: AtomicUsize,
    pub(crate) statuses: AtomicUsize,
    /// Requests that the fixture does not know.
    pub(crate) unknown: Mutex<Vec<String>>,
}

impl Kind {
    pub(crate) fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::ReplicaSet => ("apps/v1", "ReplicaSet"),
            Self::Pod => ("v1", "Pod"),
            Self::ReplicationController => ("v1", "ReplicationController"),
        }
    }
}

impl World {
    pub(crate) fn new(layout: Layout, samples: Samples) -> Self {
        let initial = |pod| {
            if layout.is_missing(pod) {
                0
            } else {
                FIRST_VERSION << 1 | READY
            }
        };
        Self {
            layout,
            samples,
            version: AtomicU64::new(FIRST_VERSION),
            pods: (0..layout.n_pods())
                .map(initial)
                .map(AtomicU64::new)
                .collect(),
            suffixes: Mutex::default(),
            written: Mutex::default(),
            watches: Default::default(),
            counts: Counts::default(),
        }
    }

    pub(crate) fn into_samples(self) -> Samples {
        self.samples
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// Bound of the numbers of a kind.
    pub(crate) fn end(&self, kind: Kind) -> usize {
        match kind {
            Kind::ReplicaSet => self.layout.n_sets(),
            Kind::Pod => self.layout.n_pods(),
            Kind::ReplicationController => 0,
        }
    }

    pub(crate) fn object(&self, kind: Kind, number: usize) -> Option<Vec<u8>> {
        match kind {
            Kind::ReplicaSet => Some(self.set(number)),
            Kind::Pod => {
                let entry = self.pods[number].load(Ordering::Relaxed);
                (entry != 0).then(|| self.pod(number, entry))
            }
            Kind::ReplicationController => None,
        }
    }

    fn set(&self, set: usize) -> Vec<u8> {
        let sample = if self.layout.is_old(set) {
            &self.samples.old
        } else {
            &self.samples.current
        };
        match self.written.lock().get(&set) {
            Some((version, status)) => sample.object(&self.layout.set(set, *version), status),
            None => sample.object(&self.layout.set(set, FIRST_VERSION), &sample.status),
        }
    }

    fn pod(&self, pod: usize, entry: u64) -> Vec<u8> {
        let mut texts = texts_of_pod(pod, entry >> 1);
        if let Some(suffix) = self.suffixes.lock().get(&pod) {
            texts[5].clone_from(suffix);
        }
        let sample = if entry & READY == 0 {
            &self.samples.unready
        } else {
            &self.samples.ready
        };
        sample.object(&texts, &sample.status)
    }

    /// Returns the changes from now on.
    pub(crate) fn watch(&self, kind: Kind) -> Receiver<Vec<u8>> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        self.watches[kind as usize].lock().push(sender);
        receiver
    }

    /// Makes a change at the next version and sends it to the watches. Returns the object.
    fn change(&self, kind: Kind, type_: &str, make: impl FnOnce(u64) -> Vec<u8>) -> Vec<u8> {
        let mut watches = self.watches[kind as usize].lock();
        let object = make(self.version.fetch_add(1, Ordering::Relaxed) + 1);
        let mut frame = Vec::with_capacity(object.len() + 32);
        put_frame(type_, &object, &mut frame);
        watches.retain(|watch| watch.send(frame.clone()).is_ok());
        object
    }

    /// Makes a pod Ready, or unready if it is Ready. Does nothing with a pod that is missing.
    pub(crate) fn toggle(&self, pod: usize) {
        let entry = self.pods[pod].load(Ordering::Relaxed);
        if entry == 0 {
            return;
        }
        self.change(Kind::Pod, "MODIFIED", |version| {
            let entry = version << 1 | (entry & READY ^ READY);
            self.pods[pod].store(entry, Ordering::Relaxed);
            self.pod(pod, entry)
        });
    }

    /// The daemon's POST of a pod, in protobuf. Returns the pod.
    pub(crate) fn create_pod(&self, body: &[u8]) -> Result<Vec<u8>, ProtobufError> {
        self.counts.first_write.get_or_init(Instant::now);
        self.counts.creates.fetch_add(1, Ordering::Relaxed);
        let name = text(last(metadata_of(body)?, ObjectMeta::NAME)?)?;
        let set = self
            .layout
            .set_named(name)
            .ok_or(ProtobufError::Missing("its ReplicaSet"))?;
        let absent = |pod: &usize| self.pods[*pod].load(Ordering::Relaxed) == 0;
        let Some(pod) = self.pods_of(set).find(absent) else {
            self.counts.overshoot.fetch_add(1, Ordering::Relaxed);
            return Err(ProtobufError::Missing("a free name"));
        };
        let suffix = name.rsplit('-').next().unwrap_or_default();
        self.suffixes.lock().insert(pod, suffix.to_owned());
        Ok(self.change(Kind::Pod, "ADDED", |version| {
            self.pods[pod].store(version << 1, Ordering::Relaxed);
            self.pod(pod, version << 1)
        }))
    }

    /// The daemon's DELETE of a pod. Returns the pod.
    pub(crate) fn delete_pod(&self, name: &str) -> Option<Vec<u8>> {
        self.counts.first_write.get_or_init(Instant::now);
        self.counts.deletes.fetch_add(1, Ordering::Relaxed);
        let set = self.layout.set_named(name)?;
        let is_it = |pod: &usize| {
            let own = self.suffixes.lock().get(pod).cloned();
            let [.., suffix, _] = texts_of_pod(*pod, 0);
            name.ends_with(&own.unwrap_or(suffix))
        };
        let pod = self.pods_of(set).find(is_it)?;
        Some(self.change(Kind::Pod, "DELETED", |version| {
            let entry = self.pods[pod].swap(0, Ordering::Relaxed);
            self.pod(pod, version << 1 | (entry & READY))
        }))
    }

    /// The daemon's PUT of a status, in protobuf. Returns the ReplicaSet.
    pub(crate) fn put_status(&self, name: &str, body: &[u8]) -> Result<Vec<u8>, ProtobufError> {
        self.counts.first_write.get_or_init(Instant::now);
        self.counts.statuses.fetch_add(1, Ordering::Relaxed);
        let set = self
            .layout
            .set_named(name)
            .ok_or(ProtobufError::Missing("its number"))?;
        let status = Parts::of(Envelope::open(body)?.raw)?.status.to_vec();
        Ok(self.change(Kind::ReplicaSet, "MODIFIED", |version| {
            self.written.lock().insert(set, (version, status));
            self.set(set)
        }))
    }

    fn pods_of(&self, set: usize) -> std::ops::Range<usize> {
        let first = set * REPLICAS;
        if self.layout.is_old(set) {
            0..0
        } else {
            first..first + REPLICAS
        }
    }

    /// The number of current ReplicaSets whose status differs from their pods.
    pub(crate) fn n_unreported(&self) -> usize {
        let differs = |set: &usize| {
            let entries = self
                .pods_of(*set)
                .map(|pod| self.pods[pod].load(Ordering::Relaxed));
            let (mut replicas, mut ready) = (0, 0);
            for entry in entries.filter(|entry| *entry != 0) {
                replicas += 1;
                ready += entry & READY;
            }
            let written = self.written.lock();
            let status = written.get(set).map(|(_, status)| &**status);
            let status = status.unwrap_or(&self.samples.current.status);
            (number_in(status, 1), number_in(status, 4)) != (replicas, ready)
        };
        (0..self.layout.n_current).filter(differs).count()
    }

    /// The bytes of a pod.
    pub(crate) fn bytes_of_pod(&self) -> usize {
        self.pod(0, FIRST_VERSION << 1 | READY).len()
    }
}

fn metadata_of(object: &[u8]) -> Result<&[u8], ProtobufError> {
    Ok(Parts::of(Envelope::open(object)?.raw)?.metadata)
}

/// The number in this field; 0 if absent.
fn number_in(message: &[u8], tag: u32) -> u64 {
    let mut fields = Fields::of(message).flatten();
    fields
        .find(|field| field.tag == tag)
        .map_or(0, |field| field.number)
}
