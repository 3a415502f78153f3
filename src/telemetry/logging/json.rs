//! A record as a JSON object, with the names and the order of fields that kube-controller-manager has
//! with `--logging-format=json` (component-base `logs/json/json.go:NewJSONLogger`): `ts` in milliseconds
//! since 1970, `caller`, `msg`, `v` but for errors, what the record is about, `err`. Beside them `thread`,
//! and `severity` for warnings, which klog does not tell from news.

use jiff::Timestamp;
use log::{Level, Record};
use serde_json::{Map, Value, json};

use super::short;

/// What a message may end with: the key here, and upstream's in JSON.
const SUBJECTS: [(&str, &str); 2] = [
    (" replicaset=", "replicaSet"),
    (" replicationcontroller=", "replicationController"),
];

pub(super) fn line(record: &Record<'_>, message: &str, now: Timestamp, thread: &str) -> String {
    let (message, subject) = split_subject(message);
    let (message, error) = match record.level() {
        Level::Error => split_error(message),
        _ => (message, None),
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
    fields.extend(subject);
    fields.extend(error.map(|error| ("err", json!(error))));
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

/// Takes `replicaset=namespace/name` off the end.
fn split_subject(message: &str) -> (&str, Option<(&'static str, Value)>) {
    for (mark, key) in SUBJECTS {
        if let Some((before, object)) = message.rsplit_once(mark)
            && let Some((namespace, name)) = object.split_once('/')
            && !name.contains([' ', ':', ','])
        {
            let mut fields = Map::new();
            fields.insert("name".to_owned(), json!(name));
            fields.insert("namespace".to_owned(), json!(namespace));
            return (before, Some((key, Value::Object(fields))));
        }
    }
    (message, None)
}

/// What went wrong, and why, which stands behind the first colon.
fn split_error(message: &str) -> (&str, Option<&str>) {
    match message.split_once(": ") {
        Some((what, why)) => (what, Some(why)),
        None => (message, None),
    }
}

#[cfg(test)]
mod tests {
    use super::{Level, Record, Timestamp, line};

    #[track_caller]
    fn check(level: Level, message: &str, expected: &str) {
        let now = Timestamp::constant(1_767_225_600, 123_456_789);
        let record = Record::builder()
            .level(level)
            .module_path(Some("replicaset_controller::controller::manage"))
            .file(Some("src/controller/manage.rs"))
            .line(Some(66))
            .build();
        let head = r#"{"ts":1767225600123.456,"logger":"controller::manage","caller":"controller/manage.rs:66","#;
        assert_eq!(
            line(&record, message, now, "sync-0"),
            format!("{head}{expected}}}")
        );
    }

    #[test]
    fn fields_are_klogs() {
        check(
            Level::Info,
            "created 8 of 8 pods replicaset=shop/web",
            r#""msg":"created 8 of 8 pods","v":0,"thread":"sync-0","replicaSet":{"name":"web","namespace":"shop"}"#,
        );
        check(
            Level::Debug,
            "two\n\"lines\"",
            r#""msg":"two\n\"lines\"","v":4,"thread":"sync-0""#,
        );
        check(
            Level::Warn,
            "slow",
            r#""msg":"slow","v":0,"thread":"sync-0","severity":"warning""#,
        );
        check(
            Level::Error,
            "cannot sync: no such: pod",
            r#""msg":"cannot sync","thread":"sync-0","err":"no such: pod""#,
        );
    }
}
