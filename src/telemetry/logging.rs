//! The log: one line per record on standard error, with the thread's name, so that it reads together
//! with a thread dump. Set up once by `main`; written by all threads; the levels may change while the
//! daemon runs.
//!
//! Who a level is for: *error*: an operator must act; *warn*: abnormal, heals itself; *info*: the state
//! of the cluster was changed, or the daemon's; *debug*: each event; *trace*: each request. Records up
//! to *info* are bounded by `limit`, place by place, so that a busy cluster fills no disk.
//!
//! What else a record says is no part of its message, which may contain what somebody else says, but
//! the value of a key: `object` is what it is about, `error` is why something failed, `then` is what
//! follows from that. In text they stand behind the message. What messages from elsewhere could do
//! to a terminal is escaped.

mod json;
mod levels;
mod limit;
mod text;

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use log::kv::Key;
use log::{LevelFilter, Log, Metadata, Record};

use self::levels::Filter;
pub use self::levels::Levels;
use self::limit::{Limit, RateDecision};

/// The form of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line, with klog's field names.
    Json,
}

/// What is logged. None before [`init`].
static FILTER: OnceLock<ArcSwap<Filter>> = OnceLock::new();

/// Sets up the log of the process. `RUST_LOG` wins over `levels`. Libraries log warnings only, unless
/// `RUST_LOG` says otherwise. Has no effect if called a second time.
pub fn init(levels: &Levels, format: Format) {
    let filter = Filter::new(levels, std::env::var("RUST_LOG").ok().as_deref());
    let max = filter.max();
    if FILTER.set(ArcSwap::from_pointee(filter)).is_err() {
        log::debug!("the log is set up already");
        return;
    }
    let logger = Logger {
        format,
        journal: is_journal(),
        limit: Limit::default(),
    };
    if log::set_boxed_logger(Box::new(logger)).is_ok() {
        log::set_max_level(max);
    }
}

/// Changes what is logged, from the next record on. `RUST_LOG` wins still. Without [`init`] it does
/// nothing.
pub fn set_levels(levels: &Levels) {
    if let Some(current) = FILTER.get() {
        let filter = Filter::new(levels, std::env::var("RUST_LOG").ok().as_deref());
        let max = filter.max();
        current.store(std::sync::Arc::new(filter));
        log::set_max_level(max);
    }
}

/// What [`init`] or [`set_levels`] has put into force last; `None` before [`init`].
pub fn levels() -> Option<Levels> {
    Some(FILTER.get()?.load().levels().clone())
}

struct Logger {
    format: Format,
    /// Whether the journal reads standard error, and takes a level in front of each line.
    journal: bool,
    limit: Limit,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let filter = FILTER.get().map(ArcSwap::load);
        filter.is_some_and(|filter| filter.enabled(metadata, metadata.target()))
    }

    fn log(&self, record: &Record<'_>) {
        let module = record.module_path().unwrap_or(record.target());
        let filter = FILTER.get().map(ArcSwap::load);
        if !filter.is_some_and(|filter| filter.enabled(record.metadata(), module)) {
            return;
        }
        let left_out = match self.limit.ask(record) {
            RateDecision::Write { left_out } => left_out,
            RateDecision::LeaveOut => return,
        };
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("?");
        let said = Said::of(record, left_out);
        let now = Timestamp::now();
        let mut line = match self.format {
            Format::Text => text::line(record, &said, now, thread),
            Format::Json => json::line(record, &said, now, thread),
        };
        if self.journal {
            line.insert_str(0, journal_prefix(record.level().to_level_filter()));
        }
        line.push('\n');
        // Nobody is left to be told that the log cannot be written.
        std::io::stderr()
            .lock()
            .write_all(line.as_bytes())
            .unwrap_or_default();
    }

    fn flush(&self) {}
}

/// What a record says.
#[derive(Debug, Default)]
struct Said {
    message: String,
    error: Option<String>,
    then: Option<String>,
    object: Option<String>,
}

impl Said {
    fn of(record: &Record<'_>, left_out: u64) -> Self {
        let value = |key| record.key_values().get(Key::from(key));
        let text = |key| value(key).map(|value| value.to_string());
        Self {
            message: message(record, left_out),
            error: text("error"),
            then: text("then"),
            object: text("object"),
        }
    }
}

/// The record's message, behind how many others were left out.
fn message(record: &Record<'_>, left_out: u64) -> String {
    match left_out {
        0 => record.args().to_string(),
        _ => format!(
            "({left_out} more from here were left out) {}",
            record.args()
        ),
    }
}

/// `module` without this program's name.
fn short(module: &str) -> &str {
    let of_crate = module.strip_prefix(env!("CARGO_CRATE_NAME"));
    of_crate.map_or(module, |rest| rest.strip_prefix("::").unwrap_or("main"))
}

/// The levels of syslog, as systemd reads them (sd-daemon(3)).
fn journal_prefix(level: LevelFilter) -> &'static str {
    match level {
        LevelFilter::Off | LevelFilter::Error => "<3>",
        LevelFilter::Warn => "<4>",
        LevelFilter::Info => "<6>",
        LevelFilter::Debug | LevelFilter::Trace => "<7>",
    }
}

/// True if `$JOURNAL_STREAM` names the device and inode of standard error (systemd.exec(5)): then it
/// has not been redirected since.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    std::fs::metadata("/proc/self/fd/2")
        .is_ok_and(|stderr| stream == format!("{}:{}", stderr.dev(), stderr.ino()))
}

#[cfg(test)]
mod tests {
    use log::Record;

    use super::message;

    #[test]
    fn what_was_left_out_is_told_before_the_message() {
        for (left_out, expected) in [
            (0, "created 2 pods replicaset=shop/web"),
            (
                7,
                "(7 more from here were left out) created 2 pods replicaset=shop/web",
            ),
        ] {
            let args = format_args!("created 2 pods replicaset=shop/web");
            let record = Record::builder().args(args).build();
            assert_eq!(message(&record, left_out), expected);
        }
    }
}
