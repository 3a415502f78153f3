//! A record for people.

use jiff::Timestamp;
use log::Record;

use super::short;

/// Time in UTC with milliseconds, level, thread, module within this program, message.
pub(super) fn line(record: &Record<'_>, message: &str, now: Timestamp, thread: &str) -> String {
    let module = short(record.module_path().unwrap_or_default());
    let level = record.level();
    // One record is one line, whatever a message from elsewhere contains.
    let message = message.replace('\n', " | ");
    format!("{now:.3} {level:5} [{thread}] {module}: {message}")
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
        let message = "created 3 pods\nreplicaset=default/web";
        assert_eq!(
            line(&record, message, now, "sync-0"),
            "2026-01-01T00:00:00.123Z INFO  [sync-0] controller::sync: \
             created 3 pods | replicaset=default/web"
        );
    }
}
