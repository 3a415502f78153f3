//! Decodes and encodes a ReplicaSet in protobuf (kubernetes
//! `staging/src/k8s.io/api/apps/v1/generated.proto`), and a ReplicationController, whose message
//! differs only in the form of the selector.

use arcstr::ArcStr;
use prost::Message;

use super::{Carried, ReplicaSet, ReplicaSetStatus};
use crate::api::conditions::{Condition, Original, is_decoded};
use crate::api::interner::Interner;
use crate::api::json::Encoded;
use crate::api::label_selector::{Expressions, LabelSelector, Selector, Values};
use crate::api::protobuf::meta::{ObjectMeta, Time, annotations_in, controller_in, labels_in};
use crate::api::protobuf::{
    Envelope, Fields, MEDIA_TYPE, Parts, ProtobufError, contents, fields_of, last, put_bytes, text,
};
use crate::api::workload_kind::{SelectorForm, WorkloadKind};
use crate::api::{CompactTimestamp, ObjectKey, ResourceVersion, Uid};

const SELECTOR: u32 = 2;

const TEMPLATE: u32 = 3;

const CONDITIONS: u32 = 6;

/// The parts that status updates send back.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CarriedMessage {
    /// Without `managedFields`.
    metadata: Box<[u8]>,
    spec: Box<[u8]>,
}

/// The numbers in `spec`. The rest is read field by field: a user may write 100,000s of values.
#[derive(Clone, PartialEq, Message)]
struct SpecMessage {
    #[prost(int32, optional, tag = "1")]
    replicas: Option<i32>,
    #[prost(int32, tag = "4")]
    min_ready_seconds: i32,
}

#[derive(Clone, PartialEq, Message)]
struct StatusMessage {
    #[prost(int32, tag = "1")]
    replicas: i32,
    #[prost(int32, tag = "2")]
    fully_labeled_replicas: i32,
    #[prost(int64, tag = "3")]
    observed_generation: i64,
    #[prost(int32, tag = "4")]
    ready_replicas: i32,
    #[prost(int32, tag = "5")]
    available_replicas: i32,
    #[prost(int32, optional, tag = "7")]
    terminating_replicas: Option<i32>,
}

/// The API server checks none of the texts, so they may not be UTF-8.
#[derive(Clone, PartialEq, Message)]
struct ConditionMessage {
    #[prost(bytes = "vec", tag = "1")]
    type_: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    status: Vec<u8>,
    #[prost(message, optional, tag = "3")]
    last_transition_time: Option<Time>,
    #[prost(bytes = "vec", tag = "4")]
    reason: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    message: Vec<u8>,
}

pub(super) fn read(
    kind: &WorkloadKind,
    message: &[u8],
    interner: &mut Interner,
) -> Result<ReplicaSet, ProtobufError> {
    let parts = Parts::of(message)?;
    let metadata = ObjectMeta::decode(parts.metadata)?;
    if metadata.name.is_empty() {
        return Err(ProtobufError::Missing("metadata.name"));
    }
    let mut controller = None;
    for reference in contents(parts.metadata, ObjectMeta::OWNER_REFERENCES) {
        controller = controller.or(controller_in(reference?, interner)?);
    }
    let spec = SpecMessage::decode(parts.spec)?;
    let template = Parts::of(last(parts.spec, TEMPLATE)?)?;
    let template_labels = labels_in(template.metadata, ObjectMeta::LABELS)?;
    Ok(ReplicaSet {
        key: ObjectKey {
            namespace: interner.text(&metadata.namespace),
            name: ArcStr::from(metadata.name),
        },
        uid: Uid::new(&metadata.uid),
        resource_version: ResourceVersion::new(&metadata.resource_version),
        generation: metadata.generation,
        creation: metadata.creation.and_then(Time::compact),
        deletion: metadata.deletion.and_then(Time::compact),
        controller,
        opt_ins: annotations_in(parts.metadata).collect::<Result<_, _>>()?,
        replicas: spec.replicas.unwrap_or(1),
        min_ready_seconds: spec.min_ready_seconds,
        selector: Selector::new(read_selector(kind.selector, parts.spec)?),
        template_labels: interner.labels(template_labels),
        status: read_status(parts.status)?,
        carried: Some(Carried::Protobuf(CarriedMessage {
            metadata: all_but(parts.metadata, &[ObjectMeta::MANAGED_FIELDS])?.into(),
            spec: parts.spec.into(),
        })),
    })
}

