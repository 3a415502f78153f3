//! Lists every thread of the process with its current work, for the page `/debug/threads` and for
//! SIGUSR1, which logs the list where no debugger is at hand.
//!
//! Name, state and processor time come from `/proc/self/task`. Each thread registers its work
//! through [`activity`]; threads of libraries do not.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs::{self, DirEntry};
use std::io;
use std::time::Instant;

use serde::Serialize;

use super::proc_stat::{Stat, seconds};
use crate::stdx::activity::{self, Work};
use crate::stdx::escape::escaped;

/// A snapshot of the threads of this process.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadReport {
    /// Sorted by thread id, so that the main thread comes first.
    pub threads: Vec<ThreadEntry>,
}

/// One thread.
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
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn take() -> io::Result<Self> {
        let now = Instant::now();
        let mut works: HashMap<i32, Vec<Work>> = activity::snapshot()
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

    /// Logs one record per thread at level info.
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

#[cfg(test)]
mod tests {
    use super::ThreadReport;
    use crate::stdx::activity::enter;
    use crate::stdx::stop::{Cause, Stop};
    use crate::stdx::thread::Thread;

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
}
