//! The stage of the chapters: the dev server, a controller that can be killed, a client for the
//! demo's own requests, and what it prints. Runs on the main thread; every wait ends at a deadline
//! or at the stop signal.

use std::io::Stdout;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Lines, Scene, rows};
use crate::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use crate::client::{Client, ClientConfig, ClientError, ClientOptions, Request};
use crate::devserver::{Action, DevServer, Matcher, Recorded, Rule, RuleHandle, Tally};
use crate::manager::{Manager, ManagerOptions};
use crate::run::local::World;
use crate::stdx::stop::{Cause, Stop};
use crate::telemetry::{Health, metrics};

/// Interval between two snapshots of the server's objects.
const LOOK_EVERY: Duration = Duration::from_millis(60);

/// Maximum wait for a reaction; generous, for busy machines.
const PATIENCE: Duration = Duration::from_mins(2);

/// User agent of the demo's own requests.
const HANDS: &str = "demo-hands";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChapterError {
    Missed(String),
    /// The demo was stopped.
    Stopped,
}

pub(super) type ChapterResult<T> = Result<T, ChapterError>;

#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) ready_after: Duration,
    /// Factor for all delays.
    pub(super) pause_scale: f64,
}

struct Controller {
    manager: Manager,
    stop: Stop,
}

pub(super) struct Stage<'a> {
    server: &'a DevServer,
    config: ClientConfig,
    hands: Client,
    controller: Option<Controller>,
    /// The stop signal of the program.
    stop: &'a Stop,
    lines: Lines<Stdout>,
    pace: Pace,
    started: Instant,
    /// What to print; each snapshot sets its rows and time.
    scene: Scene,
}

