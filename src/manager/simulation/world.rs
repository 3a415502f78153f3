//! The world around the daemons: what happens when, and what travels between them and the servers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::{Mutex, MutexGuard};

use super::api_server::{ApiServer, N_SERVERS, Snapshot};
use super::daemon::Daemon;
use super::faults::{Fault, Faults};
use super::http::{Request, STREAM_END};
use super::knowledge::Knowledge;
use super::lease::LeaseTruth;
use super::objects::{Change, Kind, Object};
use super::oracles::{STATUS_REPORTS, UnderWay, unsettled};
use super::plan::{Action, Plan};
use super::view::News;
use crate::client::simulated::{Connection, End};
use crate::stdx::turns::Spot;
use crate::stdx::turns::simulation::Scheduler;

/// The fault of a process that dies where order matters.
pub(super) const CRASH: &str = "daemon killed where order matters";

/// How far a watch cache is behind the store in quiet times.
const CACHE_LAG: Duration = Duration::from_millis(1);

/// The longest of thousands of histories took a fifth of these. More mean a loop that repeats a
/// request without a pause.
const STEPS_MAX: u64 = 100_000;

/// What happens at a time.
#[derive(Debug)]
pub(super) enum Event {
    /// A request reaches its server.
    Arrive(u64, usize, Request, Fault),
    /// Bytes reach a client.
    Deliver(usize, Vec<u8>, Vec<News>),
    /// A connection ends.
    End(usize, End),
    /// A server's watch cache sees the changes up to this revision, if the store's epoch is this.
    CacheSees(usize, u64, u64),
    /// A watch ends because its time is over.
    WatchTimesOut(usize),
    /// Every watch gets a bookmark.
    Bookmarks,
    /// The state is kept, for a restore.
    Snapshot,
    /// The kubelet or the garbage collector does something about the pod of this name and UID.
    PodStep(String, String),
    /// Pods whose owner is gone are deleted.
    CollectGarbage,
    /// Something of the plan.
    Act(Action),
    /// A daemon starts.
    Start(usize),
    /// A server accepts connections again.
    ServerUp(usize),
    /// A process reaches the servers again.
    Reconnects(usize),
    LiftQuota,
    EmptyNamespace,
    NamespaceReturns,
    LagEnds,
    CacheLagEnds(usize),
}

/// One connection, from the server's side.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) connection: Arc<Connection>,
    pub(super) server: usize,
    pub(super) lag: Duration,
    /// When the last bytes under way arrive.
    pub(super) last_arrival: Duration,
    /// What the client has not read completely: the bytes left, and their content.
    pub(super) unread: VecDeque<(usize, Vec<News>)>,
    /// When the server has the last request and answers; the maximum if never.
    pub(super) answers_at: Duration,
}

/// An open watch.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    pub(super) link: usize,
    pub(super) kind: Kind,
    pub(super) server: usize,
    /// The watch is silent about changes up to this revision, also if the store went back since.
    pub(super) from: u64,
}

/// Everything but the threads.
pub(super) struct World {
    pub(super) scheduler: Arc<Scheduler>,
    state: Mutex<State>,
    /// The agenda has changed.
    changed: Spot,
}

pub(super) struct State {
    pub(super) rng: Rng,
    pub(super) plan: Plan,
    pub(super) faults: Faults,
    pub(super) server: ApiServer,
    pub(super) snapshot: Option<Snapshot>,
    agenda: BTreeMap<(Duration, u64), Event>,
    n_events: u64,
    pub(super) links: Vec<Link>,
    pub(super) watches: Vec<Watch>,
    pub(super) is_down: [bool; N_SERVERS],
    /// Processes that reach no server.
    pub(super) isolated: BTreeSet<usize>,
    /// How far the watch caches are behind the store.
    pub(super) cache_lag: [Duration; N_SERVERS],
    /// Counts the restores.
    pub(super) epoch: u64,
    pub(super) daemons: Vec<Daemon>,
    pub(super) known: BTreeMap<usize, Knowledge>,
    pub(super) under_way: BTreeMap<u64, UnderWay>,
    pub(super) n_requests: u64,
    pub(super) lease: LeaseTruth,
    /// Requests since all is at rest, or since this was last reset, without those for the Lease
    /// and quotas, and watches; `None` before.
    pub(super) calm_requests: Option<Vec<Request>>,
    pub(super) n_late_writes: u64,
    /// UIDs of pods that came back: a create whose repetition was answered arrived after the pod's
    /// deletion. No client can foresee that.
    pub(super) late_copies: BTreeSet<String>,
    /// The history, line by line.
    pub(super) lines: Vec<String>,
    /// What an oracle has found.
    pub(super) wrong: Vec<String>,
    pub(super) n_steps: u64,
    /// How often other things than faults came about.
    pub(super) reached: BTreeMap<&'static str, u64>,
    /// How many of the next pods the kubelets reject.
    pub(super) n_to_reject: u32,
    /// How many of the next names another client takes right before the daemon.
    pub(super) n_names_to_take: u32,
    /// The node of the next pod that gets one; otherwise the seed decides.
    pub(super) next_node: Option<&'static str>,
    /// Daemons that end are started again.
    pub(super) restarts: bool,
}

