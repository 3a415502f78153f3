//! Lists every thread of the process with its current work, for the page `/debug/threads` and for
//! SIGUSR1, which logs the list where no debugger is at hand.
//!
//! Name, state and processor time come from `/proc/self/task`. Each thread registers its work
//! through [`crate::stdx::thread`]; threads of libraries do not.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs::DirEntry;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

use nix::unistd::{SysconfVar, sysconf};
use serde::Serialize;

use crate::stdx::escape::escaped;
use crate::stdx::thread;
use crate::stdx::thread::Work;

/// A snapshot of the threads of this process.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadReport {
    /// Sorted by thread id, so that the main thread comes first.
    pub threads: Vec<ThreadEntry>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ThreadEntry {
    /// The kernel's thread id, as in `top -H`, `gdb` and `eu-stack`.
    pub tid: i32,
    /// The thread's name, at most 15 bytes.
    pub name: String,
    /// The kernel's state letter: `R` running, `S` sleeping, `D` waiting for a disk.
    pub state: char,
    /// Processor time in user mode, in seconds.
    pub user_seconds: f64,
    /// Processor time in the kernel, in seconds.
    pub system_seconds: f64,
    /// The current work, outermost first; `null` for a library's thread, which registers none.
    pub works: Option<Vec<WorkEntry>>,
}

/// One piece of work of a thread.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkEntry {
    /// The kind of work or wait.
    pub what: &'static str,
    /// The subject; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Duration so far, in seconds.
    pub seconds: f64,
    /// Seconds since a watch last received data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heard_seconds_ago: Option<f64>,
}

impl ThreadReport {
    /// Takes a snapshot of all threads. Reads one small file per thread; does not block.
    pub fn take() -> io::Result<Self> {
        let now = Instant::now();
        let mut works: HashMap<i32, Vec<Work>> = thread::snapshot()
            .into_iter()
            .map(|thread| (thread.tid, thread.works))
            .collect();
        let mut threads: Vec<ThreadEntry> = fs::read_dir("/proc/self/task")?
            // A thread may end between the listing and the read.
            .filter_map(|task| thread_entry(&task.ok()?, now, &mut works))
            .collect();
        threads.sort_by_key(|thread| thread.tid);
        Ok(Self { threads })
    }

    /// Formats a table, one line per thread.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{:>8}  {:<15}  {:<5}  {:>9}  {:>9}  WORKS ON\n",
            "TID", "NAME", "STATE", "USER", "SYSTEM"
        );
        for thread in &self.threads {
            writeln!(
                text,
                "{:>8}  {:<15}  {:<5}  {:>7.2} s  {:>7.2} s  {}",
                thread.tid,
                thread.name,
                thread.state,
                thread.user_seconds,
                thread.system_seconds,
                thread.work_text()
            )
            .unwrap_or_default();
        }
        text
    }

    pub fn log(&self) {
        for thread in &self.threads {
            log::info!(
                "thread {} ({}) {} {:.2} s: {}",
                thread.name,
                thread.tid,
                thread.state,
                thread.user_seconds + thread.system_seconds,
                thread.work_text()
            );
        }
    }
}

/// Logs the thread list for SIGUSR1. Called on the signal thread.
pub fn log_threads() {
    match ThreadReport::take() {
        Ok(report) => report.log(),
        Err(error) => log::warn!(error:%; "cannot list the threads"),
    }
}

impl ThreadEntry {
    fn work_text(&self) -> String {
        match self.works.as_deref() {
            None => "-".to_owned(),
            Some([]) => "idle".to_owned(),
            Some(works) => {
                let texts: Vec<String> = works.iter().map(WorkEntry::text).collect();
                texts.join(", ")
            }
        }
    }
}

impl WorkEntry {
    fn text(&self) -> String {
        let mut text = self.what.to_owned();
        if !self.detail.is_empty() {
            text += " ";
            text += &escaped(&self.detail);
        }
        write!(text, " for {:.1} s", self.seconds).unwrap_or_default();
        if let Some(ago) = self.heard_seconds_ago {
            write!(text, " (last byte {ago:.1} s ago)").unwrap_or_default();
        }
        text
    }
}

fn thread_entry(
    task: &DirEntry,
    now: Instant,
    works: &mut HashMap<i32, Vec<Work>>,
) -> Option<ThreadEntry> {
    let tid = task.file_name().to_str()?.parse().ok()?;
    let stat = Stat::read(&task.path()).ok()?;
    let works = works.remove(&tid);
    Some(ThreadEntry {
        tid,
        name: stat.name,
        state: stat.state,
        user_seconds: seconds(stat.user),
        system_seconds: seconds(stat.system),
        works: works.map(|works| {
            works
                .into_iter()
                .map(|work| work_entry(work, now))
                .collect()
        }),
    })
}

