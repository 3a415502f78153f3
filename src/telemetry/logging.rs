//! The log: one line per record on standard error, with the thread's name, so that it reads together
//! with a thread dump.
//!
//! Who a level is for: *error*: an operator must act; *warn*: abnormal, heals itself; *info*: the state
//! of the cluster was changed, or the daemon's; *debug*: each event; *trace*: each request.

use std::io::Write;

use env_logger::{Builder, Env};
use jiff::Timestamp;
use log::{LevelFilter, Record};

/// Sets up the log of the process. `RUST_LOG` wins over `level`. Libraries log warnings only, unless
/// `RUST_LOG` says otherwise. Has no effect if called a second time.
pub fn init(level: LevelFilter) {
    let mut builder = Builder::new();
    builder.filter_level(LevelFilter::Warn);
    builder.filter_module(env!("CARGO_CRATE_NAME"), level);
    builder.parse_env(Env::default());
    builder
        .format(|out, record| writeln!(out, "{}", line(record, Timestamp::now(), &thread_name())));
    if builder.try_init().is_err() {
        log::debug!("the log is set up already");
    }
}

/// Time in UTC with milliseconds, level, thread, module within this program, message.
fn line(record: &Record<'_>, now: Timestamp, thread: &str) -> String {
    let module = record.module_path().unwrap_or_default();
    let module = module.split_once("::").map_or(module, |(krate, rest)| {
        if krate == env!("CARGO_CRATE_NAME") {
            rest
        } else {
            module
        }
    });
    let level = record.level();
    // One record is one line, whatever a message from elsewhere contains.
    let message = record.args().to_string().replace('\n', " | ");
    format!("{now:.3} {level:5} [{thread}] {module}: {message}")
}

fn thread_name() -> String {
    std::thread::current().name().unwrap_or("?").to_owned()
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
            .args(format_args!("created 3 pods\nreplicaset=default/web"))
            .build();
        assert_eq!(
            line(&record, now, "sync-0"),
            "2026-01-01T00:00:00.123Z INFO  [sync-0] controller::sync: \
             created 3 pods | replicaset=default/web"
        );
    }
}
