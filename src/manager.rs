//! Owns every thread of the daemon: who starts when, who stops when, and by when.
//!
//! Start: batches, then for each kind that is controlled an [`Engine`] (events, delay, workers), then
//! the watches; the workers wait until the stores they read have synced. Stop: the stop signal shuts
//! the queues and wakes the watches; then workers are joined, events drained, and the rest joined, all
//! within [`ManagerOptions::stop_within`]. What does not end by then is named.

mod batch_pool;
mod clients;
mod engine;
mod explained;
mod numbers;
mod options;
mod watches;

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::batch_pool::BatchPool;
use self::clients::watch_client_options;
pub use self::engine::Engine;
use self::engine::Shared;
pub use self::options::ManagerOptions;
use self::watches::start_watches;
use crate::api::WorkloadKind;
use crate::cache::PodStore;
use crate::client::{Client, ClientConfig, ClientError};
use crate::stdx::stop::{Cause, Stop};
use crate::stdx::thread::Thread;

/// Part of the stop time after which requests that are still under way are cut.
const ABORT_SHARE: u32 = 2;

/// What the threads `events` and `rc-events` are left at least, once the workers have ended.
const EVENTS_WITHIN: Duration = Duration::from_secs(5);

/// The running daemon.
#[derive(Debug)]
pub struct Manager {
    engines: Vec<Engine>,
    stop: Stop,
    /// Given when nobody records events any more.
    events_stop: Stop,
    watches: Vec<Thread>,
    batches: BatchPool,
    stop_within: Duration,
}

impl Manager {
    /// Starts all threads. Blocks for no request: an API server that cannot be reached yet is tried
    /// again until it can.
    ///
    /// # Errors
    /// If the configuration does not make a client.
    pub fn start(
        config: &ClientConfig,
        options: &ManagerOptions,
        stop: &Stop,
    ) -> Result<Self, ClientError> {
        let events_stop = Stop::new();
        let pods = Arc::new(PodStore::default());
        let watch_client = Client::new(config, &watch_client_options(options), stop)?;
        let batches = BatchPool::start(options.batch_parallelism, stop);
        let shared = Shared {
            config,
            options,
            pods: &pods,
            batches: &batches,
            stop,
            events_stop: &events_stop,
        };
        let engines = options.controllers.iter();
        let engines: Vec<Engine> = engines
            .map(|kind| Engine::start(kind, &shared))
            .collect::<Result<_, _>>()?;
        let watches = start_watches(&watch_client, &pods, &engines, options, stop);
        Ok(Self {
            engines,
            stop: stop.clone(),
            events_stop,
            watches,
            batches,
            stop_within: options.stop_within,
        })
    }

    /// The controllers that run, one for each kind.
    pub fn engines(&self) -> &[Engine] {
        &self.engines
    }

    /// The controller of this kind, if it runs.
    pub fn engine(&self, kind: &WorkloadKind) -> Option<&Engine> {
        self.engines.iter().find(|engine| engine.kind() == kind)
    }

    /// Waits for the stop signal, then until every thread has ended, at most
    /// [`ManagerOptions::stop_within`]. Answers why the daemon stopped.
    ///
    /// # Errors
    /// The names of the threads that were still running then.
    pub fn wait(mut self) -> Result<Cause, String> {
        let cause = self.stop.wait();
        match &cause {
            Cause::Requested(why) => log::info!("stopping: {why}"),
            Cause::Failed(why) => log::error!("stopping: {why}"),
        }
        let deadline = Instant::now() + self.stop_within;
        let abort = Instant::now() + self.stop_within / ABORT_SHARE;
        for engine in &self.engines {
            engine.shut_down();
        }

        if !self
            .engines
            .iter()
            .all(|it| it.workers_have_ended_by(abort))
        {
            log::warn!("requests under way are cut, their outcome is not known");
            for engine in &self.engines {
                engine.abort_requests();
            }
        }
        let mut stuck = Vec::new();
        for engine in &mut self.engines {
            stuck.extend(join_all(engine.take_workers(), deadline));
        }
        self.events_stop.stop(cause.clone());
        let abort = abort.max(Instant::now() + EVENTS_WITHIN);
        if !self.engines.iter().all(|it| it.events_have_ended_by(abort)) {
            log::warn!("the last events are given up");
            for engine in &self.engines {
                engine.abort_events();
            }
        }
        let delays = self.engines.into_iter().map(|engine| {
            let (events, delay) = engine.into_threads();
            stuck.extend(join_all(vec![events], deadline));
            delay
        });
        let delays: Vec<Thread> = delays.collect();
        stuck.extend(join_all(self.watches, deadline));
        stuck.extend(join_all(delays, deadline));
        // ORDER: the pool ends when nobody holds it any more, and the watches were the last who did.
        stuck.extend(self.batches.join_until(deadline));
        if stuck.is_empty() {
            Ok(cause)
        } else {
            Err(stuck.join(", "))
        }
    }
}

/// The names of the threads that have not ended by `deadline`.
fn join_all(threads: Vec<Thread>, deadline: Instant) -> Vec<String> {
    threads
        .into_iter()
        .filter_map(|thread| thread.join_until(deadline).err())
        .collect()
}
