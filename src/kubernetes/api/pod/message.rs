//! Decodes a pod from protobuf (kubernetes `staging/src/k8s.io/api/core/v1/generated.proto`).
//!
//! Decodes field by field without intermediate structures, since this runs for every event of every
//! pod. The labels, the owner and the node of a pod are shared copies.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use arcstr::ArcStr;
use prost::Message;

use super::{POD_DELETION_COST, Pod, PodFailure, PodPhase, parse_deletion_cost};
use crate::api::interner::Interner;
use crate::api::policy::{SCALE_DOWN, ScaleDownMark};
use crate::api::protobuf::meta::{ObjectMeta, Time, controller_in, labels_in};
use crate::api::protobuf::{Field, Fields, Parts, ProtobufError, contents, last};
use crate::api::{CompactTimestamp, ObjectKey, ResourceVersion, Uid};

mod spec {
    pub(super) const NODE_NAME: u32 = 10;
    pub(super) const INIT_CONTAINERS: u32 = 20;
    pub(super) const CONTAINER_NAME: u32 = 1;
    pub(super) const CONTAINER_RESTART_POLICY: u32 = 24;
}

mod status {
    pub(super) const PHASE: u32 = 1;
    pub(super) const CONDITIONS: u32 = 2;
    pub(super) const REASON: u32 = 4;
    pub(super) const START_TIME: u32 = 7;
    pub(super) const CONTAINER_STATUSES: u32 = 8;
    pub(super) const INIT_CONTAINER_STATUSES: u32 = 10;
    pub(super) const CONDITION_TYPE: u32 = 1;
    pub(super) const CONDITION_STATUS: u32 = 2;
    pub(super) const CONDITION_LAST_TRANSITION_TIME: u32 = 4;
    pub(super) const CONTAINER_NAME: u32 = 1;
    pub(super) const CONTAINER_RESTART_COUNT: u32 = 5;
}

impl Pod {
    /// Decodes a pod from its protobuf message, without the envelope.
    pub fn from_protobuf(message: &[u8], interner: &mut Interner) -> Result<Self, ProtobufError> {
        let parts = Parts::of(message)?;
        let mut pod = Self::default();
        pod.read_metadata(parts.metadata, interner)?;
        pod.read_spec(parts.spec, interner)?;
        pod.read_status(parts.status, parts.spec, interner)?;
        Ok(pod)
    }

    fn read_metadata(
        &mut self,
        metadata: &[u8],
        interner: &mut Interner,
    ) -> Result<(), ProtobufError> {
        let (mut namespace, mut name) = ("", "");
        // The byte range from the first label to the last.
        let mut labels: Option<Range<usize>> = None;
        let mut at = 0;
        for field in Fields::of(metadata) {
            let field = field?;
            let begin = at;
            at += field.whole.len();
            match field.tag {
                ObjectMeta::NAME => name = field.text()?,
                ObjectMeta::NAMESPACE => namespace = field.text()?,
                ObjectMeta::UID => self.uid = Uid::new(field.text()?),
                ObjectMeta::RESOURCE_VERSION => {
                    self.resource_version = ResourceVersion::new(field.text()?);
                }
                ObjectMeta::CREATION => self.creation = time(field)?,
                ObjectMeta::DELETION => self.deletion = time(field)?,
                ObjectMeta::LABELS => {
                    labels = Some(labels.map_or(begin, |labels| labels.start)..at);
                }
                ObjectMeta::ANNOTATIONS => {
                    let (key, value) = field.entry()?;
                    let text = || String::from_utf8_lossy(value);
                    if key == POD_DELETION_COST {
                        self.deletion_cost = parse_deletion_cost(&text());
                    } else if key == SCALE_DOWN {
                        self.scale_down = ScaleDownMark::from_text(&text());
                    }
                }
                ObjectMeta::FINALIZERS => self.has_finalizers = true,
                ObjectMeta::OWNER_REFERENCES if self.controller.is_none() => {
                    self.controller = controller_in(field.bytes, interner)?;
                }
                _ => {}
            }
        }
        if name.is_empty() {
            return Err(ProtobufError::Missing("metadata.name"));
        }
        self.key = ObjectKey {
            namespace: interner.text(namespace),
            name: ArcStr::from(name),
        };
        // Pods without labels share one empty set.
        let labels = &metadata[labels.unwrap_or_default()];
        self.labels = interner.labels(labels_in(labels, ObjectMeta::LABELS)?);
        Ok(())
    }

