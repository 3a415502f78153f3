//! Fuzzing of every reader of bytes that other programs send.
//!
//! Each [`Target`] reads an input that [`mutate`] draws from the target's corpus, and asserts more
//! than that nothing panics: both encodings of one object agree, a body read in pieces is the body
//! read whole, what is served can be read again, memory is bounded by the input's length and, in
//! long runs, so is CPU time. The number of an iteration decides its input.
//!
//! `cargo test` reads the corpus and some drawn inputs. `make fuzz` draws for `FUZZ_MINUTES`, in
//! slices of some seconds, always for the target that ran least, and continues after the last
//! iteration on record. A failure is made smaller and saved; add it to `tests/data/fuzz/TARGET`, so
//! that every run reads it first.

mod cluster;
#[cfg(feature = "devserver")]
mod dev;
mod encode;
mod files;
mod http;
mod large;
mod mutate;
mod record;
mod secrets;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use parking_lot::Mutex;

use self::mutate::Form;
use self::record::Figures;
use crate::stdx::testing::thread_time;

/// Allocated bytes at once, for an empty input and for each of its bytes. A `serde_json::Value`
/// takes 32 bytes for two of JSON, several times while a vector grows.
const MEMORY_MAX: u64 = 8 << 20;
const MEMORY_PER_BYTE_MAX: u64 = 512;

/// CPU time for an empty input and for each KiB.
const CPU_MAX: Duration = Duration::from_millis(5);
const CPU_PER_KIB_MAX: Duration = Duration::from_micros(50);

/// How long a long run stays with a target before it keeps the figures and takes the next one. A
/// run that is cut off loses no more than this of each processor.
const SLICE: Duration = Duration::from_secs(10);

/// Tries to make a failing input smaller.
const SHRINKS_MAX: usize = 300;

/// A reader, or several that read the same bytes.
struct Target {
    name: &'static str,
    form: Form,
    /// Drawn inputs of a short run.
    n_short: u64,
    /// How many times the CPU time of a plain reader it may take.
    cpu_factor: u32,
    /// Inputs to draw from, besides the files in the target's folder.
    corpus: fn() -> Vec<Vec<u8>>,
    /// Makes what reads the inputs. It returns true if it accepts one, and panics if an oracle
    /// fails.
    reader: fn() -> Reader,
}

type Reader = Box<dyn FnMut(&[u8]) -> bool>;

