//! A record as a JSON object, with the names and the order of fields that kube-controller-manager has
//! with `--logging-format=json` (component-base `logs/json/json.go:NewJSONLogger`): `ts` in milliseconds
//! since 1970, `caller`, `msg`, `v` but for errors, what the record is about, `err`. Beside them `thread`,
//! and `severity` for warnings, which klog does not tell from news.

use jiff::Timestamp;
use log::{Level, Record};
use serde_json::{Map, Value, json};

use super::{Said, short};

/// What a record may be about: the name here, and upstream's in JSON.
const KINDS: [(&str, &str); 2] = [
    ("replicaset", "replicaSet"),
    ("replicationcontroller", "replicationController"),
];

pub(super) fn line(record: &Record<'_>, said: &Said, now: Timestamp, thread: &str) -> String {
    let message = match &said.then {
        Some(then) => format!("{}; {then}", said.message),
        None => said.message.clone(),
    };
    // By hand for the order, which people see.
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
    fields.extend(said.object.as_deref().and_then(object_field));
    fields.extend(said.error.as_ref().map(|error| ("err", json!(error))));
    let fields = fields
        .iter()
        .map(|(name, value)| format!("\"{name}\":{value}"));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

/// klog's number for a level.
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

/// Folder, file and line, as zap's short caller.
fn caller(record: &Record<'_>) -> String {
    let file = record.file().unwrap_or_default();
    let mut parts: Vec<&str> = file.rsplit('/').take(2).collect();
    parts.reverse();
    format!("{}:{}", parts.join("/"), record.line().unwrap_or_default())
}

/// `replicaset=namespace/name` as upstream's field.
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
    use super::{Level, Record, Said, Timestamp, line};

    #[track_caller]
    fn check(level: Level, message: &str, object: Option<&str>, expected: &str) {
        let said = Said {
            message: message.to_owned(),
            object: object.map(str::to_owned),
            ..Said::default()
        };
        check_said(level, &said, expected);
    }

    #[track_caller]
    fn check_said(level: Level, said: &Said, expected: &str) {
        let now = Timestamp::constant(1_767_225_600, 123_456_789);
        let record = Record::builder()
            .level(level)
            .module_path(Some("replicaset_controller::controller::act::manage"))
            .file(Some("src/controller/manage.rs"))
            .line(Some(66))
            .build();
        let head = r#"{"ts":1767225600123.456,"logger":"controller::act::manage","caller":"controller/manage.rs:66","#;
        assert_eq!(
            line(&record, said, now, "sync-0"),
            format!("{head}{expected}}}")
        );
    }

    #[test]
    fn fields_are_klogs() {
        check(
            Level::Info,
            "created 8 of 8 pods",
            Some("replicaset=shop/web"),
            r#""msg":"created 8 of 8 pods","v":0,"thread":"sync-0","replicaSet":{"name":"web","namespace":"shop"}"#,
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
        let said = Said {
            message: "cannot sync".to_owned(),
            error: Some("no such: pod".to_owned()),
            ..Said::default()
        };
        let expected = r#""msg":"cannot sync","thread":"sync-0","err":"no such: pod""#;
        check_said(Level::Error, &said, expected);
        let said = Said {
            then: Some("next try in 5s".to_owned()),
            ..said
        };
        let expected =
            r#""msg":"cannot sync; next try in 5s","thread":"sync-0","err":"no such: pod""#;
        check_said(Level::Error, &said, expected);
    }

    #[test]
    fn a_message_cannot_forge_what_it_is_about() {
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
            r#""msg":"refused: no replicaset=kube-system/forged","v":0,"thread":"sync-0","replicaSet":{"name":"web","namespace":"shop"}"#,
        );
    }
}
