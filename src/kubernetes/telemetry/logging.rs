//! The log: one line per record on standard error. Each line has the name of its thread, which a
//! thread dump has too. `main` initializes the log once, and every thread writes to it. The levels
//! may change at run time. A line that nobody reads within a second is dropped
//! ([`crate::stdx::stderr`]).
//!
//! Levels: *error*: an operator must act; *warn*: abnormal but self-healing; *info*: a change of
//! the cluster's or the daemon's state; *debug*: each event; *trace*: each request. `limit`
//! rate-limits the records of *warn* and *info* per place in the code, so that a busy cluster does
//! not fill a disk.
//!
//! Structured data is in key values and not in the message, since a message may quote text from
//! elsewhere: `object` names the subject, `error` the cause of a failure, and `then` the
//! consequence. The text format appends them to the message. Any other key value, such as
//! `created`, repeats a part of the message, which the JSON format replaces by the key. Control
//! characters, which could manipulate a terminal, are escaped.

mod json;
mod levels;

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use jiff::Timestamp;
use log::kv::{Key, VisitSource};
use log::{Level, LevelFilter, Log, Metadata, Record, kv};
use parking_lot::Mutex;

use self::levels::Filter;
use crate::stdx::escape::{escaped, escaped_lines, shortened};
use crate::stdx::stderr;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Text,
    /// One JSON object per line, with klog's field names.
    Json,
}

/// The active filter; unset before [`init`].
static FILTER: OnceLock<ArcSwap<Filter>> = OnceLock::new();

/// The last record of *warn* or *error*, as a text line.
static LAST_WARNING: ArcSwapOption<String> = ArcSwapOption::const_empty();

/// Initializes the log of the process. `RUST_LOG` overrides `level`. Libraries log only warnings
/// and errors unless `RUST_LOG` says otherwise. A second call has no effect.
pub fn init(level: LevelFilter, format: Format) {
    let filter = Filter::new(level, std::env::var("RUST_LOG").ok().as_deref());
    let max = filter.max();
    if FILTER.set(ArcSwap::from_pointee(filter)).is_err() {
        log::debug!("the log is already initialized");
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

/// Changes the level from the next record on; `RUST_LOG` still overrides it. Does nothing before
/// [`init`].
pub fn set_level(level: LevelFilter) {
    if let Some(current) = FILTER.get() {
        let filter = Filter::new(level, std::env::var("RUST_LOG").ok().as_deref());
        let max = filter.max();
        current.store(Arc::new(filter));
        log::set_max_level(max);
    }
}

/// The level of the last [`init`] or [`set_level`]; `None` before [`init`].
pub fn level() -> Option<LevelFilter> {
    Some(FILTER.get()?.load().level())
}

/// Maps klog's verbosity to a level: up to 3 info, 4 and 5 debug, above trace.
pub fn level_of(verbosity: u8) -> LevelFilter {
    match verbosity {
        0..=3 => LevelFilter::Info,
        4..=5 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    }
}

/// The last record of *warn* or *error*, as a text line.
pub fn last_warning() -> Option<Arc<String>> {
    LAST_WARNING.load_full()
}

struct Logger {
    format: Format,
    /// Whether the journal reads standard error and expects a level prefix on each line.
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
        let Some(suppressed) = self.limit.decide(record) else {
            return;
        };
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("?");
        let content = Content::of(record, suppressed);
        let now = Timestamp::now();
        let text = line(record, &content, now, thread);
        if record.level() <= Level::Warn {
            LAST_WARNING.store(Some(Arc::new(text.clone())));
        }
        let mut line = match self.format {
            Format::Text => text,
            Format::Json => json::line(record, &content, now, thread),
        };
        if self.journal {
            line.insert_str(0, journal_prefix(record.level().to_level_filter()));
        }
        line.push('\n');
        if let Ok(n_dropped @ 1..) = stderr::write(&line) {
            log::warn!("{n_dropped} log lines were dropped: standard error was not writable");
        }
    }

    fn flush(&self) {}
}

/// The message and the key values of a record, escaped; only the object is always one line.
#[derive(Debug, Default)]
struct Content {
    message: String,
    error: Option<String>,
    then: Option<String>,
    object: Option<String>,
    /// Records from the same place in the code that the limit has suppressed before this one.
    suppressed: u64,
    /// The other key values. The message says them too, so only the JSON format has them.
    fields: Vec<(String, serde_json::Value)>,
}

impl Content {
    fn of(record: &Record<'_>, suppressed: u64) -> Self {
        let value = |key| record.key_values().get(Key::from(key));
        let lines = |text: String| shortened(escaped_lines(&text));
        let text = |key| value(key).map(|value| lines(value.to_string()));
        Self {
            message: lines(record.args().to_string()),
            suppressed,
            error: text("error"),
            then: text("then"),
            object: value("object").map(|object| shortened(escaped(&object.to_string()))),
            fields: fields(record),
        }
    }
}

/// The key values that only the JSON format has.
fn fields(record: &Record<'_>) -> Vec<(String, serde_json::Value)> {
    struct Fields(Vec<(String, serde_json::Value)>);

    impl<'kvs> VisitSource<'kvs> for Fields {
        fn visit_pair(&mut self, key: Key<'kvs>, value: kv::Value<'kvs>) -> Result<(), kv::Error> {
            if !["error", "then", "object"].contains(&key.as_str()) {
                let text = || shortened(escaped_lines(&value.to_string()));
                let value = value.to_u64().map_or_else(|| text().into(), Into::into);
                self.0.push((key.to_string(), value));
            }
            Ok(())
        }
    }

    let mut fields = Fields(Vec::new());
    // The visitor cannot fail.
    record.key_values().visit(&mut fields).unwrap_or_default();
    fields.0
}

/// The packages of the program. The log and its levels name their modules alike.
const OWN_CRATES: [&str; 4] = [PROGRAM, env!("CARGO_CRATE_NAME"), "deployment", "devserver"];

/// The package with the program's `main`, under whose name `RUST_LOG` finds the modules of all.
const PROGRAM: &str = "replicaset_controller";

/// The path of an own module within its package: empty for `main`.
fn own_path(module: &str) -> Option<&str> {
    OWN_CRATES.into_iter().find_map(|own| {
        let path = module.strip_prefix(own)?;
        if path.is_empty() {
            Some(path)
        } else {
            path.strip_prefix("::")
        }
    })
}

/// `module` without the package's name.
fn short(module: &str) -> &str {
    match own_path(module) {
        Some("") => "main",
        Some(path) => path,
        None => module,
    }
}

/// Syslog levels in the form that systemd reads (sd-daemon(3)).
fn journal_prefix(level: LevelFilter) -> &'static str {
    match level {
        LevelFilter::Off | LevelFilter::Error => "<3>",
        LevelFilter::Warn => "<4>",
        LevelFilter::Info => "<6>",
        LevelFilter::Debug | LevelFilter::Trace => "<7>",
    }
}

