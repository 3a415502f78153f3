//! Encodes an object in protobuf as an API server does, from its JSON. It takes only what the
//! controller reads, from tables of its own, so that a reader's mistake is not repeated here.

use jiff::Timestamp;
use serde_json::Value;

use super::mutate::varint;

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Text,
    Int32,
    Int64,
    Boolean,
    Time,
    Texts,
    Map,
    Message(Table),
    Messages(Table),
}

/// Name, number and type of each field.
pub(super) type Table = &'static [(&'static str, u64, Kind)];

use Kind::{Boolean, Int32, Int64, Map, Message, Messages, Text, Texts, Time};

const OWNER: Table = &[
    ("kind", 1, Text),
    ("name", 3, Text),
    ("uid", 4, Text),
    ("apiVersion", 5, Text),
    ("controller", 6, Boolean),
    ("blockOwnerDeletion", 7, Boolean),
];
const METADATA: Table = &[
    ("name", 1, Text),
    ("namespace", 3, Text),
    ("uid", 5, Text),
    ("resourceVersion", 6, Text),
    ("generation", 7, Int64),
    ("creationTimestamp", 8, Time),
    ("deletionTimestamp", 9, Time),
    ("labels", 11, Map),
    ("annotations", 12, Map),
    ("ownerReferences", 13, Messages(OWNER)),
    ("finalizers", 14, Texts),
];
const CONTAINER: Table = &[("name", 1, Text), ("restartPolicy", 24, Text)];
const CONTAINER_STATUS: Table = &[("name", 1, Text), ("restartCount", 5, Int32)];
const POD_CONDITION: Table = &[
    ("type", 1, Text),
    ("status", 2, Text),
    ("lastTransitionTime", 4, Time),
];
pub(super) const POD: Table = &[
    ("metadata", 1, Message(METADATA)),
    (
        "spec",
        2,
        Message(&[
            ("nodeName", 10, Text),
            ("initContainers", 20, Messages(CONTAINER)),
        ]),
    ),
    (
        "status",
        3,
        Message(&[
            ("phase", 1, Text),
            ("conditions", 2, Messages(POD_CONDITION)),
            ("reason", 4, Text),
            ("containerStatuses", 8, Messages(CONTAINER_STATUS)),
            ("initContainerStatuses", 10, Messages(CONTAINER_STATUS)),
        ]),
    ),
];
const SELECTOR: Table = &[
    ("matchLabels", 1, Map),
    (
        "matchExpressions",
        2,
        Messages(&[
            ("key", 1, Text),
            ("operator", 2, Text),
            ("values", 3, Texts),
        ]),
    ),
];
const SPREAD_CONSTRAINT: Table = &[("topologyKey", 2, Text), ("whenUnsatisfiable", 3, Text)];
const TEMPLATE: Table = &[
    ("metadata", 1, Message(&[("labels", 11, Map)])),
    (
        "spec",
        2,
        Message(&[("topologySpreadConstraints", 33, Messages(SPREAD_CONSTRAINT))]),
    ),
];
const STATUS: Table = &[
    ("replicas", 1, Int32),
    ("fullyLabeledReplicas", 2, Int32),
    ("observedGeneration", 3, Int64),
    ("readyReplicas", 4, Int32),
    ("availableReplicas", 5, Int32),
    (
        "conditions",
        6,
        Messages(&[
            ("type", 1, Text),
            ("status", 2, Text),
            ("lastTransitionTime", 3, Time),
            ("reason", 4, Text),
            ("message", 5, Text),
        ]),
    ),
    ("terminatingReplicas", 7, Int32),
];
pub(super) const REPLICA_SET: Table = &[
    ("metadata", 1, Message(METADATA)),
    (
        "spec",
        2,
        Message(&[
            ("replicas", 1, Int32),
            ("selector", 2, Message(SELECTOR)),
            ("template", 3, Message(TEMPLATE)),
            ("minReadySeconds", 4, Int32),
        ]),
    ),
    ("status", 3, Message(STATUS)),
];
pub(super) const REPLICATION_CONTROLLER: Table = &[
    ("metadata", 1, Message(METADATA)),
    (
        "spec",
        2,
        Message(&[
            ("replicas", 1, Int32),
            ("selector", 2, Map),
            ("template", 3, Message(TEMPLATE)),
            ("minReadySeconds", 4, Int32),
        ]),
    ),
    ("status", 3, Message(STATUS)),
];

/// The message of an object; `None` if a field has another type, so that no API server stores it.
pub(super) fn message(object: &Value, table: Table) -> Option<Vec<u8>> {
    let object = object.as_object()?;
    let mut out = Vec::new();
    for (name, number, kind) in table {
        let Some(value) = object.get(*name).filter(|value| !value.is_null()) else {
            continue;
        };
        let mut put = |bytes: &[u8]| field(*number, bytes, &mut out);
        match kind {
            Text => put(value.as_str()?.as_bytes()),
            Texts => {
                for text in value.as_array()? {
                    put(text.as_str()?.as_bytes());
                }
            }
            Map => {
                for (key, value) in value.as_object()? {
                    let mut entry = Vec::new();
                    field(1, key.as_bytes(), &mut entry);
                    field(2, value.as_str()?.as_bytes(), &mut entry);
                    put(&entry);
                }
            }
            Message(table) => put(&message(value, table)?),
            Messages(table) => {
                for value in value.as_array()? {
                    put(&message(value, table)?);
                }
            }
            Time => {
                let time: Timestamp = value.as_str()?.parse().ok()?;
                // API servers store whole seconds.
                if time.subsec_nanosecond() != 0 {
                    return None;
                }
                let mut message = Vec::new();
                number_field(1, time.as_second(), &mut message);
                put(&message);
            }
            Int32 => {
                let value = i32::try_from(value.as_i64()?).ok()?;
                number_field(*number, value.into(), &mut out);
            }
            Int64 => number_field(*number, value.as_i64()?, &mut out),
            Boolean => number_field(*number, value.as_bool()?.into(), &mut out),
        }
    }
    Some(out)
}

fn number_field(number: u64, value: i64, out: &mut Vec<u8>) {
    out.extend(varint(number << 3));
    out.extend(varint(value.cast_unsigned()));
}

/// Appends a field with a length.
pub(super) fn field(number: u64, bytes: &[u8], out: &mut Vec<u8>) {
    out.extend(varint(number << 3 | 2));
    out.extend(varint(bytes.len() as u64));
    out.extend_from_slice(bytes);
}
