//! Prometheus metrics: upstream's series under upstream's names, labels, help and buckets, and this
//! project's own under `replicaset_controller_`.
//!
//! [`global`] is the set of the process; the HTTP server renders it by [`render`] and
//! [`render_slis`]. Recording code keeps its handles ([`prometheus`] handles are atomics behind an
//! `Arc`), so that it neither looks up nor allocates anything per pod. No series is labeled by
//! ReplicaSet, so the number of series does not grow with the cluster.

pub mod computed;
pub mod controller;
pub mod credentials;
pub mod daemon;
pub mod process;
pub mod registry;
pub mod rest_client;
pub mod watch;
pub mod workqueue;

use std::sync::LazyLock;

pub(super) use credentials::seconds_until;

use controller::ControllerFamilies;
use credentials::CredentialMetrics;
use daemon::{EventFamilies, HealthcheckMetrics, LeaderElectionMetrics};
use process::BuildMetrics;
use registry::Registry;
use rest_client::RestClientFamilies;
use watch::WatchFamilies;
use workqueue::WorkQueueFamilies;

/// `Content-Type` of the pages.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All families of one process or one test.
#[derive(Debug)]
pub struct Metrics {
    main: Registry,
    slis: Registry,
    /// Build information and feature gates.
    pub build: BuildMetrics,
    /// The controllers.
    pub controller: ControllerFamilies,
    /// Exec plugins, reloaded files and TLS settings.
    pub credentials: CredentialMetrics,
    /// Kubernetes events.
    pub events: EventFamilies,
    /// Leader election.
    pub leader_election: LeaderElectionMetrics,
    /// Requests to the API server.
    pub rest_client: RestClientFamilies,
    /// Watches and caches.
    pub watch: WatchFamilies,
    /// Work queues.
    pub workqueue: WorkQueueFamilies,
    /// Results of health checks; only [`Metrics::render_slis`] renders them.
    pub healthchecks: HealthcheckMetrics,
}

impl Metrics {
    /// A set without any samples.
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

    /// The body of `/metrics`, of type [`CONTENT_TYPE`]. Does not block.
    pub fn render(&self) -> String {
        self.main.render()
    }

    /// The body of `/metrics/slis`, of type [`CONTENT_TYPE`]. Does not block.
    pub fn render_slis(&self) -> String {
        self.slis.render()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// The metrics of this process.
pub fn global() -> &'static Metrics {
    static GLOBAL: LazyLock<Metrics> = LazyLock::new(Metrics::new);
    &GLOBAL
}

/// The body of `/metrics` for this process.
pub fn render() -> String {
    global().render()
}

/// The body of `/metrics/slis` for this process.
pub fn render_slis() -> String {
    global().render_slis()
}

/// Converts a count into Prometheus' number type.
#[expect(
    clippy::cast_precision_loss,
    reason = "Prometheus knows no other numbers, and counts above 2^53 take millennia"
)]
pub fn whole(count: u64) -> f64 {
    count as f64
}
