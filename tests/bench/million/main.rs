//! One daemon beside 1,000,000 pods: memory, start, and pod events a second.
//!
//! `make bench-million` starts a real API server, which makes one object of each kind, and runs
//! this. The fixture then plays an API server with any number of such objects.

mod cluster;
mod daemon;
mod layout;
mod sample;
mod server;
mod world;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Parser;
use replicaset_controller::http_server::Server;
use replicaset_controller::stdx::stop::Stop;

use cluster::Cluster;
use daemon::{Daemon, Usage, pause};
use layout::{Layout, REPLICAS};
use sample::Samples;
use world::World;

/// How long anything may take before the daemon counts as stuck.
const STUCK_AFTER: Duration = Duration::from_mins(10);

/// Interval between bursts of pod events.
const TICK: Duration = Duration::from_millis(10);

/// Interval between checks of what is awaited. A check of every status takes milliseconds.
const POLL: Duration = Duration::from_millis(100);

/// How far apart in the list the pods of consecutive events are: coprime to any layout's number.
const STRIDE: usize = 611_953;

#[derive(Debug, Parser)]
struct Options {
    /// Numbers of pods, with a tenth as many ReplicaSets, half of them at zero.
    #[arg(long, value_delimiter = ',', default_value = "2000,100000,1000000")]
    pods: Vec<usize>,
    /// Pod events a second.
    #[arg(long, default_value_t = 5000)]
    rate: usize,
    /// For how long.
    #[arg(long, default_value_t = 60)]
    seconds: usize,
    /// Pods in the real API server, for comparison.
    #[arg(long, default_value_t = 0)]
    real_pods: usize,
    /// The daemon.
    #[arg(long, default_value = concat!(
        env!("CARGO_MANIFEST_DIR"), "/../../../target/release/replicaset-controller"
    ))]
    daemon: PathBuf,
    /// Cargo passes it to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            print(&format!("million: {problem}"));
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let cluster = Cluster::from_environment()?;
    cluster.create_namespaces(layout_of(options.real_pods.max(REPLICAS)))?;
    let mut samples = Samples::take(&cluster)?;
    let mut empty = None;
    for &pods in &options.pods {
        print(&format!("{pods} pods, {} ReplicaSets", pods / 10));
        let mut run = Run::start(layout_of(pods), samples, &options.daemon)?;
        let settled = run.measure_start()?;
        let (resident_before, cpu_before, pods_before) =
            *empty.get_or_insert((settled.resident, settled.cpu, pods));
        let more = number(pods - pods_before);
        if more > 0.0 {
            let bytes = (settled.resident - resident_before) * 1024.0 * 1024.0 / more;
            figure("bytes a pod, with its share of the ReplicaSets", bytes);
            let microseconds = (settled.cpu - cpu_before) * 1e6 / more;
            figure("start, CPU µs a pod", microseconds);
        }
        run.measure_events(options.rate, options.seconds)?;
        run.measure_ceiling(options.rate)?;
        run.check()?;
        samples = run.stop()?;
    }
    if options.real_pods > 0 {
        compare(&cluster, samples, options)?;
    }
    Ok(())
}

fn layout_of(pods: usize) -> Layout {
    Layout {
        n_current: pods / REPLICAS,
    }
}

/// Compares the fixture with the real API server, as the daemon sees them.
fn compare(cluster: &Cluster, samples: Samples, options: &Options) -> Result<(), String> {
    let layout = layout_of(options.real_pods);
    print(&format!("{} pods in the real API server", layout.n_pods()));
    cluster.create_all(layout)?;
    figure("bytes a pod on the wire", number(cluster.bytes_of_pod()?));
    let daemon = Daemon::start(&options.daemon, &cluster.kubeconfig)?;
    daemon.wait_idle()?;
    print_usage(daemon.usage()?);
    drop(daemon);
    print(&format!("{} pods in the fixture", layout.n_pods()));
    let mut run = Run::start(layout, samples, &options.daemon)?;
    figure("bytes a pod on the wire", number(run.world.bytes_of_pod()));
    run.measure_start()?;
    run.stop()?;
    Ok(())
}

/// One daemon at the fixture.
struct Run {
    world: Arc<World>,
    daemon: Daemon,
    server: Server,
    /// Has the kubeconfig.
    _folder: tempfile::TempDir,
    n_events: usize,
}

impl Run {
    fn start(layout: Layout, samples: Samples, program: &Path) -> Result<Self, String> {
        let world = Arc::new(World::new(layout, samples));
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let server = server::start(&world, folder.path(), &Stop::new())?;
        let daemon = Daemon::start(program, &folder.path().join("kubeconfig"))?;
        Ok(Self {
            world,
            daemon,
            server,
            _folder: folder,
            n_events: 0,
        })
    }