impl CarriedMessage {
    pub(super) fn annotation(&self, name: &str) -> Option<String> {
        let mut annotations = annotations_in(&self.metadata).filter_map(Result::ok);
        let found = annotations.find(|(key, _)| *key == name)?;
        Some(found.1.into_owned())
    }

    pub(super) fn template(&self) -> Option<&[u8]> {
        let mut templates = contents(&self.spec, TEMPLATE).filter_map(Result::ok);
        templates.next()
    }

    pub(super) fn with_status(&self, kind: &WorkloadKind, status: &ReplicaSetStatus) -> Encoded {
        let status = status_message(status);
        let object = [
            (Parts::METADATA, &self.metadata[..]),
            (Parts::SPEC, &self.spec),
            (Parts::STATUS, &status),
        ];
        Encoded {
            media_type: MEDIA_TYPE,
            bytes: Envelope::seal(kind.api_version, kind.kind, &object),
        }
    }
}

fn read_selector(form: SelectorForm, spec: &[u8]) -> Result<LabelSelector, ProtobufError> {
    match form {
        SelectorForm::LabelSelector => {
            let selector = last(spec, SELECTOR)?;
            Ok(LabelSelector {
                match_labels: labels_in(selector, 1)?,
                match_expressions: read_expressions(selector)?,
            })
        }
        SelectorForm::Labels => Ok(LabelSelector {
            match_labels: labels_in(spec, SELECTOR)?,
            ..LabelSelector::default()
        }),
    }
}

fn read_expressions(selector: &[u8]) -> Result<Expressions, ProtobufError> {
    let mut expressions = Expressions::default();
    for expression in contents(selector, 2) {
        let expression = expression?;
        let values = contents(expression, 3).map(|value| text(value?));
        let values = values.collect::<Result<Values, _>>()?;
        let (key, operator) = (text(last(expression, 1)?)?, text(last(expression, 2)?)?);
        expressions.push(key, operator, &values);
    }
    Ok(expressions)
}

fn read_status(bytes: &[u8]) -> Result<ReplicaSetStatus, ProtobufError> {
    let message = StatusMessage::decode(bytes)?;
    let (mut conditions, mut unknown) =
        (Vec::new(), all_but(bytes, &[1, 2, 3, 4, 5, CONDITIONS, 7])?);
    for field in fields_of(bytes, CONDITIONS) {
        let field = field?;
        let condition = read_condition(field.bytes)?;
        if is_decoded(&conditions, &condition.type_) {
            conditions.push(condition);
        } else {
            unknown.extend_from_slice(field.whole);
        }
    }
    Ok(ReplicaSetStatus {
        replicas: message.replicas,
        fully_labeled_replicas: message.fully_labeled_replicas,
        ready_replicas: message.ready_replicas,
        available_replicas: message.available_replicas,
        terminating_replicas: message.terminating_replicas,
        observed_generation: message.observed_generation,
        conditions,
        unknown,
        ..ReplicaSetStatus::default()
    })
}

fn read_condition(bytes: &[u8]) -> Result<Condition, ProtobufError> {
    let message = ConditionMessage::decode(bytes)?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let optional = |bytes: Vec<u8>| (!bytes.is_empty()).then(|| text(bytes));
    let time = message.last_transition_time.and_then(Time::compact);
    Ok(Condition {
        type_: text(message.type_),
        status: text(message.status),
        last_transition_time: time.map(CompactTimestamp::timestamp),
        reason: optional(message.reason),
        message: optional(message.message),
        original: Original::Protobuf(bytes.into()),
    })
}