fn work_entry(work: Work, now: Instant) -> WorkEntry {
    let ago = |then: Instant| now.saturating_duration_since(then).as_secs_f64();
    WorkEntry {
        what: work.what,
        seconds: ago(work.since),
        heard_seconds_ago: work.heard.map(ago),
        detail: work.detail,
    }
}

/// One `stat` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    /// At most 15 bytes.
    pub(super) name: String,
    /// `R` running, `S` sleeping, `D` waiting for a disk.
    pub(super) state: char,
    /// Processor time in user mode, in ticks.
    pub(super) user: u64,
    /// Processor time in the kernel, in ticks.
    pub(super) system: u64,
    pub(super) n_threads: u64,
    /// Ticks from boot to the start.
    pub(super) started: u64,
    pub(super) virtual_memory: u64,
    pub(super) resident_memory: u64,
}

impl Stat {
    /// Reads the file `stat` in `folder`: `/proc/self`, or a thread's below `/proc/self/task`.
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        // The kernel may have cut a name within a character.
        let text = fs::read(folder.join("stat"))?;
        let text = String::from_utf8_lossy(&text);
        Self::parse(&text).ok_or_else(|| io::Error::other(format!("not a stat file: {text:?}")))
    }

    /// The name may contain anything, also a parenthesis; what follows it does not.
    fn parse(text: &str) -> Option<Self> {
        let (start, rest) = text.rsplit_once(')')?;
        let (_, name) = start.split_once('(')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // proc(5) counts the process id and the name as 1 and 2.
        let field = |number: usize| fields.get(number - 3)?.parse().ok();
        Some(Self {
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            user: field(14)?,
            system: field(15)?,
            n_threads: field(20)?,
            started: field(22)?,
            virtual_memory: field(23)?,
            resident_memory: field(24)?,
        })
    }
}

pub(super) fn seconds(ticks: u64) -> f64 {
    let per_second = system_value(SysconfVar::CLK_TCK).unwrap_or(100).max(1);
    Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / per_second)).as_secs_f64()
}

/// Returns the size of a page of memory, in bytes.
pub(super) fn page_size() -> Option<u64> {
    system_value(SysconfVar::PAGE_SIZE)
}

fn system_value(of: SysconfVar) -> Option<u64> {
    u64::try_from(sysconf(of).ok()??).ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Stat, ThreadReport, page_size, seconds};
    use crate::stdx::stop::{Cause, Stop};
    use crate::stdx::thread::{Thread, enter};

    #[test]
    fn every_thread_is_listed_with_its_name_and_work() {
        let stop = Stop::new();
        let (sender, started) = crossbeam_channel::bounded(1);
        let waiting = stop.clone();
        let _thread = Thread::spawn("t-report", &stop, move || {
            let _sync = enter("sync", "shop/web");
            let _request = enter("request", "GET /api/v1/pods");
            sender.send(()).expect("room for one");
            waiting.wait();
        });
        started.recv().expect("the thread has started");
        let report = ThreadReport::take().expect("a /proc");
        let text = report.text();
        let line = text.lines().find(|line| line.contains(" t-report "));
        let line = line.unwrap_or_else(|| panic!("no such thread in:\n{text}"));
        assert!(line.contains("sync shop/web for 0."), "{line}");
        assert!(line.contains(", request GET /api/v1/pods for 0."), "{line}");
        let json = serde_json::to_value(&report).expect("JSON");
        let threads = json["threads"].as_array().expect("a list");
        let thread = threads.iter().find(|thread| thread["name"] == "t-report");
        assert_eq!(thread.expect("listed")["works"][0]["detail"], "shop/web");
        stop.stop(Cause::Requested("test".to_owned()));
    }

    #[test]
    fn a_name_may_look_like_the_end_of_a_name() {
        let text = "7 (a) R (b)) S 1 7 7 0 -1 4194560 1 2 3 4 250 31 5 6 20 0 9 0 4711 8192 42 1\n";
        let expected = Stat {
            name: "a) R (b)".to_owned(),
            state: 'S',
            user: 250,
            system: 31,
            n_threads: 9,
            started: 4711,
            virtual_memory: 8192,
            resident_memory: 42,
        };
        assert_eq!(Stat::parse(text), Some(expected));
        assert_eq!(Stat::parse("7 (a) S 1 7"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn the_kernel_knows_this_process() {
        let stat = Stat::read(Path::new("/proc/self")).expect("a stat file");
        assert!(stat.n_threads >= 2, "{stat:?}");
        assert!(stat.started > 0, "{stat:?}");
        let page = page_size().expect("a size");
        // 1 MiB and 1 TiB: more than nothing, less than anything in another unit.
        let resident = stat.resident_memory * page;
        assert!((1 << 20..1 << 40).contains(&resident), "{resident}");
        assert!(stat.virtual_memory > resident, "{stat:?}");
        assert!(seconds(stat.user + stat.system) < 3600.0 * 24.0, "{stat:?}");
    }
}
