//! What the daemon counts and measures, as Prometheus reads it: upstream's series under upstream's
//! names, labels, help and buckets, and ours under `replicaset_controller_`.
//!
//! [`global`] is the process's one set; the HTTP server shows it by [`render`] and [`render_slis`].
//! Rooms that record hold handles that were made once ([`prometheus`]' handles are atomics behind an
//! `Arc`), so that nothing is looked up or allocated per pod. No series carries a ReplicaSet's name, so
//! their number does not grow with the cluster.

pub mod computed;
pub mod controller;
pub mod credentials;
pub mod daemon;
pub mod process;
pub mod registry;
pub mod rest_client;
mod text;
pub mod watch;
pub mod workqueue;

use std::sync::LazyLock;

pub use text::CONTENT_TYPE;

use controller::ControllerFamilies;
use credentials::CredentialMetrics;
use daemon::{EventFamilies, HealthcheckMetrics, LeaderElectionMetrics};
use process::BuildMetrics;
use registry::Registry;
use rest_client::RestClientFamilies;
use watch::WatchFamilies;
use workqueue::WorkQueueFamilies;

/// Every family of one process, or of one test.
#[derive(Debug)]
pub struct Metrics {
    main: Registry,
    slis: Registry,
    /// What was built and what is switched on.
    pub build: BuildMetrics,
    /// The controllers' work.
    pub controller: ControllerFamilies,
    /// Exec plugins, reloads, TLS settings.
    pub credentials: CredentialMetrics,
    /// Events for people.
    pub events: EventFamilies,
    /// The lease.
    pub leader_election: LeaderElectionMetrics,
    /// Requests.
    pub rest_client: RestClientFamilies,
    /// Watches and caches.
    pub watch: WatchFamilies,
    /// Work queues.
    pub workqueue: WorkQueueFamilies,
    /// Results of health checks, shown by [`Metrics::render_slis`] only.
    pub healthchecks: HealthcheckMetrics,
}

impl Metrics {
    /// A set in which nothing was recorded yet.
    pub fn new() -> Self {
        let (main, slis) = (Registry::default(), Registry::default());
        process::register(&main);
        Self {
            build: BuildMetrics::new(&main),
            controller: ControllerFamilies::new(&main),
            credentials: CredentialMetrics::new(&main),
            events: EventFamilies::new(&main),
            leader_election: LeaderElectionMetrics::new(&main),
            rest_client: RestClientFamilies::new(&main),
            watch: WatchFamilies::new(&main),
            workqueue: WorkQueueFamilies::new(&main),
            healthchecks: HealthcheckMetrics::new(&slis),
            main,
            slis,
        }
    }

    /// What `/metrics` answers, of type [`CONTENT_TYPE`]. Does not block.
    pub fn render(&self) -> String {
        self.main.render()
    }

    /// What `/metrics/slis` answers, of type [`CONTENT_TYPE`]. Does not block.
    pub fn render_slis(&self) -> String {
        self.slis.render()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// The process's set.
pub fn global() -> &'static Metrics {
    static GLOBAL: LazyLock<Metrics> = LazyLock::new(Metrics::new);
    &GLOBAL
}

/// What `/metrics` answers in this process.
pub fn render() -> String {
    global().render()
}

/// What `/metrics/slis` answers in this process.
pub fn render_slis() -> String {
    global().render_slis()
}

/// A count as Prometheus has it.
#[expect(
    clippy::cast_precision_loss,
    reason = "Prometheus knows no other numbers, and counts above 2^53 take millennia"
)]
pub(crate) fn whole(count: u64) -> f64 {
    count as f64
}