impl World {
    pub(super) fn new(scheduler: &Arc<Scheduler>, plan: Plan) -> Arc<Self> {
        let rng = Rng::with_seed(plan.seed ^ 0x57ab);
        let faults = Faults::new(plan.seed, plan.fault_kinds, plan.fault_rate);
        let mut server = ApiServer::default();
        server.hides_quotas = plan.hides_quotas;
        server.set_time(Duration::ZERO);
        Arc::new(Self {
            scheduler: Arc::clone(scheduler),
            state: Mutex::new(State {
                rng,
                plan,
                faults,
                server,
                snapshot: None,
                agenda: BTreeMap::new(),
                n_events: 0,
                links: Vec::new(),
                watches: Vec::new(),
                is_down: [false; N_SERVERS],
                isolated: BTreeSet::new(),
                cache_lag: [CACHE_LAG; N_SERVERS],
                epoch: 0,
                daemons: Vec::new(),
                known: BTreeMap::new(),
                under_way: BTreeMap::new(),
                n_requests: 0,
                lease: LeaseTruth::default(),
                calm_requests: None,
                n_late_writes: 0,
                late_copies: BTreeSet::new(),
                lines: Vec::new(),
                wrong: Vec::new(),
                n_steps: 0,
                reached: BTreeMap::new(),
                n_to_reject: 0,
                n_names_to_take: 0,
                next_node: None,
                restarts: true,
            }),
            changed: Spot::default(),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn now(&self) -> Duration {
        self.scheduler.elapsed()
    }

    /// Lets everything happen until `end`, or until an oracle finds something wrong.
    pub(super) fn run_until(self: &Arc<Self>, end: Duration) {
        loop {
            let now = self.now();
            for process in self.scheduler.take_crashed() {
                self.lock().faults.count(CRASH);
                self.bury(process, now);
            }
            let mut state = self.lock();
            let panics = self.scheduler.take_panics().into_iter();
            state
                .wrong
                .extend(panics.map(|panic| format!("a panic: {panic}")));
            if !state.wrong.is_empty() {
                return;
            }
            let first = state.agenda.first_key_value().map(|((at, _), _)| *at);
            if let Some(at) = first
                && at <= now
            {
                let event = state.agenda.pop_first().expect("it is there").1;
                drop(state);
                self.happen(event, now);
                continue;
            }
            drop(state);
            if now >= end {
                return;
            }
            let next = first.map_or(end, |at| at.min(end));
            let deadline = Some(self.scheduler.instant(next));
            let has_earlier = || {
                let state = self.lock();
                let first = state.agenda.first_key_value();
                first.is_some_and(|((at, _), _)| *at < next).then_some(())
            };
            let _ = crate::stdx::turns::wait(&[&self.changed], deadline, has_earlier);
        }
    }

    pub(super) fn wake(&self) {
        self.changed.wake();
    }

    fn happen(self: &Arc<Self>, event: Event, now: Duration) {
        let mut state = self.lock();
        state.n_steps += 1;
        if state.n_steps > STEPS_MAX {
            state.wrong.push(format!("more than {STEPS_MAX} steps"));
        }
        state.server.set_time(now);
        match event {
            Event::Arrive(id, link, request, fault) => state.arrive(id, link, request, fault, now),
            Event::Deliver(link, bytes, news) => {
                let link = &mut state.links[link];
                link.unread.push_back((bytes.len(), news));
                let connection = Arc::clone(&link.connection);
                drop(state);
                connection.deliver(&bytes);
                return;
            }
            Event::End(link, end) => state.end(link, end),
            Event::CacheSees(server, revision, epoch) => {
                if epoch == state.epoch {
                    state.cache_sees(server, revision, now);
                }
            }
            Event::WatchTimesOut(link) => {
                if let Some(at) = state.watches.iter().position(|watch| watch.link == link) {
                    let watch = state.watches.remove(at);
                    state.send_bookmark(&watch, now);
                    state.send(link, STREAM_END.to_vec(), Vec::new(), now);
                }
            }
            Event::Bookmarks => {
                let watches = std::mem::take(&mut state.watches);
                for watch in &watches {
                    state.send_bookmark(watch, now);
                }
                state.watches = watches;
                state.schedule(now + Duration::from_secs(40), Event::Bookmarks);
            }
            Event::Snapshot => {
                state.snapshot = Some(state.server.snapshot());
                let at = now + Duration::from_millis(state.rng.u64(500..20_000));
                state.schedule(at, Event::Snapshot);
            }
            Event::PodStep(name, uid) => state.step_pod(&name, &uid, now),
            Event::CollectGarbage => state.collect_garbage(now),
            Event::Start(daemon) => {
                drop(state);
                self.start(daemon);
                return;
            }
            Event::ServerUp(server) => state.is_down[server] = false,
            Event::Reconnects(process) => {
                state.isolated.remove(&process);
            }
            Event::LiftQuota => state.write(now, |api| api.set_quota(None)),
            Event::EmptyNamespace => state.empty_namespace(now),
            Event::NamespaceReturns => state.return_namespace(now),
            Event::LagEnds => state.set_lag(None),
            Event::CacheLagEnds(server) => state.cache_lag[server] = CACHE_LAG,
            Event::Act(action) => {
                drop(state);
                self.act(&action, now);
                return;
            }
        }
        drop(state);
    }
}

impl State {
    pub(super) fn schedule(&mut self, at: Duration, event: Event) {
        self.n_events += 1;
        self.agenda.insert((at, self.n_events), event);
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.reached.entry(what).or_default() += 1;
    }

    pub(super) fn note(&mut self, now: Duration, line: impl std::fmt::Display) {
        self.lines
            .push(format!("{:10.4} {line}", now.as_secs_f64()));
    }

    /// Changes the store from outside, and lets the caches see it after their lag.
    pub(super) fn write<T>(&mut self, now: Duration, write: impl FnOnce(&mut ApiServer) -> T) -> T {
        let before = self.server.log.len();
        let result = write(&mut self.server);
        let changes: Vec<Change> = self.server.log[before.min(self.server.log.len())..].to_vec();
        for change in &changes {
            let what = if change.is_deletion { "gone" } else { "stored" };
            let (object, at) = (&change.object, change.revision);
            self.note(
                now,
                format_args!("  {at} {what}: {:?} {}", object.kind, object.name),
            );
            self.follow_pod(change, now);
        }
        if !changes.is_empty() {
            self.let_caches_see(now);
        }
        result
    }

    /// Lets each cache see the store as it is now, after its lag.
    fn let_caches_see(&mut self, now: Duration) {
        for server in 0..N_SERVERS {
            let jitter = Duration::from_micros(self.rng.u64(0..2_000));
            let at = now + self.cache_lag[server] + jitter;
            let sees = Event::CacheSees(server, self.server.revision, self.epoch);
            self.schedule(at, sees);
        }
    }

    pub(super) fn end(&mut self, link: usize, end: End) {
        self.watches.retain(|watch| watch.link != link);
        self.links[link].connection.end(end);
    }

    /// Ends every connection, or those of one server, or the watches of one kind.
    pub(super) fn cut(&mut self, server: Option<usize>, kind: Option<Kind>, how: End) {
        let is_watched = |link: usize| {
            let mut watches = self.watches.iter();
            watches.any(|it| it.link == link && kind.is_none_or(|kind| kind == it.kind))
        };
        let links: Vec<usize> = (0..self.links.len())
            .filter(|link| server.is_none_or(|server| self.links[*link].server == server))
            .filter(|link| kind.is_none() || is_watched(*link))
            .collect();
        for link in links {
            self.end(link, how);
        }
    }

    /// A process loses its connections, and gets no others until `back`.
    pub(super) fn isolate(&mut self, process: usize, back: Duration) {
        self.isolated.insert(process);
        for link in 0..self.links.len() {
            if self.links[link].connection.process == process {
                self.end(link, End::Reset);
            }
        }
        self.schedule(back, Event::Reconnects(process));
    }

    /// A server rejects connections until `up`.
    pub(super) fn take_down(&mut self, server: usize, up: Duration) {
        self.is_down[server] = true;
        self.cut(Some(server), None, End::Closed);
        self.schedule(up, Event::ServerUp(server));
    }

    /// Etcd goes back to an earlier state; the servers restart with it.
    pub(super) fn restore(&mut self, snapshot: Snapshot, now: Duration) {
        self.epoch += 1;
        let from = self.server.revision;
        let mut undone: Vec<Arc<Object>> = self.server.all(Kind::ReplicaSet).cloned().collect();
        self.server.restore(snapshot);
        undone.retain(|rs| {
            let restored = self.server.get(Kind::ReplicaSet, &rs.name);
            restored.is_some_and(|restored| restored.value["status"] != rs.value["status"])
        });
        // The namespace is restored, too.
        self.server.is_terminating = false;
        self.write(now, ApiServer::restore_quota);
        self.step_all_pods(now);
        self.cut(None, None, End::Reset);
        self.lease_was_changed(now + Duration::from_secs(30));
        for known in self.known.values_mut() {
            known.rewind(from, self.server.revision, &undone);
        }
    }

    /// Lag of the connections opened from now on; `None` for a lag of their own each.
    pub(super) fn set_lag(&mut self, lag: Option<Duration>) {
        for link in &mut self.links {
            let of_its_own = Duration::from_micros(self.rng.u64(200..3_000));
            link.lag = lag.unwrap_or(of_its_own);
        }
    }

    /// Forgets what a process knew.
    pub(super) fn forget(&mut self, process: usize) {
        self.known.remove(&process);
        let of_process = |link: &&Link| link.connection.process == process;
        let links = self.links.iter().filter(of_process);
        let numbers: Vec<usize> = links.map(|link| link.connection.number).collect();
        self.watches.retain(|watch| !numbers.contains(&watch.link));
    }

    /// False for a process that was killed in this moment, whose threads may still be in a turn.
    pub(super) fn is_alive(&self, process: usize) -> bool {
        let mut processes = self.daemons.iter().map(|daemon| daemon.process);
        processes.any(|it| it == Some(process))
    }

    /// True if the store went back, and the process has not listed both kinds since.
    pub(super) fn is_rewound(&self, process: usize) -> bool {
        let known = self.known.get(&process);
        known.is_some_and(|known| !known.rewound.is_empty())
    }

    /// True if only the status of this ReplicaSet is wrong, and no list can show the process that
    /// its own write of it was undone.
    pub(super) fn has_lost_status(&self, process: usize, rs: &Object) -> bool {
        let uid = rs.value["metadata"]["uid"].as_str().unwrap_or_default();
        let known = self.known.get(&process);
        known.is_some_and(|known| known.undone_statuses.contains(uid))
            && unsettled(&self.server, rs).is_some_and(|what| what.contains(STATUS_REPORTS))
    }

    /// The process of the leader, if it runs.
    pub(super) fn leader_process(&self) -> Option<usize> {
        self.daemons[self.leader()?].process
    }

    /// True if the leader has not noticed that the store went back, or cannot.
    pub(super) fn rewinds_unnoticed(&self) -> bool {
        self.leader_process().is_some_and(|process| {
            let mut sets = self.server.all(Kind::ReplicaSet);
            self.is_rewound(process) || sets.any(|rs| self.has_lost_status(process, rs))
        })
    }

    /// True if a process waits for an answer that a fault delays or keeps from it.
    pub(super) fn waits_for_answer(&self, process: usize, now: Duration) -> bool {
        self.links.iter().any(|link| {
            link.connection.process == process
                && link.answers_at > now
                && !link.connection.pipe().is_dropped
        })
    }

    /// True if the daemon knows that it leads.
    pub(super) fn knows_that_it_leads(&self, process: usize) -> bool {
        let known = self.known.get(&process);
        self.plan.n_daemons == 1 || known.is_some_and(|known| known.view.has_written_lease)
    }

    /// No more faults: the servers answer at once, and no other client interferes.
    pub(super) fn end_faults(&mut self, now: Duration) {
        self.faults.end();
        self.is_down = [false; N_SERVERS];
        self.isolated.clear();
        self.cache_lag = [CACHE_LAG; N_SERVERS];
        self.let_caches_see(now);
        self.set_lag(None);
        self.write(now, |api| api.set_quota(None));
        self.n_to_reject = 0;
        self.n_names_to_take = 0;
    }
}
