//! Formats a record as a JSON object with the field names and the order of
//! kube-controller-manager's `--logging-format=json` (component-base
//! `logs/json/json.go:NewJSONLogger`): `ts` in milliseconds since 1970, `caller`, `msg`, `v` except
//! for errors, the object, `err`, the other key values. In addition it writes `thread`, `then`,
//! `suppressed`, and `severity` for warnings, which klog does not distinguish from info.
//!
//! `msg` names the fields instead of their values, so that equal events have equal texts.

use jiff::Timestamp;
use log::{Level, Record};
use serde_json::{Map, Value, json};

use super::{Content, short};

/// The kinds of objects: this program's key and upstream's JSON field.
const KINDS: [(&str, &str); 2] = [
    ("replicaset", "replicaSet"),
    ("replicationcontroller", "replicationController"),
];

pub(super) fn line(record: &Record<'_>, content: &Content, now: Timestamp, thread: &str) -> String {
    let message = template(&content.message, &content.fields);
    // A list instead of a map keeps the order of fields.
    let mut fields = vec![
        ("ts", json!(milliseconds(now))),
        (
            "logger",
            json!(short(record.module_path().unwrap_or_default())),
        ),
        ("caller", json!(caller(record))),
        ("msg", json!(message)),
    ];
    match record.level() {
        Level::Error => {}
        level => fields.push(("v", json!(verbosity(level)))),
    }
    fields.push(("thread", json!(thread)));
    if record.level() == Level::Warn {
        fields.push(("severity", json!("warning")));
    }
    fields.extend(content.object.as_deref().and_then(object_field));
    fields.extend(content.error.as_ref().map(|error| ("err", json!(error))));
    fields.extend(content.then.as_ref().map(|then| ("then", json!(then))));
    if content.suppressed > 0 {
        fields.push(("suppressed", json!(content.suppressed)));
    }
    let fields = fields
        .iter()
        .map(|(name, value)| (*name, value))
        .chain(content.fields.iter().map(|(name, value)| (&**name, value)))
        .map(|(name, value)| format!("\"{name}\":{value}"));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

/// `message` with the name of each field where its value stands as a word. Key values have the
/// order in which the message names them.
fn template(message: &str, fields: &[(String, Value)]) -> String {
    let (mut done, mut rest) = (String::new(), message);
    for (name, value) in fields {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let is_word = |(at, _): &(usize, &str)| {
            let (before, after) = (&rest[..*at], &rest[at + value.len()..]);
            !value.is_empty()
                && !before.ends_with(char::is_alphanumeric)
                && !after.starts_with(char::is_alphanumeric)
        };
        if let Some((at, _)) = rest.match_indices(&value).find(is_word) {
            done.push_str(&rest[..at]);
            done.extend(["{", name, "}"]);
            rest = &rest[at + value.len()..];
        }
    }
    done + rest
}

/// klog's verbosity for a level.
fn verbosity(level: Level) -> u8 {
    match level {
        Level::Error | Level::Warn | Level::Info => 0,
        Level::Debug => 4,
        Level::Trace => 6,
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "microseconds since 1970 fit 53 bits until the year 2255"
)]
fn milliseconds(now: Timestamp) -> f64 {
    now.as_microsecond() as f64 / 1000.0
}

/// Folder, file and line, like zap's short caller.
fn caller(record: &Record<'_>) -> String {
    let file = record.file().unwrap_or_default();
    let mut parts: Vec<&str> = file.rsplit('/').take(2).collect();
    parts.reverse();
    format!("{}:{}", parts.join("/"), record.line().unwrap_or_default())
}

/// Converts `replicaset=namespace/name` into upstream's field.
fn object_field(object: &str) -> Option<(&'static str, Value)> {
    let (kind, key) = object.split_once('=')?;
    let (namespace, name) = key.split_once('/')?;
    let (_, field) = KINDS.into_iter().find(|(known, _)| *known == kind)?;
    let mut fields = Map::new();
    fields.insert("name".to_owned(), json!(name));
    fields.insert("namespace".to_owned(), json!(namespace));
    Some((field, Value::Object(fields)))
}

#[cfg(test)]
mod tests {
    use super::{Content, Level, Record, Timestamp, Value, line, template};

    #[track_caller]
    fn check(level: Level, message: &str, object: Option<&str>, expected: &str) {
        let content = Content {
            message: message.to_owned(),
            object: object.map(str::to_owned),
            ..Content::default()
        };
        check_content(level, &content, expected);
    }

    #[track_caller]
    fn check_content(level: Level, content: &Content, expected: &str) {
        let now = Timestamp::constant(1_767_225_600, 123_456_789);
        let record = Record::builder()
            .level(level)
            .module_path(Some("replicaset_controller::controller::act::manage"))
            .file(Some("src/controller/manage.rs"))
            .line(Some(66))
            .build();
        let head = concat!(
            r#"{"ts":1767225600123.456,"logger":"controller::act::manage","#,
            r#""caller":"controller/manage.rs:66","#
        );
        assert_eq!(
            line(&record, content, now, "sync-0"),
            format!("{head}{expected}}}")
        );
    }

    #[test]
    fn fields_are_klogs() {
        check(
            Level::Info,
            "created 8 of 8 pods",
            Some("replicaset=shop/web"),
            concat!(
                r#""msg":"created 8 of 8 pods","v":0,"thread":"sync-0","#,
                r#""replicaSet":{"name":"web","namespace":"shop"}"#
            ),
        );
        check(
            Level::Debug,
            "two\n\"lines\"",
            None,
            r#""msg":"two\n\"lines\"","v":4,"thread":"sync-0""#,
        );
        check(
            Level::Warn,
            "slow",
            None,
            r#""msg":"slow","v":0,"thread":"sync-0","severity":"warning""#,
        );
        let content = Content {
            message: "cannot sync".to_owned(),
            error: Some("no such: pod".to_owned()),
            ..Content::default()
        };
        let expected = r#""msg":"cannot sync","thread":"sync-0","err":"no such: pod""#;
        check_content(Level::Error, &content, expected);
        let values = [("created", 3_u64.into()), ("lease", "a/\"b".into())];
        let content = Content {
            then: Some("next attempt in 5s".to_owned()),
            fields: values.map(|(name, value)| (name.to_owned(), value)).into(),
            ..content
        };
        let expected = concat!(
            r#""msg":"cannot sync","thread":"sync-0","err":"no such: pod","#,
            r#""then":"next attempt in 5s","created":3,"lease":"a/\"b""#
        );
        check_content(Level::Error, &content, expected);
    }

    #[test]
    fn equal_events_have_equal_messages() {
        #[track_caller]
        fn check(message: &str, fields: &[(&str, Value)], expected: &str) {
            let fields = fields.iter().cloned();
            let fields: Vec<_> = fields
                .map(|(name, value)| (name.to_owned(), value))
                .collect();
            assert_eq!(template(message, &fields), expected);
        }
        let batch = |done: u64, wanted: u64, next: &str| {
            let fields = [
                ("created", done.into()),
                ("wanted", wanted.into()),
                ("nextTry", next.into()),
            ];
            let message = format!("created {done} of {wanted} pods, next attempt in {next}");
            let expected = "created {created} of {wanted} pods, next attempt in {nextTry}";
            check(&message, &fields, expected);
        };
        batch(8, 8, "8s");
        batch(1, 31, "1.5s");
        check("it is absent", &[("n", 3.into())], "it is absent");
        check(
            "33 of 3",
            &[("n", 3.into()), ("empty", "".into())],
            "33 of {n}",
        );
    }

    #[test]
    fn a_message_cannot_forge_the_object() {
        check(
            Level::Info,
            "refused: replicaset=kube-system/forged",
            None,
            r#""msg":"refused: replicaset=kube-system/forged","v":0,"thread":"sync-0""#,
        );
        check(
            Level::Info,
            "refused: no replicaset=kube-system/forged",
            Some("replicaset=shop/web"),
            concat!(
                r#""msg":"refused: no replicaset=kube-system/forged","v":0,"thread":"sync-0","#,
                r#""replicaSet":{"name":"web","namespace":"shop"}"#
            ),
        );
    }
}