impl<'a> Stage<'a> {
    pub(super) fn new(server: &'a DevServer, pace: Pace, stop: &'a Stop) -> Self {
        let config = ClientConfig::plain(&server.url());
        let options = ClientOptions {
            qps: 0.0,
            user_agent: HANDS.to_owned(),
            ..ClientOptions::default()
        };
        let hands = Client::new(&config, &options, stop);
        Self {
            server,
            config,
            hands,
            controller: None,
            stop,
            lines: Lines::new(std::io::stdout()),
            pace,
            started: Instant::now(),
            scene: Scene::default(),
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn lines(&mut self) -> &mut Lines<Stdout> {
        &mut self.lines
    }

    pub(super) fn open(&mut self, chapter: (usize, usize), headline: &str) {
        self.scene = Scene {
            chapter,
            headline: headline.to_owned(),
            ..Scene::default()
        };
    }

    pub(super) fn command(&mut self, text: impl Into<String>) {
        self.scene.command = text.into();
    }

    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.scene.notes.push(text.into());
    }

    pub(super) fn set_notes(&mut self, notes: Vec<String>) {
        self.scene.notes = notes;
    }

    /// Takes a snapshot of the server's objects and prints what is new.
    pub(super) fn look(&mut self) -> ChapterResult<World> {
        if self.stop.is_stopped() {
            return Err(ChapterError::Stopped);
        }
        if let Some(controller) = &self.controller
            && let Some(Cause::Failed(why)) = controller.stop.cause()
        {
            return Err(ChapterError::Missed(format!(
                "the controller failed: {why}"
            )));
        }
        let sets = self.server.objects("replicasets", "");
        let pods = self.server.objects("pods", "");
        let events = self.server.objects("events", "");
        let world = World::read(&sets, &pods, &events);
        self.scene.rows = rows(&world);
        self.scene.elapsed = self.started.elapsed();
        self.lines.show(&self.scene);
        Ok(world)
    }

    /// Waits until `holds` returns true. Fails with `what` if that takes longer than
    /// [`PATIENCE`].
    pub(super) fn until(
        &mut self,
        what: &str,
        mut holds: impl FnMut(&mut Self, &World) -> bool,
    ) -> ChapterResult<World> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let world = self.look()?;
            if holds(self, &world) {
                return Ok(world);
            }
            if Instant::now() >= deadline {
                let seconds = PATIENCE.as_secs();
                return Err(ChapterError::Missed(format!(
                    "timed out after {seconds} s waiting for: {what}"
                )));
            }
            if self.stop.wait_timeout(LOOK_EVERY) {
                return Err(ChapterError::Stopped);
            }
        }
    }

    /// Pauses for this many seconds of the steady pace; changes are printed.
    pub(super) fn pause(&mut self, seconds: f64) -> ChapterResult<World> {
        self.hold("", seconds * self.pace.pause_scale, |_| true)
    }

    /// Checks for this many seconds that `holds` stays true, at every pace.
    pub(super) fn hold(
        &mut self,
        what: &str,
        seconds: f64,
        holds: impl Fn(&World) -> bool,
    ) -> ChapterResult<World> {
        let deadline = Instant::now() + Duration::from_secs_f64(seconds);
        loop {
            let world = self.look()?;
            check(holds(&world), || format!("it is false that {what}"))?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(world);
            }
            if self.stop.wait_timeout(left.min(LOOK_EVERY)) {
                return Err(ChapterError::Stopped);
            }
        }
    }

    pub(super) fn create(&mut self, path: &str, object: &Value) -> ChapterResult<()> {
        let request = Request::post(path).body("application/json", object.to_string());
        self.send(&request)
    }

    pub(super) fn patch(&mut self, path: &str, patch: &Value) -> ChapterResult<()> {
        let body = patch.to_string();
        let request = Request::patch(path).body("application/merge-patch+json", body);
        self.send(&request)
    }

    pub(super) fn delete(&mut self, path: &str) -> ChapterResult<()> {
        self.send(&Request::delete(path))
    }

    fn send(&mut self, request: &Request) -> ChapterResult<()> {
        match self.hands.send(request) {
            Ok(_) => Ok(()),
            Err(ClientError::Stopped) => Err(ChapterError::Stopped),
            Err(error) => Err(ChapterError::Missed(format!("{request}: {error}"))),
        }
    }

    pub(super) fn requests(&self, verb: &str, resource: &str) -> Vec<Arc<Recorded>> {
        let mut requests = self.server.faults().recorder().find(verb, resource);
        requests.retain(|recorded| !is_by_hand(recorded.request.header("user-agent")));
        requests
    }

    pub(super) fn n_requests(&self) -> usize {
        self.server.faults().recorder().requests().len()
    }

    /// Applies a rule to requests until the rule is removed.
    pub(super) fn add_rule(&self, rule: Rule) -> RuleHandle {
        self.server.faults().add(rule)
    }

    /// Returns the server's version, for [`Stage::pods_since`].
    pub(super) fn version(&self) -> u64 {
        self.server.version()
    }

    /// Counts the pods created and deleted since a version, in one namespace or, if it is empty, in
    /// all.
    pub(super) fn pods_since(&self, version: u64, namespace: &str) -> Tally {
        self.server.tally("pods", namespace, version)
    }

    /// Starts a controller. None may be running.
    pub(super) fn start_controller(&mut self) -> ChapterResult<()> {
        let stop = Stop::new();
        let health = Health::new(metrics::global());
        let options = ManagerOptions {
            controllers: vec![&REPLICA_SET, &REPLICATION_CONTROLLER],
            deployments: true,
            kube_api_qps: 0.0,
            ..ManagerOptions::default()
        };
        let manager = Manager::start(&self.config, &options, &health, &stop);
        let manager = manager.map_err(|error| {
            ChapterError::Missed(format!("cannot start the controller: {error}"))
        })?;
        self.controller = Some(Controller { manager, stop });
        Ok(())
    }

    /// Ends the controller like `kill -9`, from the API server's view: the server answers none of
    /// its requests any more. Blocks until its threads have ended.
    pub(super) fn kill_controller(&mut self) -> ChapterResult<()> {
        let is_its = |agent: &str| !is_by_hand(agent);
        let its = Matcher::new(move |request| is_its(request.header("user-agent")));
        let deaf = self.add_rule(Rule::new(its, Action::CutBefore));
        let stopped = self.stop_controller();
        deaf.remove();
        stopped
    }

    /// Stops the controller, if one is running. Blocks until its threads have ended.
    pub(super) fn stop_controller(&mut self) -> ChapterResult<()> {
        let Some(Controller { manager, stop }) = self.controller.take() else {
            return Ok(());
        };
        stop.stop(Cause::Requested("the demo stops it".to_owned()));
        match manager.wait() {
            Ok(Cause::Requested(_)) => Ok(()),
            Ok(Cause::Failed(why)) => Err(ChapterError::Missed(format!(
                "the controller failed: {why}"
            ))),
            Err(stuck) => Err(ChapterError::Missed(format!(
                "threads did not end: {stuck}"
            ))),
        }
    }
}

fn is_by_hand(user_agent: &str) -> bool {
    user_agent == HANDS
}

/// Fails with `what` unless `holds`.
pub(super) fn check(holds: bool, what: impl FnOnce() -> String) -> ChapterResult<()> {
    if holds {
        Ok(())
    } else {
        Err(ChapterError::Missed(what()))
    }
}
