//! A record for people.

use jiff::Timestamp;
use log::Record;

use super::short;
use crate::stdx::escape::escaped;

/// Time in UTC with milliseconds, level, thread, module within this program, message, and what it
/// is about.
pub(super) fn line(
    record: &Record<'_>,
    message: &str,
    object: Option<&str>,
    now: Timestamp,
    thread: &str,
) -> String {
    let module = short(record.module_path().unwrap_or_default());
    let level = record.level();
    // One record is one line, whatever a message from elsewhere contains.
    let message = message.replace('\n', " | ");
    let message = escaped(&message);
    let mut line = format!("{now:.3} {level:5} [{thread}] {module}: {message}");
    if let Some(object) = object {
        line.push(' ');
        line += &escaped(object);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::{Record, Timestamp, line};

    #[test]
    fn a_line_has_time_level_thread_module_and_message() {
        let now = Timestamp::constant(1_767_225_600, 123_456_789);
        let record = Record::builder()
            .level(log::Level::Info)
            .module_path(Some("replicaset_controller::controller::sync"))
            .build();
        let message = "created 3 pods\nin two lines";
        let object = Some("replicaset=default/web");
        assert_eq!(
            line(&record, message, object, now, "sync-0"),
            "2026-01-01T00:00:00.123Z INFO  [sync-0] controller::sync: \
             created 3 pods | in two lines replicaset=default/web"
        );
        let message = "no such path: /x\r\u{1b}[2K\u{1b}[31m2026 ERROR forged\u{2028}\u{202e}";
        assert_eq!(
            line(&record, message, None, now, "http-0"),
            "2026-01-01T00:00:00.123Z INFO  [http-0] controller::sync: no such path: \
             /x\\r\\u{1b}[2K\\u{1b}[31m2026 ERROR forged\\u{2028}\\u{202e}"
        );
    }
}