/// True if `$JOURNAL_STREAM` names the device and inode of standard error (systemd.exec(5)), so
/// that standard error still leads to the journal.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    std::fs::metadata("/proc/self/fd/2")
        .is_ok_and(|stderr| stream == format!("{}:{}", stderr.dev(), stderr.ino()))
}

// Rate limit per place in the code: a burst, then one line per second. The next line from there
// reports the number of suppressed records. So the number of places bounds the log volume,
// however many ReplicaSets are busy. The limit never suppresses *error* records, nor *debug* and
// *trace* records and lists of threads, which an operator requests explicitly.

/// Records that one place may log at once after a quiet time.
const BURST: u32 = 100;

/// A place regains one record per period.
const REFILL: Duration = Duration::from_secs(1);

/// Logs the lists of threads, which an operator requests, too.
const REQUESTED: &str = concat!(env!("CARGO_CRATE_NAME"), "::telemetry::threads");

/// Maximum number of tracked places. This program has fewer; any excess shares one entry.
const PLACES_MAX: usize = 1000;

/// All places. The lock is held for one map access.
#[derive(Debug, Default)]
struct Limit {
    places: Mutex<HashMap<(String, u32), Place>>,
}

#[derive(Debug)]
struct Place {
    remaining: u32,
    since: Instant,
    suppressed: u64,
}

impl Limit {
    /// Returns the number of records of the same place that were suppressed before this one; `None`
    /// if this one is suppressed too.
    fn decide(&self, record: &Record<'_>) -> Option<u64> {
        let is_requested = record.module_path() == Some(REQUESTED);
        if is_requested || matches!(record.level(), Level::Error | Level::Debug | Level::Trace) {
            return Some(0);
        }
        let file = record.file().unwrap_or_default();
        self.decide_at(file, record.line().unwrap_or_default(), Instant::now())
    }

