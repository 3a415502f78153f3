//! Lists every thread of the process with its current work, for the page `/debug/threads` and for
//! SIGUSR1, which logs the list where no debugger is at hand.
//!
//! Name, state and processor time come from `/proc/self/task`. Each thread registers its work
//! through [`crate::stdx::thread`]; threads of libraries do not.

use std::fmt::Write;
use std::fs::DirEntry;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

use nix::unistd::{SysconfVar, sysconf};

use crate::stdx::escape::escaped;
use crate::stdx::thread;
use crate::stdx::thread::Work;

/// A snapshot of the threads of this process.
pub struct ThreadReport {
    taken: Instant,
    /// Sorted by thread id, so that the main thread comes first.
    threads: Vec<Entry>,
}

struct Entry {
    /// The kernel's thread id, as in `top -H`, `gdb` and `eu-stack`.
    tid: i32,
    stat: Stat,
    /// The current work, outermost first; `None` for a library's thread, which registers none.
    works: Option<Vec<Work>>,
}

impl ThreadReport {
    /// Takes a snapshot of all threads. Reads one small file per thread; does not block.
    pub fn take() -> io::Result<Self> {
        let (taken, mut works) = (Instant::now(), thread::snapshot());
        let entry = |task: DirEntry| {
            let tid = task.file_name().to_str()?.parse().ok()?;
            Some(Entry {
                tid,
                stat: Stat::read(&task.path()).ok()?,
                works: works.remove(&tid),
            })
        };
        // A thread may end between the listing and the read.
        let tasks = fs::read_dir("/proc/self/task")?.flatten();
        let mut threads: Vec<Entry> = tasks.filter_map(entry).collect();
        threads.sort_by_key(|thread| thread.tid);
        Ok(Self { taken, threads })
    }

    /// Formats a table, one line per thread.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{:>8}  {:<15}  {:<5}  {:>9}  {:>9}  WORKS ON\n",
            "TID", "NAME", "STATE", "USER", "SYSTEM"
        );
        for thread in &self.threads {
            let stat = &thread.stat;
            writeln!(
                text,
                "{:>8}  {:<15}  {:<5}  {:>7.2} s  {:>7.2} s  {}",
                thread.tid,
                stat.name,
                stat.state,
                seconds(stat.user),
                seconds(stat.system),
                self.works_of(thread)
            )
            .unwrap_or_default();
        }
        text
    }

    fn works_of(&self, thread: &Entry) -> String {
        match thread.works.as_deref() {
            None => "-".to_owned(),
            Some([]) => "idle".to_owned(),
            Some(works) => {
                let texts: Vec<String> = works.iter().map(|work| self.describe(work)).collect();
                texts.join(", ")
            }
        }
    }

    fn describe(&self, work: &Work) -> String {
        let ago = |then| self.taken.saturating_duration_since(then).as_secs_f64();
        let mut text = work.what.to_owned();
        if !work.detail.is_empty() {
            text.extend([" ", &escaped(&work.detail)]);
        }
        write!(text, " for {:.1} s", ago(work.since)).unwrap_or_default();
        if let Some(heard) = work.heard {
            write!(text, " (last byte {:.1} s ago)", ago(heard)).unwrap_or_default();
        }
        text
    }
}

/// Logs the thread list for SIGUSR1. Called on the signal thread.
pub fn log_threads() {
    let report = match ThreadReport::take() {
        Ok(report) => report,
        Err(error) => return log::warn!(error:%; "cannot list the threads"),
    };
    for thread in &report.threads {
        let stat = &thread.stat;
        log::info!(
            "thread {} ({}) {} {:.2} s: {}",
            stat.name,
            thread.tid,
            stat.state,
            seconds(stat.user + stat.system),
            report.works_of(thread)
        );
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
