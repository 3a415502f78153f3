//! Where the chapters play: the dev server, a controller that can be killed, the hands that change
//! things, and the display. Everything happens on the main thread; what it waits for ends with a
//! deadline or the stop signal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::scene::{Display, Scene, rows};
use crate::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use crate::client::{Client, ClientConfig, ClientError, ClientOptions, Request};
use crate::devserver::{Action, DevServer, Matcher, Recorded, Rule, RuleHandle, Tally};
use crate::manager::{Manager, ManagerOptions};
use crate::run::RunError;
use crate::run::stand_in::world::World;
use crate::stdx::stop::{Cause, Stop};
use crate::telemetry::health::Health;
use crate::telemetry::metrics;

/// How often the server's objects are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(60);

/// The demo's own name in the requests that it sends.
const HANDS: &str = "demo-hands";

/// Why a chapter did not come out as told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// This was not as it should be.
    Missed(String),
    /// Somebody has stopped the demo.
    Stopped,
}

/// A chapter that goes on, or does not.
pub(super) type Told<T> = Result<T, Miss>;

/// How fast the demo goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// How long a pod takes to become Ready.
    pub(super) ready_after: Duration,
    /// Pauses for the eye are multiplied by this.
    pub(super) pause_scale: f64,
}

/// One controller.
struct Controller {
    manager: Manager,
    stop: Stop,
}

/// The stage.
pub(super) struct Stage<'a> {
    server: &'a DevServer,
    config: ClientConfig,
    hands: Client,
    controller: Option<Controller>,
    /// Given when the whole program stops.
    stop: &'a Stop,
    display: Box<dyn Display>,
    pace: Pace,
    started: Instant,
    /// What is shown; rows and time are filled in at each look.
    scene: Scene,
}

impl<'a> Stage<'a> {
    pub(super) fn new(
        server: &'a DevServer,
        display: Box<dyn Display>,
        pace: Pace,
        stop: &'a Stop,
    ) -> Result<Self, RunError> {
        let config = ClientConfig::plain(&server.url());
        let options = ClientOptions {
            qps: 0.0,
            user_agent: HANDS.to_owned(),
            ..ClientOptions::default()
        };
        let hands = Client::new(&config, &options, stop).map_err(RunError::Client)?;
        Ok(Self {
            server,
            config,
            hands,
            controller: None,
            stop,
            display,
            pace,
            started: Instant::now(),
            scene: Scene::default(),
        })
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn display(&mut self) -> &mut dyn Display {
        &mut *self.display
    }

    /// Starts a chapter.
    pub(super) fn open(&mut self, chapter: (usize, usize), headline: &str) {
        self.scene = Scene {
            chapter,
            headline: headline.to_owned(),
            ..Scene::default()
        };
    }

    /// Shows what a person would type to do what is done next.
    pub(super) fn command(&mut self, text: impl Into<String>) {
        self.scene.command = text.into();
    }

    /// Says one more thing beside the table.
    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.scene.notes.push(text.into());
    }

    /// Takes back what was said beside the table, and says this.
    pub(super) fn set_notes(&mut self, notes: Vec<String>) {
        self.scene.notes = notes;
    }

    /// Looks at the server's objects and shows them.
    pub(super) fn look(&mut self) -> Told<World> {
        if self.stop.is_stopped() {
            return Err(Miss::Stopped);
        }
        if let Some(controller) = &self.controller
            && let Some(Cause::Failed(why)) = controller.stop.cause()
        {
            return Err(Miss::Missed(format!("the controller failed: {why}")));
        }
        let sets = self.server.objects("replicasets", "");
        let pods = self.server.objects("pods", "");
        let events = self.server.objects("events", "");
        let world = World::read(&sets, &pods, &events);
        self.scene.rows = rows(&world);
        self.scene.elapsed = self.started.elapsed();
        self.display.show(&self.scene);
        Ok(world)
    }

    /// Looks until `holds`, and misses `what` if that takes longer than `within`.
    pub(super) fn until(
        &mut self,
        what: &str,
        within: Duration,
        mut holds: impl FnMut(&mut Self, &World) -> bool,
    ) -> Told<World> {
        let deadline = Instant::now() + within;
        loop {
            let world = self.look()?;
            if holds(self, &world) {
                return Ok(world);
            }
            if Instant::now() >= deadline {
                let seconds = within.as_secs();
                return Err(Miss::Missed(format!(
                    "timed out after {seconds} s waiting for: {what}"
                )));
            }
            if self.stop.wait_timeout(LOOK_EVERY) {
                return Err(Miss::Stopped);
            }
        }
    }

    /// Gives the eye this many seconds, while the table goes on.
    pub(super) fn pause(&mut self, seconds: f64) -> Told<World> {
        self.hold("", seconds * self.pace.pause_scale, |_| true)
    }