    fn measure_start(&mut self) -> Result<Usage, String> {
        let first_write = &self.world.counts.first_write;
        let created = || first_write.get().copied();
        wait("first write", || created().is_some())?;
        let first = created().map_or(0.0, |at| (at - self.daemon.started).as_secs_f64());
        figure("start to the first write, s", first);
        figure("start to the first write, CPU s", self.daemon.cpu()?);
        self.wait_reported()?;
        self.daemon.wait_idle()?;
        figure("status writes of the start", number(self.n_statuses()));
        let usage = self.daemon.usage()?;
        print_usage(usage);
        Ok(usage)
    }

    /// Waits until every status is that of its pods, and returns the seconds.
    fn wait_reported(&self) -> Result<f64, String> {
        let began = Instant::now();
        wait("status of each ReplicaSet", || {
            self.world.n_unreported() == 0
        })?;
        Ok(began.elapsed().as_secs_f64())
    }

    /// Sends pod events at this rate, each to another ReplicaSet than the one before.
    fn measure_events(&mut self, rate: usize, seconds: usize) -> Result<(), String> {
        let statuses = self.n_statuses();
        let (cpu, thread) = (self.daemon.cpu()?, self.daemon.cpu_of_thread("watch-pods")?);
        let began = Instant::now();
        let per_tick = rate / 100;
        for tick in 1..=seconds * 100 {
            for _ in 0..per_tick {
                self.send_event();
            }
            let due = began + TICK * u32::try_from(tick).unwrap_or(u32::MAX);
            pause(due.saturating_duration_since(Instant::now()));
        }
        let sent = began.elapsed().as_secs_f64();
        let lag = self.wait_reported()?;
        let n = number(seconds * 100 * per_tick);
        figure("pod events a second", n / sent);
        figure(
            "status writes a second",
            number(self.n_statuses() - statuses) / (sent + lag),
        );
        figure("last event to the last status, s", lag);
        let (cpu, thread) = (
            self.daemon.cpu()? - cpu,
            self.daemon.cpu_of_thread("watch-pods")? - thread,
        );
        figure("CPU µs an event", cpu * 1e6 / n);
        figure("processors in use", cpu / sent);
        figure("events a CPU second of watch-pods", n / thread);
        Ok(())
    }

    /// Sends ten seconds' events as fast as the daemon reads them.
    fn measure_ceiling(&mut self, rate: usize) -> Result<(), String> {
        let n = 10 * rate;
        let began = Instant::now();
        for _ in 0..n {
            self.send_event();
        }
        figure(
            "without a limit, pod events a second",
            number(n) / began.elapsed().as_secs_f64(),
        );
        figure("last event to the last status, s", self.wait_reported()?);
        print_usage(self.daemon.usage()?);
        Ok(())
    }

    fn send_event(&mut self) {
        self.n_events += 1;
        self.world
            .toggle(self.n_events * STRIDE % self.world.layout.n_pods());
    }

    fn n_statuses(&self) -> usize {
        self.world.counts.statuses.load(Ordering::Relaxed)
    }

    /// Fails if the daemon has done anything but create the missing pods and report.
    fn check(&self) -> Result<(), String> {
        let counts = &self.world.counts;
        let of = |count: &std::sync::atomic::AtomicUsize| count.load(Ordering::Relaxed);
        let (creates, missing) = (of(&counts.creates), self.world.layout.n_missing());
        figure("pods that were missing", number(missing));
        figure("creates", number(creates));
        figure("overshoot", number(of(&counts.overshoot)));
        figure("deletes", number(of(&counts.deletes)));
        let unknown = counts.unknown.lock();
        if creates == missing && of(&counts.deletes) == 0 && unknown.is_empty() {
            return Ok(());
        }
        Err(format!(
            "the daemon does what it should not; unknown requests: {unknown:?}"
        ))
    }

    fn stop(self) -> Result<Samples, String> {
        let Self {
            world,
            daemon,
            mut server,
            ..
        } = self;
        drop(daemon);
        server.stop();
        drop(server);
        wait("end of the connections", || Arc::strong_count(&world) == 1)?;
        let world = Arc::into_inner(world).ok_or("the fixture is still in use")?;
        Ok(world.into_samples())
    }
}

fn wait(what: &str, is_done: impl Fn() -> bool) -> Result<(), String> {
    let began = Instant::now();
    while !is_done() {
        if began.elapsed() > STUCK_AFTER {
            return Err(format!("no {what} after {STUCK_AFTER:?}"));
        }
        pause(POLL);
    }
    Ok(())
}

fn print_usage(usage: Usage) {
    figure("settled memory, MiB", usage.resident);
    figure("peak memory, MiB", usage.peak);
    figure("CPU so far, s", usage.cpu);
}

fn figure(name: &str, value: f64) {
    print(&format!("  {name:<48} {value:>12.2}"));
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn number(count: usize) -> f64 {
    count as f64
}

fn print(line: &str) {
    // Without a reader there is nobody to print for.
    writeln!(std::io::stdout().lock(), "{line}").unwrap_or_default();
}
