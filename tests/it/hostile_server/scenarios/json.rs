//! Lists and watches in JSON.

use super::super::bodies::{deep, deep_template, event, replica_set, with_label, wrong_types};
use super::Breaks::{Pages, ReplicaSets};
use super::{BOUNDS, Bounds, IN_JSON, LARGE, OPEN_HEAD, Scenario, many, row, watch};
use crate::support::{Reply, Then, chunk};

pub(super) const JSON: &[Scenario] = &[
    Scenario {
        bounds: LARGE,
        ..row(
            "a line without end",
            ReplicaSets,
            "malformed body: expected value",
            |_| Reply::chunked(IN_JSON, &[], Then::Repeat(chunk(&many(b'x')))),
        )
    },
    Scenario {
        bounds: LARGE,
        ..row(
            "a name without end",
            ReplicaSets,
            "an object is longer than 67108864 bytes",
            |_| {
                let start = br#"{"type":"ADDED","object":{"metadata":{"name":""#;
                Reply::chunked(IN_JSON, &[start], Then::Repeat(chunk(&many(b'x'))))
            },
        )
    },
    row("2 GB of spaces", Pages, "listing in pages", |_| {
        let head = format!("{OPEN_HEAD}Content-Length: 2147483648\r\n\r\n");
        Reply::raw(head, Then::Repeat(many(b' ')))
    }),
    row("a list without end", Pages, "listing in pages", |_| {
        let start = br#"{"metadata":{"resourceVersion":"3"},"items":["#;
        let item = replica_set("web", 0).to_string() + ",";
        Reply::chunked(IN_JSON, &[start], Then::Repeat(chunk(item.as_bytes())))
    }),
    row(
        "the same page for ever",
        Pages,
        "the same continue token twice",
        |_| {
            let body = r#"{"metadata":{"resourceVersion":"3","continue":"abc"},"items":[]}"#;
            Reply::whole("200 OK", "", body)
        },
    ),
    row(
        "no UTF-8",
        ReplicaSets,
        "invalid unicode code point",
        |_| {
            watch(&[
                event("ADDED", with_label(b"\xff\xfe")),
                event("ADDED", with_label(b"\xc3(")),
            ])
        },
    ),
    row("deep template", ReplicaSets, "created 1 of 1 pods", |_| {
        watch(&[event("ADDED", deep_template(100_000))])
    }),
    row(
        "deep object",
        ReplicaSets,
        "cannot decode it or its name",
        |_| watch(&[event("ADDED", deep(300_000))]),
    ),
    row(
        "deep metadata",
        ReplicaSets,
        " replicasets listed in ",
        |_| {
            let mut object = replica_set("web", 0).to_string();
            let deep = format!("\"generation\":1,\"managedFields\":{}", deep(300_000));
            object = object.replace("\"generation\":1", &deep);
            watch(&[event("ADDED", object)])
        },
    ),
    row(
        "deep bookmark",
        ReplicaSets,
        "did not end: no bookmark",
        |_| {
            let x = deep(300_000);
            let object = format!(r#"{{"metadata":{{"resourceVersion":"1","x":{x}}}}}"#);
            watch(&[event("BOOKMARK", object)])
        },
    ),
    row("deep ERROR", ReplicaSets, "[[[[", |_| {
        watch(&[event("ERROR", deep(300_000))])
    }),
    row("deep Status", ReplicaSets, "[[[[", |_| {
        Reply::whole("403 Forbidden", "", deep(400_000))
    }),
    row("deep list", Pages, "cannot decode it or its name", |_| {
        let x = deep(300_000);
        let body = format!(r#"{{"metadata":{{"resourceVersion":"3","x":{x}}},"items":[{x}]}}"#);
        Reply::whole("200 OK", "", &body)
    }),
    Scenario {
        bounds: Bounds {
            lines: 200,
            ..BOUNDS
        },
        ..row(
            "a wrong type in each field",
            ReplicaSets,
            "skipping ReplicaSet default/m",
            |_| {
                let events = wrong_types()
                    .into_iter()
                    .map(|object| event("ADDED", object));
                watch(&events.collect::<Vec<_>>())
            },
        )
    },
    row(
        "a key twice",
        ReplicaSets,
        "duplicate field `replicas`",
        |_| {
            let object = replica_set("web", 1).to_string();
            let object = object.replace("\"replicas\":1", "\"replicas\":1,\"replicas\":3");
            watch(&[event("ADDED", object)])
        },
    ),
    row(
        "many small values",
        ReplicaSets,
        "missing field `spec`",
        |_| {
            let values = "[],".repeat(500_000);
            let object =
                format!(r#"{{"kind":"ReplicaSet","metadata":{{"name":5,"x":[{values}1]}}}}"#);
            watch(&[event("ADDED", object)])
        },
    ),
    row(
        "names that are paths",
        ReplicaSets,
        "is not a valid name",
        |_| {
            let names = [
                "../../../api/v1/nodes",
                "a\nFAKE\r\u{1b}[31mx/../../b?x=1&y#z%2f",
                &"x".repeat(100_000),
                "",
            ];
            let objects = names.map(|name| replica_set(name, 1).to_string());
            watch(&objects.map(|object| event("ADDED", object)))
        },
    ),
    row(
        "an event of no type",
        ReplicaSets,
        "a message of type \"EXPLODED\"",
        |_| watch(&[event("EXPLODED", replica_set("web", 0).to_string())]),
    ),
];