    /// Looks for this many seconds that something stays as it is; not shorter where the demo is fast.
    pub(super) fn hold(
        &mut self,
        what: &str,
        seconds: f64,
        holds: impl Fn(&World) -> bool,
    ) -> Told<World> {
        let deadline = Instant::now() + Duration::from_secs_f64(seconds);
        loop {
            let world = self.look()?;
            check(holds(&world), || format!("it is false that {what}"))?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(world);
            }
            if self.stop.wait_timeout(left.min(LOOK_EVERY)) {
                return Err(Miss::Stopped);
            }
        }
    }

    /// Creates an object.
    pub(super) fn create(&mut self, path: &str, object: &Value) -> Told<()> {
        let request = Request::post(path).body("application/json", object.to_string());
        self.send(&request)
    }

    /// Changes an object by a merge patch.
    pub(super) fn patch(&mut self, path: &str, patch: &Value) -> Told<()> {
        let body = patch.to_string();
        let request = Request::patch(path).body("application/merge-patch+json", body);
        self.send(&request)
    }

    /// Deletes an object.
    pub(super) fn delete(&mut self, path: &str) -> Told<()> {
        self.send(&Request::delete(path))
    }

    fn send(&mut self, request: &Request) -> Told<()> {
        match self.hands.send(request) {
            Ok(_) => Ok(()),
            Err(ClientError::Stopped) => Err(Miss::Stopped),
            Err(error) => Err(Miss::Missed(format!("{request}: {error}"))),
        }
    }

    /// The requests so far with this verb and resource that came from the controller.
    pub(super) fn requests(&self, verb: &str, resource: &str) -> Vec<Arc<Recorded>> {
        let mut requests = self.server.faults().recorder().find(verb, resource);
        requests.retain(|recorded| !is_by_hand(recorded.request.header("user-agent")));
        requests
    }

    /// How many requests there were in all.
    pub(super) fn n_requests(&self) -> usize {
        self.server.faults().recorder().requests().len()
    }

    /// Makes requests fare as the rule says until it is removed.
    pub(super) fn add_rule(&self, rule: Rule) -> RuleHandle {
        self.server.faults().add(rule)
    }

    /// The server's version, to count from by [`Stage::pods_since`].
    pub(super) fn version(&self) -> u64 {
        self.server.version()
    }

    /// How many pods have come and gone since that version, in one namespace or (if it is empty) in
    /// all.
    pub(super) fn pods_since(&self, version: u64, namespace: &str) -> Tally {
        self.server
            .tally("pods", namespace, version, Duration::ZERO)
    }

    /// Starts a controller. There is none before.
    pub(super) fn start_controller(&mut self) -> Told<()> {
        let stop = Stop::new();
        let health = Health::new(metrics::global());
        let options = ManagerOptions {
            controllers: vec![&REPLICA_SET, &REPLICATION_CONTROLLER],
            kube_api_qps: 0.0,
            ..ManagerOptions::default()
        };
        let manager = Manager::start(&self.config, &options, &health, &stop);
        let manager = manager
            .map_err(|error| Miss::Missed(format!("cannot start the controller: {error}")))?;
        self.controller = Some(Controller { manager, stop });
        Ok(())
    }

    /// Ends the controller as a `kill -9` does, as far as the API server can tell: from here on not one
    /// of its requests is answered. Blocks until its threads have ended.
    pub(super) fn kill_controller(&mut self) -> Told<()> {
        let is_its = |agent: &str| !is_by_hand(agent);
        let its = Matcher::new(move |request| is_its(request.header("user-agent")));
        let deaf = self.add_rule(Rule::new(its, Action::CutBefore));
        let stopped = self.stop_controller();
        deaf.remove();
        stopped
    }

    /// Stops the controller, if there is one. Blocks until its threads have ended.
    pub(super) fn stop_controller(&mut self) -> Told<()> {
        let Some(Controller { manager, stop }) = self.controller.take() else {
            return Ok(());
        };
        stop.stop(Cause::Requested("the demo stops it".to_owned()));
        match manager.wait() {
            Ok(Cause::Requested(_)) => Ok(()),
            Ok(Cause::Failed(why)) => Err(Miss::Missed(format!("the controller failed: {why}"))),
            Err(stuck) => Err(Miss::Missed(format!("threads did not end: {stuck}"))),
        }
    }
}

fn is_by_hand(user_agent: &str) -> bool {
    user_agent == HANDS
}

/// Misses what `what` says unless `holds`.
pub(super) fn check(holds: bool, what: impl FnOnce() -> String) -> Told<()> {
    if holds {
        Ok(())
    } else {
        Err(Miss::Missed(what()))
    }
}
