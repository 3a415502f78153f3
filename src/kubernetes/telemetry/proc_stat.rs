//! The kernel's figures about this process and its threads: `/proc/[pid]/stat`, proc(5).

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};

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
    /// In bytes.
    pub(super) virtual_memory: u64,
    /// In pages.
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

/// Converts ticks into seconds.
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

    use super::{Stat, page_size, seconds};

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