fn targets() -> Vec<Target> {
    let mut targets = cluster::targets();
    #[cfg(feature = "devserver")]
    targets.extend(dev::targets());
    targets.extend(files::targets());
    targets.extend(http::targets());
    targets.push(secrets::target());
    targets
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A file of `tests/data`.
fn data(name: &str) -> Vec<u8> {
    fs::read(root().join("tests/data").join(name)).expect("a file of tests/data")
}

fn text_of(inputs: &[&str]) -> Vec<Vec<u8>> {
    inputs.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// What one input came to.
struct Course {
    accepted: bool,
    took: Duration,
}

/// A target at work.
struct Session {
    target: Target,
    /// The corpus: files first.
    corpus: Vec<Vec<u8>>,
    n_files: usize,
    reader: Reader,
    bounds_cpu: bool,
}

impl Session {
    fn new(target: Target, bounds_cpu: bool) -> Self {
        let folder = root().join("tests/data/fuzz").join(target.name);
        let mut files: Vec<PathBuf> = fs::read_dir(folder).map_or_else(
            |_| Vec::new(),
            |entries| entries.flatten().map(|entry| entry.path()).collect(),
        );
        files.sort();
        let files = files
            .iter()
            .map(|file| fs::read(file).expect("a readable file"));
        let mut corpus: Vec<Vec<u8>> = files.collect();
        let n_files = corpus.len();
        corpus.extend((target.corpus)());
        Self {
            reader: (target.reader)(),
            target,
            corpus,
            n_files,
            bounds_cpu,
        }
    }

    fn input(&self, iteration: u64) -> Vec<u8> {
        let name = self.target.name.bytes();
        let salt = name.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut rng = Rng::with_seed(salt.wrapping_add(iteration));
        mutate::draw(&mut rng, &self.corpus, self.target.form)
    }

    /// Reads an input.
    ///
    /// # Errors
    /// What the input broke.
    fn read(&mut self, input: &[u8]) -> Result<Course, String> {
        let length = input.len() as u64;
        let kib = u32::try_from(length / 1024).unwrap_or(u32::MAX);
        let bound = (CPU_MAX + CPU_PER_KIB_MAX * kib) * self.target.cpu_factor;
        let mut n_tries = 3;
        loop {
            let mut result = Ok(false);
            let before = thread_time();
            let reader = &mut self.reader;
            let memory = allocation_counter::measure(|| {
                result = catch_unwind(AssertUnwindSafe(|| reader(input)));
            });
            let took = thread_time().saturating_sub(before);
            let accepted = result.map_err(|panic| described(panic.as_ref()))?;
            if memory.bytes_max > MEMORY_MAX + MEMORY_PER_BYTE_MAX * length {
                return Err(format!("{} bytes for {length}", memory.bytes_max));
            }
            if !self.bounds_cpu || took <= bound {
                return Ok(Course { accepted, took });
            }
            // Another process may have cooled the caches.
            n_tries -= 1;
            if n_tries == 0 {
                return Err(format!("{took:?} for {length} bytes"));
            }
        }
    }

    /// Reads an input; makes it smaller, saves it and panics if it breaks something.
    fn check(&mut self, input: Vec<u8>, number: &str) -> (Course, usize) {
        let error = match self.read(&input) {
            Ok(course) => return (course, input.len()),
            Err(error) => error,
        };
        let name = self.target.name;
        let smallest = self.shrink(input);
        let folder = root().join("target/fuzz");
        let file = folder.join(format!("{name}-{number}"));
        fs::create_dir_all(&folder).expect("a folder for the input");
        fs::write(&file, &smallest).expect("room on the disk");
        panic!(
            "{name}, iteration {number}: {error}\nsmallest input: {} ({} bytes)\nto repeat: \
             FUZZ={name}:{} cargo test --locked --lib fuzzing",
            file.display(),
            smallest.len(),
            file.display()
        );
    }

    /// Takes pieces away while the input still breaks something.
    fn shrink(&mut self, mut input: Vec<u8>) -> Vec<u8> {
        let mut n_tries = 0;
        let mut piece = input.len() / 2;
        while piece > 0 {
            let mut at = 0;
            while at < input.len() && n_tries < SHRINKS_MAX {
                let mut smaller = input.clone();
                smaller.drain(at..(at + piece).min(input.len()));
                n_tries += 1;
                if self.read(&smaller).is_err() {
                    input = smaller;
                } else {
                    at += piece;
                }
            }
            piece /= 2;
        }
        input
    }

    fn run_files(&mut self) {
        for number in 0..self.n_files {
            let input = self.corpus[number].clone();
            self.check(input, &format!("file-{number}"));
        }
    }

    /// Draws from `first` on until `goes_on` says no.
    fn run(&mut self, first: u64, mut goes_on: impl FnMut(u64) -> bool) -> Figures {
        let mut figures = Figures::new(self.target.name, first);
        let before = thread_time();
        while goes_on(figures.end) {
            let input = self.input(figures.end);
            let (course, length) = self.check(input, &figures.end.to_string());
            figures.add(course.accepted, course.took, length);
        }
        figures.add_cpu_time(thread_time().saturating_sub(before));
        figures
    }
}

fn described(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_default()
}

/// Draws for `time` on all processors, in slices, each for the target that ran least so far.
fn run_long(time: Duration) {
    let record = root().join(record::FILE);
    let until = Instant::now() + time;
    let waiting = Mutex::new(targets());
    let waiting = || waiting.lock();
    let take = || {
        let mut waiting = waiting();
        let times = waiting.iter().map(|it| record::cpu_time(&record, it.name));
        let least = times.enumerate().min_by_key(|&(_, time)| time);
        least.map(|(at, _)| waiting.swap_remove(at))
    };
    let failures = Mutex::new(Vec::new());
    let failures = || failures.lock();
    let work = || {
        while Instant::now() < until {
            let Some(target) = take() else { break };
            let first = record::end(&record, target.name);
            let mut session = Session::new(target, true);
            let run = AssertUnwindSafe(|| {
                session.run_files();
                let end = until.min(Instant::now() + SLICE);
                session.run(first, |_| Instant::now() < end)
            });
            let figures = match catch_unwind(run) {
                Ok(figures) => figures,
                Err(panic) => {
                    failures().push(described(panic.as_ref()));
                    continue;
                }
            };
            let mut waiting = waiting();
            figures.keep(&record);
            waiting.push(session.target);
        }
    };
    let n_threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..n_threads {
            scope.spawn(work);
        }
    });
    record::print(&record);
    let failures = failures();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// Repeats `TARGET:ITERATION` or `TARGET:FILE`.
fn repeat(what: &str) {
    let (name, input) = what
        .split_once(':')
        .expect("TARGET:ITERATION or TARGET:FILE");
    let target = targets().into_iter().find(|target| target.name == name);
    let mut session = Session::new(target.expect("a target"), false);
    let bytes = match input.parse() {
        Ok(iteration) => session.input(iteration),
        Err(_) => fs::read(Path::new(input)).expect("a file to read"),
    };
    if let Err(error) = session.read(&bytes) {
        panic!("{name}: {error}");
    }
}

#[test]
fn no_input_breaks_a_reader() {
    let given = |name| std::env::var(name).ok();
    if let Some(what) = given("FUZZ") {
        return repeat(&what);
    }
    if let Some(minutes) = given("FUZZ_MINUTES").and_then(|it| it.parse::<f64>().ok()) {
        return run_long(Duration::from_secs_f64(60.0 * minutes));
    }
    let mut failures = Vec::new();
    for target in targets() {
        let n_short = target.n_short;
        let mut session = Session::new(target, false);
        let run = || {
            session.run_files();
            session.run(0, |end| end < n_short).print();
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            failures.push(described(panic.as_ref()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn the_same_iteration_draws_the_same_input() {
    for (first, second) in targets().into_iter().zip(targets()) {
        let (first, second) = (Session::new(first, false), Session::new(second, false));
        for iteration in 0..20 {
            assert_eq!(first.input(iteration), second.input(iteration));
        }
    }
}