    fn decide_at(&self, file: &str, line: u32, now: Instant) -> Option<u64> {
        let mut places = self.places.lock();
        let mut key = (file.to_owned(), line);
        if places.len() >= PLACES_MAX && !places.contains_key(&key) {
            key = (String::new(), 0);
        }
        let place = places.entry(key).or_insert(Place {
            remaining: BURST,
            since: now,
            suppressed: 0,
        });
        let periods = now.saturating_duration_since(place.since).as_secs() / REFILL.as_secs();
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);
        if periods > 0 {
            place.remaining = place.remaining.saturating_add(periods).min(BURST);
            // Keeps the fraction of the current period.
            place.since += REFILL * periods;
        }
        if place.remaining == 0 {
            place.suppressed += 1;
            return None;
        }
        place.remaining -= 1;
        Some(std::mem::take(&mut place.suppressed))
    }
}

/// Time in UTC with milliseconds, level, thread, module within this crate, message, error,
/// consequence and object.
fn line(record: &Record<'_>, content: &Content, now: Timestamp, thread: &str) -> String {
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
    use log::Record;

    use super::{BURST, Content, Duration, Instant, Level, Limit, REQUESTED, Timestamp, line};
    use crate::stdx::escape::TEXT_BYTES_MAX;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let fits = "x".repeat(TEXT_BYTES_MAX);
        let long = format!("{}é{fits}", &fits[1..]);
        for (text, expected) in [
            (&fits, fits.clone()),
            (
                &long,
                format!("{}… ({} bytes left out)", &fits[1..], TEXT_BYTES_MAX + 2),
            ),
        ] {
            let values = [("error", text.as_str()), ("then", ""), ("object", "a=b/c")];
            let args = format_args!("{text}");
            let record = Record::builder().args(args).key_values(&values).build();
            let content = Content::of(&record, 0);
            assert_eq!(content.message, expected);
            assert_eq!(content.error, Some(expected));
            assert_eq!(content.object.as_deref(), Some("a=b/c"));
        }
    }

    #[test]
    fn control_and_direction_characters_are_escaped() {
        let error = "/x\r\u{1b}[2K\n\u{9b}2J\u{2028}\u{202e}";
        let values = [("error", error)];
        let args = format_args!("no such path\u{7}");
        let content = Content::of(&Record::builder().args(args).key_values(&values).build(), 0);
        assert_eq!(content.message, "no such path\\u{7}");
        let expected = "/x\\r\\u{1b}[2K\n\\u{9b}2J\\u{2028}\\u{202e}";
        assert_eq!(content.error.as_deref(), Some(expected));
    }

    #[test]
    fn a_list_of_many_threads_is_complete() {
        let limit = Limit::default();
        let mut record = Record::builder();
        record.level(Level::Info).line(Some(1));
        let mut decide = |module: &'static str| {
            let record = record.module_path(Some(module)).build();
            let decisions = (0..=BURST).map(|_| limit.decide(&record));
            decisions.last().expect("there are some")
        };
        let written = Some(0);
        assert_eq!(decide(REQUESTED), written);
        assert_eq!(decide("replicaset_controller::other"), None);
        let lists = std::any::type_name::<crate::telemetry::threads::ThreadReport>();
        assert!(lists.starts_with(REQUESTED), "{lists}");
    }

    #[test]
    fn a_place_is_limited_and_reports_the_suppressed_count() {
        let limit = Limit::default();
        let now = Instant::now();
        for _ in 0..BURST {
            assert_eq!(limit.decide_at("a", 1, now), Some(0));
        }
        assert_eq!(limit.decide_at("a", 1, now), None);
        assert_eq!(limit.decide_at("a", 1, now), None);
        assert_eq!(limit.decide_at("a", 2, now), Some(0));
        let later = now + Duration::from_millis(1500);
        assert_eq!(limit.decide_at("a", 1, later), Some(2));
        assert_eq!(limit.decide_at("a", 1, later), None);
        let much_later = now + Duration::from_hours(1);
        assert_eq!(limit.decide_at("a", 1, much_later), Some(1));
    }

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
            then: Some("next attempt in 5s".to_owned()),
            object: Some("replicaset=default/web".to_owned()),
            fields: vec![("created".to_owned(), 3.into())],
            suppressed: 0,
        };
        let rest = "cannot sync: no | such pod; next attempt in 5s replicaset=default/web";
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