    fn read_spec(&mut self, spec: &[u8], interner: &mut Interner) -> Result<(), ProtobufError> {
        for field in Fields::of(spec) {
            let field = field?;
            if field.tag == spec::NODE_NAME && !field.bytes.is_empty() {
                self.node = Some(interner.text(field.text()?));
            }
        }
        Ok(())
    }

    fn read_status(
        &mut self,
        status: &[u8],
        spec: &[u8],
        interner: &mut Interner,
    ) -> Result<(), ProtobufError> {
        let (mut reason, mut last_change) = (Cow::Borrowed(""), None);
        let mut sidecars = None;
        for field in Fields::of(status) {
            let field = field?;
            match field.tag {
                status::PHASE => self.phase = PodPhase::from_text(&field.lossy()),
                status::CONDITIONS => {
                    let transition = self.read_condition(field.bytes)?;
                    last_change = last_change.max(transition);
                }
                status::REASON => reason = field.lossy(),
                status::START_TIME => last_change = last_change.max(time(field)?),
                status::CONTAINER_STATUSES => {
                    let (_, restarts) = container_status(field.bytes)?;
                    self.restarts = self.restarts.max(restarts);
                }
                status::INIT_CONTAINER_STATUSES => {
                    let (name, restarts) = container_status(field.bytes)?;
                    if restarts > self.sidecar_restarts {
                        let sidecars = match &mut sidecars {
                            Some(known) => known,
                            unknown => unknown.insert(sidecars_of(spec)?),
                        };
                        if sidecars.contains(name) {
                            self.sidecar_restarts = restarts;
                        }
                    }
                }
                _ => {}
            }
        }
        self.failure = PodFailure::of(self.phase, &reason, last_change, interner);
        Ok(())
    }

    /// Reads a condition and returns its last transition.
    fn read_condition(
        &mut self,
        condition: &[u8],
    ) -> Result<Option<CompactTimestamp>, ProtobufError> {
        let (mut is_ready_condition, mut is_true, mut transition) = (false, false, None);
        for field in Fields::of(condition) {
            let field = field?;
            match field.tag {
                status::CONDITION_TYPE => is_ready_condition = field.bytes == b"Ready",
                status::CONDITION_STATUS => is_true = field.bytes == b"True",
                status::CONDITION_LAST_TRANSITION_TIME => transition = time(field)?,
                _ => {}
            }
        }
        if is_ready_condition {
            (self.is_ready, self.ready_transition) = (is_true, transition);
        }
        Ok(transition)
    }
}

fn time(field: Field<'_>) -> Result<Option<CompactTimestamp>, ProtobufError> {
    Ok(Time::decode(field.bytes)?.compact())
}

/// Name and restart count.
fn container_status(bytes: &[u8]) -> Result<(&[u8], i32), ProtobufError> {
    let (mut name, mut restarts) = (&[][..], 0);
    for field in Fields::of(bytes) {
        let field = field?;
        match field.tag {
            status::CONTAINER_NAME => name = field.bytes,
            status::CONTAINER_RESTART_COUNT => {
                restarts = i32::try_from(field.number).unwrap_or(0);
            }
            _ => {}
        }
    }
    Ok((name, restarts))
}

/// The names of the init containers with `restartPolicy: Always`.
fn sidecars_of(spec: &[u8]) -> Result<HashSet<&[u8]>, ProtobufError> {
    let mut sidecars = HashSet::new();
    for container in contents(spec, spec::INIT_CONTAINERS) {
        let container = container?;
        if last(container, spec::CONTAINER_RESTART_POLICY)? == b"Always" {
            sidecars.insert(last(container, spec::CONTAINER_NAME)?);
        }
    }
    Ok(sidecars)
}

#[cfg(test)]
mod tests {
    use super::{Interner, Pod, ProtobufError};
    use crate::api::protobuf::{Envelope, put_bytes};

    /// The same pod in both encodings, written by a kube-apiserver.
    const JSON: &[u8] = include_bytes!("../../../../tests/data/pod.json");
    const PROTOBUF: &[u8] = include_bytes!("../../../../tests/data/pod.pb");

