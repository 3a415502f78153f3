//! What a process of the daemon uses, by `/proc`.

use std::fs;

use super::daemon::DaemonProcess;

impl DaemonProcess {
    /// A file of the process's folder in `/proc`.
    fn proc(&self, file: &str) -> String {
        let text = fs::read_to_string(format!("/proc/{}/{file}", self.id()));
        text.expect("the process exists")
    }

    /// A memory figure of `/proc/PID/status`, in KiB.
    pub(crate) fn memory(&self, name: &str) -> usize {
        let status = self.proc("status");
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.and_then(|kib| kib.parse().ok()).expect("a field in kB")
    }

    /// Resident memory, in KiB.
    pub(crate) fn resident(&self) -> usize {
        self.memory("VmRSS:")
    }

    /// Peak resident memory since [`reset_peak`](Self::reset_peak), in KiB.
    pub(crate) fn peak(&self) -> usize {
        self.memory("VmHWM:")
    }

    pub(crate) fn reset_peak(&self) {
        let file = format!("/proc/{}/clear_refs", self.id());
        fs::write(file, "5").expect("the process is ours");
    }

    /// User and system time so far, in clock ticks of 10 ms.
    pub(crate) fn processor_time(&self) -> u64 {
        let stat = self.proc("stat");
        let (_, fields) = stat.rsplit_once(')').expect("the name is in parentheses");
        let mut fields = fields.split_whitespace().skip(11);
        let mut next = || fields.next().and_then(|field| field.parse::<u64>().ok());
        next().zip(next()).map_or(0, |(user, system)| user + system)
    }

    pub(crate) fn n_descriptors(&self) -> usize {
        let folder = fs::read_dir(format!("/proc/{}/fd", self.id()));
        folder.expect("the process exists").count()
    }

    /// The names of its threads, in order.
    pub(crate) fn thread_names(&self) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.id()));
        let tasks = tasks.expect("the process exists").flatten();
        // A thread may end in between.
        let names = tasks.flat_map(|task| fs::read_to_string(task.path().join("comm")));
        let mut names: Vec<String> = names.map(|name| name.trim().to_owned()).collect();
        names.sort();
        names
    }
}
