//! Formats a record as a line for people.

use jiff::Timestamp;
use log::Record;

use super::{Content, short};

/// Time in UTC with milliseconds, level, thread, module within this crate, message, error,
/// consequence and object.
pub(super) fn line(record: &Record<'_>, content: &Content, now: Timestamp, thread: &str) -> String {
    let module = short(record.module_path().unwrap_or_default());
    let level = record.level();
    // A record is always one line, even if a quoted message contains line breaks.
    let mut message = match content.suppressed {
        0 => content.message.clone(),
        n => format!("({n} similar lines suppressed) {}", content.message),
    };
    for (separator, part) in [(": ", &content.error), ("; ", &content.then)] {
        if let Some(part) = part {
            message.extend([separator, part]);
        }
    }
    let message = message.replace('\n', " | ");
    let mut line = format!("{now:.3} {level:5} [{thread}] {module}: {message}");
    if let Some(object) = &content.object {
        line.extend([" ", object]);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::{Content, Record, Timestamp, line};

    #[test]
    fn a_line_has_time_level_thread_module_and_message() {
        let now = Timestamp::constant(1_767_225_600, 123_456_789);
        let record = Record::builder()
            .level(log::Level::Info)
            .module_path(Some("replicaset_controller::controller::sync"))
            .build();
        let content = Content {
            message: "created 3 pods\nin two lines".to_owned(),
            object: Some("replicaset=default/web".to_owned()),
            ..Content::default()
        };
        assert_eq!(
            line(&record, &content, now, "sync-0"),
            "2026-01-01T00:00:00.123Z INFO  [sync-0] controller::sync: \
             created 3 pods | in two lines replicaset=default/web"
        );
        let error = "/x\r\u{1b}[2K\u{1b}[31m2026 ERROR forged\u{2028}\u{202e}";
        let values = [("error", error)];
        let args = format_args!("no such path");
        let content = Content::of(&Record::builder().args(args).key_values(&values).build(), 0);
        assert_eq!(
            line(&record, &content, now, "http-0"),
            "2026-01-01T00:00:00.123Z INFO  [http-0] controller::sync: no such path: \
             /x\\r\\u{1b}[2K\\u{1b}[31m2026 ERROR forged\\u{2028}\\u{202e}"
        );
        let content = Content {
            message: "cannot sync".to_owned(),
            error: Some("no\nsuch pod".to_owned()),
            then: Some("next try in 5s".to_owned()),
            object: Some("replicaset=default/web".to_owned()),
            fields: vec![("created".to_owned(), 3.into())],
            suppressed: 0,
        };
        let rest = "cannot sync: no | such pod; next try in 5s replicaset=default/web";
        let head = "2026-01-01T00:00:00.123Z INFO  [sync-0] controller::sync: ";
        let text = |content: &Content| line(&record, content, now, "sync-0");
        assert_eq!(text(&content), format!("{head}{rest}"));
        let content = Content {
            suppressed: 7,
            ..content
        };
        let expected = format!("{head}(7 similar lines suppressed) {rest}");
        assert_eq!(text(&content), expected);
    }
}