    #[test]
    fn both_encodings_decode_to_the_same_pod() {
        let mut interner = Interner::default();
        let from_json = Pod::from_json(JSON, &mut interner).expect("a pod");
        let envelope = Envelope::open(PROTOBUF).expect("an envelope");
        let pod = Pod::from_protobuf(envelope.raw, &mut interner).expect("a pod");
        assert_eq!(envelope.kind, "Pod");
        assert_eq!(pod, from_json);
        assert_eq!((pod.restarts, pod.sidecar_restarts), (3, 5));
        assert_eq!((pod.deletion_cost, pod.is_ready), (-7, true));
        assert!(pod.is_terminating() && pod.controller.is_some());
    }

    #[test]
    fn a_rejected_pod_failed_when_it_started() {
        // Name `p`; phase `Failed`, start time 1,767,225,600 s.
        let message = b"\x0a\x03\x0a\x01p\x1a\x10\x0a\x06Failed\x3a\x06\x08\x80\xf2\xd6\xca\x06";
        let json = br#"{"metadata": {"name": "p"},
            "status": {"phase": "Failed", "startTime": "2026-01-01T00:00:00Z"}}"#;
        let mut interner = Interner::default();
        let from_json = Pod::from_json(json, &mut interner).expect("a pod");
        let pod = Pod::from_protobuf(message, &mut interner).expect("a pod");
        assert_eq!(pod, from_json);
        let at = pod.failure.expect("it failed").at.expect("a time");
        assert_eq!(at.timestamp().as_second(), 1_767_225_600);
    }

    /// A kube-apiserver does not check the texts of an owner reference, nor the reason of a status.
    #[test]
    fn texts_that_are_not_utf_8_are_read() {
        let (mut reference, mut metadata) = (Vec::new(), Vec::new());
        let (mut status, mut message) = (Vec::new(), Vec::new());
        for (tag, text) in [(1, b"k\xff"), (3, b"w\xfe"), (4, b"u\xfd"), (5, b"v\xfc")] {
            put_bytes(tag, text, &mut reference);
        }
        reference.extend_from_slice(&[6 << 3, 1]);
        put_bytes(1, b"p", &mut metadata);
        put_bytes(13, &reference, &mut metadata);
        put_bytes(1, b"Failed", &mut status);
        put_bytes(4, b"Ev\xff", &mut status);
        put_bytes(1, &metadata, &mut message);
        put_bytes(3, &status, &mut message);
        let pod = Pod::from_protobuf(&message, &mut Interner::default()).expect("a pod");
        let controller = pod.controller.expect("a controller");
        assert_eq!(
            (&*controller.kind, &*controller.name),
            ("k\u{fffd}", "w\u{fffd}")
        );
        assert_eq!(&*pod.failure.expect("it failed").reason, "Ev\u{fffd}");
    }

    /// Kubernetes' last time, and what only a message can hold beyond it.
    #[test]
    fn times_up_to_the_end_are_read() {
        let read = |seconds: &[u8]| {
            let mut time = vec![8];
            time.extend_from_slice(seconds);
            let (mut metadata, mut message) = (Vec::new(), Vec::new());
            put_bytes(1, b"p", &mut metadata);
            put_bytes(9, &time, &mut metadata);
            put_bytes(1, &metadata, &mut message);
            Pod::from_protobuf(&message, &mut Interner::default()).expect("a pod")
        };
        let json = br#"{"metadata": {"name": "p", "deletionTimestamp": "9999-12-31T23:59:59Z"}}"#;
        let from_json = Pod::from_json(json, &mut Interner::default()).expect("a pod");
        let last = read(b"\xff\x82\xd1\xff\xaf\x07");
        assert_eq!(last, from_json);
        assert!(last.is_terminating());
        let beyond = read(b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f");
        assert!(beyond.deletion > last.deletion);
    }

    #[test]
    fn pods_without_labels_share_one_empty_set() {
        let mut interner = Interner::default();
        let mut read = |name: u8| {
            let message = [0x0a, 3, 0x0a, 1, name];
            Pod::from_protobuf(&message, &mut interner).expect("a pod")
        };
        let (a, b) = (read(b'a'), read(b'b'));
        assert_eq!((&*a.key.name, &*b.key.name), ("a", "b"));
        assert!(a.labels.is_empty() && a.labels.is_shared_with(&b.labels));
    }

    #[test]
    fn a_pod_without_a_name_is_an_error() {
        let read = Pod::from_protobuf(&[], &mut Interner::default());
        assert_eq!(read, Err(ProtobufError::Missing("metadata.name")));
    }
}