fn status_message(status: &ReplicaSetStatus) -> Vec<u8> {
    let message = StatusMessage {
        replicas: status.replicas,
        fully_labeled_replicas: status.fully_labeled_replicas,
        observed_generation: status.observed_generation,
        ready_replicas: status.ready_replicas,
        available_replicas: status.available_replicas,
        terminating_replicas: status.terminating_replicas,
    };
    let mut bytes = message.encode_to_vec();
    for condition in &status.conditions {
        if let Original::Protobuf(original) = &condition.original {
            put_bytes(CONDITIONS, original, &mut bytes);
            continue;
        }
        let text = |text: &Option<String>| text.clone().unwrap_or_default().into_bytes();
        let message = ConditionMessage {
            type_: condition.type_.clone().into_bytes(),
            status: condition.status.clone().into_bytes(),
            last_transition_time: condition.last_transition_time.map(Time::from),
            reason: text(&condition.reason),
            message: text(&condition.message),
        };
        put_bytes(CONDITIONS, message.encode_to_vec(), &mut bytes);
    }
    bytes.extend_from_slice(&status.unknown);
    bytes
}

/// The encoded fields of a message except those with these numbers.
fn all_but(message: &[u8], tags: &[u32]) -> Result<Vec<u8>, ProtobufError> {
    let mut remaining = Vec::new();
    for field in Fields::of(message) {
        let field = field?;
        if !tags.contains(&field.tag) {
            remaining.extend_from_slice(field.whole);
        }
    }
    Ok(remaining)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::ReplicaSet;
    use crate::api::interner::Interner;
    use crate::api::protobuf::{Envelope, ProtobufError, put_bytes};
    use crate::api::replica_set::Template;
    use crate::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER, WorkloadKind};

    /// One object of each kind in both encodings, written by a kube-apiserver.
    const REPLICA_SET_JSON: &[u8] = include_bytes!("../../../../tests/data/replica-set.json");
    const REPLICA_SET_PROTOBUF: &[u8] = include_bytes!("../../../../tests/data/replica-set.pb");
    const CONTROLLER_JSON: &[u8] =
        include_bytes!("../../../../tests/data/replication-controller.json");
    const CONTROLLER_PROTOBUF: &[u8] =
        include_bytes!("../../../../tests/data/replication-controller.pb");

    fn read(kind: &WorkloadKind, body: &[u8]) -> ReplicaSet {
        ReplicaSet::from_answer(kind, body).expect("a readable body")
    }

    /// The decoded fields as text, without the carried bytes.
    fn decoded(rs: &ReplicaSet) -> String {
        let read = format!("{rs:?}");
        read.split(", carried: ").next().expect("text").to_owned()
    }

    #[test]
    fn both_encodings_decode_to_the_same_object() {
        for (kind, json, protobuf) in [
            (&REPLICA_SET, REPLICA_SET_JSON, REPLICA_SET_PROTOBUF),
            (
                &REPLICATION_CONTROLLER,
                CONTROLLER_JSON,
                CONTROLLER_PROTOBUF,
            ),
        ] {
            assert_eq!(decoded(&read(kind, protobuf)), decoded(&read(kind, json)));
        }
        let rs = read(&REPLICA_SET, REPLICA_SET_PROTOBUF);
        assert_eq!((rs.replicas, rs.min_ready_seconds), (3, 5));
        assert_eq!(
            (rs.status.ready_replicas, rs.status.conditions.len()),
            (1, 2)
        );
        assert!(rs.is_terminating() && rs.controller.is_some());
    }

    #[test]
    fn a_status_update_sends_the_object_back() {
        let rs = read(&REPLICA_SET, REPLICA_SET_PROTOBUF);
        let body = rs.with_status(&REPLICA_SET, &rs.status).expect("a body");
        let again = read(&REPLICA_SET, &body.bytes);
        assert_eq!(decoded(&again), decoded(&rs));
        // Only managedFields is missing.
        let sent = Envelope::open(&body.bytes).expect("an envelope").raw.len();
        let received = Envelope::open(REPLICA_SET_PROTOBUF).expect("an envelope");
        assert!(sent < received.raw.len());
        let template = |rs: &ReplicaSet| match rs.template() {
            Some(Template::Protobuf(template)) => template.to_vec(),
            other => panic!("{other:?}"),
        };
        assert_eq!(template(&again), template(&rs));
    }

    #[test]
    fn a_status_update_keeps_unknown_fields() {
        let [
            mut metadata,
            mut spec,
            mut condition,
            mut status,
            mut message,
        ] = [const { Vec::new() }; 5];
        put_bytes(1, b"web", &mut metadata);
        put_bytes(99, b"metadata", &mut metadata);
        put_bytes(98, b"spec", &mut spec);
        put_bytes(1, b"Other", &mut condition);
        put_bytes(97, b"condition", &mut condition);
        put_bytes(6, &condition, &mut status);
        put_bytes(96, b"status", &mut status);
        put_bytes(1, &metadata, &mut message);
        put_bytes(2, &spec, &mut message);
        put_bytes(3, &status, &mut message);
        let rs = ReplicaSet::from_protobuf(&REPLICA_SET, &message, &mut Interner::default());
        let rs = rs.expect("a ReplicaSet");
        let mut status = rs.status.clone();
        status.replicas = 7;
        let body = rs.with_status(&REPLICA_SET, &status).expect("a body");
        let text = String::from_utf8_lossy(&body.bytes).into_owned();
        for unknown in ["metadata", "spec", "condition", "status"] {
            assert!(text.contains(unknown), "{unknown} is lost: {text}");
        }
        assert_eq!(read(&REPLICA_SET, &body.bytes).status, status);
    }

    /// Another program's condition, with what a kube-apiserver takes in protobuf: texts that are
    /// not UTF-8, and the time that stands for "never".
    #[test]
    fn a_status_update_sends_other_conditions_back_as_they_came() {
        let (mut reference, mut metadata) = (Vec::new(), Vec::new());
        let (mut condition, mut status, mut message) = (Vec::new(), Vec::new(), Vec::new());
        put_bytes(3, b"\xff\xfe", &mut reference);
        put_bytes(1, b"web", &mut metadata);
        put_bytes(13, &reference, &mut metadata);
        for (tag, text) in [(1, b"T\xff"), (2, b"S\xfe"), (4, b"R\xfd"), (5, b"M\xfc")] {
            put_bytes(tag, text, &mut condition);
        }
        put_bytes(3, b"\x08\xff\x82\xd1\xff\xaf\x07", &mut condition);
        put_bytes(6, &condition, &mut status);
        put_bytes(1, &metadata, &mut message);
        put_bytes(3, &status, &mut message);
        let rs = ReplicaSet::from_protobuf(&REPLICA_SET, &message, &mut Interner::default());
        let rs = rs.expect("a ReplicaSet");
        let read = &rs.status.conditions[0];
        assert_eq!((&*read.type_, &*read.status), ("T\u{fffd}", "S\u{fffd}"));
        assert_eq!(read.reason.as_deref(), Some("R\u{fffd}"));
        assert!(read.last_transition_time.is_some());
        let mut status = rs.status.clone();
        status.replicas = 7;
        let body = rs.with_status(&REPLICA_SET, &status).expect("a body");
        for bytes in [&condition, &metadata] {
            let is_sent = body.bytes.windows(bytes.len()).any(|sent| sent == bytes);
            assert!(is_sent, "{bytes:?} is not in {:?}", body.bytes);
        }
    }

    #[test]
    fn an_object_without_a_name_is_an_error() {
        let read = ReplicaSet::from_protobuf(&REPLICA_SET, &[], &mut Interner::default());
        assert_eq!(
            read.expect_err("no name"),
            ProtobufError::Missing("metadata.name")
        );
    }

    #[test]
    fn absent_replicas_mean_one_and_no_selector_matches_nothing() {
        let (mut metadata, mut message) = (Vec::new(), Vec::new());
        put_bytes(1, b"web", &mut metadata);
        put_bytes(1, &metadata, &mut message);
        for kind in [&REPLICA_SET, &REPLICATION_CONTROLLER] {
            let rs = ReplicaSet::from_protobuf(kind, &message, &mut Interner::default());
            let rs = rs.expect("a readable message");
            assert_eq!(rs.replicas, 1);
            assert!(rs.selector.is_ok_and(|selector| selector.is_empty()));
            assert_eq!(
                read(
                    kind,
                    json!({"metadata": {"name": "web"}, "spec": {}})
                        .to_string()
                        .as_bytes()
                )
                .replicas,
                1
            );
        }
    }
}
