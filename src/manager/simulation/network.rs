//! What travels between the daemons and the servers: requests, their faults, answers and watches.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::api_server::{N_SERVERS, WatchRequest};
use super::daemon::{Daemon, FREEZE_EXCUSES};
use super::faults::Fault;
use super::http::{Answer, Request, STREAM, STREAM_END, chunk};
use super::knowledge::Knowledge;
use super::marks::deletes_protected;
use super::objects::{Kind, bookmark, controller_of, error, frame, target};
use super::oracles::{Check, UnderWay, judge};
use super::view::{News, Rejected};
use super::world::{Event, Link, State, Watch, World};
use crate::client::simulated::{Connection, End, Network};
use crate::stdx::turns::simulation;

/// The place in `sync_replica_set` before it reads the caches.
const SYNC: &str = "sync: before the caches are read";

impl Network for World {
    fn connect(&self) -> io::Result<Arc<Connection>> {
        let process = simulation::process().expect("a process connects");
        let mut state = self.lock();
        let server = state.rng.usize(..N_SERVERS);
        if state.is_down[server] || state.isolated.contains(&process) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let number = state.links.len();
        let connection = Connection::new(number, process);
        let lag = Duration::from_micros(state.rng.u64(200..3_000));
        state.links.push(Link {
            connection: Arc::clone(&connection),
            server,
            lag,
            last_arrival: Duration::ZERO,
            unread: VecDeque::new(),
            answers_at: Duration::ZERO,
        });
        Ok(connection)
    }

    fn sent(&self, connection: &Arc<Connection>) {
        let Some(request) = Request::take(&mut connection.pipe().to_server) else {
            return;
        };
        let (now, link) = (self.now(), connection.number);
        let since = self.scheduler.turn_at(SYNC);
        let mut state = self.lock();
        if !state.is_alive(connection.process) {
            return;
        }
        state.n_requests += 1;
        let id = state.n_requests;
        let is_repeated = state.is_repeated(connection.process, &request);
        state.judge(connection.process, &request, since, now);
        let outlives = |known: &Knowledge| known.outlives_its_cache(now);
        if state.known.get(&connection.process).is_some_and(outlives)
            && !self
                .scheduler
                .was_frozen(connection.process, FREEZE_EXCUSES)
        {
            let found = format!("process {} continues after a restore", connection.process);
            state.wrong.push(found);
        }
        state.note_renewal(connection.process, &request, now);
        let is_watch = WatchRequest::of(&request).is_some();
        let is_expected = ["/leases", "/resourcequotas"].map(|it| request.path.contains(it));
        let is_expected = is_watch || is_expected.contains(&true);
        if !is_expected && let Some(requests) = &mut state.calm_requests {
            requests.push(request.clone());
        }
        let fault = if connection.pipe().end == Some(End::Reset) {
            Fault::LoseRequest
        } else {
            state.faults.draw(&request, is_watch)
        };
        state.note(
            now,
            format_args!(
                "{} sends {} {fault:?}",
                connection.process,
                request.describe()
            ),
        );
        state.expect(id, connection.process, &request, fault, is_repeated);
        let lag = state.links[link].lag + fault.delay();
        state.links[link].answers_at = now + lag;
        match fault {
            Fault::LoseRequest => state.schedule(now + lag, Event::End(link, End::Reset)),
            Fault::Late(_) => {
                state.schedule(now + Duration::from_millis(5), Event::End(link, End::Reset));
                state.schedule(now + lag, Event::Arrive(id, link, request, fault));
            }
            _ => state.schedule(now + lag, Event::Arrive(id, link, request, fault)),
        }
        drop(state);
        self.wake();
    }

    fn received(&self, connection: &Arc<Connection>, n_bytes: usize) {
        let now = self.now();
        self.lock().learn(connection.number, n_bytes, now);
    }

    fn settled(&self) {
        let (Some(process), Some(task)) = (simulation::process(), simulation::task()) else {
            return;
        };
        let turn = self.scheduler.n_turns();
        self.lock()
            .known
            .entry(process)
            .or_default()
            .view
            .settle(task, turn);
    }
}

impl State {
    fn judge(&mut self, process: usize, request: &Request, since: u64, now: Duration) {
        let mut known = self.known.remove(&process).unwrap_or_default();
        let is_its = |daemon: &Daemon| daemon.process == Some(process);
        let number = self.daemons.iter().position(is_its);
        let identity = number.map_or("", |number| self.daemons[number].identity.as_str());
        let identity = identity.to_owned();
        let check = Check {
            server: &self.server,
            under_way: &self.under_way,
            late_copies: &self.late_copies,
            lease: &self.lease,
            identity: &identity,
            process,
            is_dry_run: number.is_some_and(|number| self.plan.is_dry_run(number)),
            now,
            since,
            clocks_are_right: self.plan.clocks_are_right(),
            burst_replicas: self.plan.burst_replicas,
        };
        let found = judge(&check, &mut known, request);
        self.known.insert(process, known);
        if let Err(found) = found {
            self.note(now, format_args!("WRONG: {found}"));
            self.wrong.push(found);
        }
    }

    /// True for a create that the process has sent before.
    fn is_repeated(&self, process: usize, request: &Request) -> bool {
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        let known = self.known.get(&process);
        request.method == "POST" && known.is_some_and(|known| known.created.contains(name))
    }

    /// Remembers a write until the server has executed it.
    fn expect(
        &mut self,
        id: u64,
        process: usize,
        request: &Request,
        fault: Fault,
        is_repeated: bool,
    ) {
        let Some((kind, name, part)) = target(&request.path) else {
            return;
        };
        if let (Kind::ReplicaSet, Some(name), Some("status")) = (kind, name, part) {
            let stored = self.server.get(Kind::ReplicaSet, name);
            if let Some(uid) = stored.and_then(|rs| rs.value["metadata"]["uid"].as_str()) {
                let known = self.known.entry(process).or_default();
                known.undone_statuses.remove(uid);
                known.wrote_statuses.insert(uid.to_owned());
            }
        }
        let is_executed = fault.rejection().is_none() && fault != Fault::LoseRequest;
        if kind != Kind::Pod || request.method == "GET" || !is_executed {
            return;
        }
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let own_name = body["metadata"]["name"].as_str().unwrap_or_default();
        let owner = controller_of(&body).unwrap_or_default();
        let name = name.unwrap_or(own_name);
        self.under_way.insert(
            id,
            UnderWay {
                process,
                is_create: request.method == "POST",
                // An earlier try whose answer was lost may have stored it.
                has_existed: is_repeated && self.server.get(Kind::Pod, name).is_some(),
                name: name.to_owned(),
                owner: owner.to_owned(),
            },
        );
    }
}

impl State {
    pub(super) fn arrive(
        &mut self,
        id: u64,
        link: usize,
        request: Request,
        fault: Fault,
        now: Duration,
    ) {
        let server = self.links[link].server;
        if self.is_down[server] {
            self.under_way.remove(&id);
            return self.schedule(now, Event::End(link, End::Reset));
        }
        if let Some(watch) = WatchRequest::of(&request) {
            return self.arrive_watch(id, link, request, &watch, now);
        }
        let process = self.links[link].connection.process;
        let rejected = fault.rejection();
        if rejected.is_none() && self.links[link].connection.pipe().is_dropped {
            let is_write = request.method != "GET" && !request.path.contains("/leases");
            self.n_late_writes += u64::from(is_write);
        }
        let is_create = request.method == "POST" && request.path.ends_with("/pods");
        if rejected.is_none() && is_create && self.n_names_to_take > 0 {
            self.n_names_to_take -= 1;
            self.take_name(&request, now);
        }
        if rejected.is_none()
            && self.epoch == 0
            && let Some(wrong) = deletes_protected(&self.server, &request)
        {
            self.wrong.push(wrong);
        }
        let answer = match rejected {
            Some(answer) => answer,
            None => self.write(now, |api| api.answer(server, &request)),
        };
        if let Some(executed) = self.under_way.remove(&id) {
            self.follow_create(&executed, answer.code);
        }
        self.follow_lease(process, &request, &answer, now);
        self.note(
            now,
            format_args!("  {} -> {}", request.describe(), answer.code),
        );
        let news = self.news_of(server, &request, &answer);
        match fault {
            Fault::LoseAnswer => self.schedule(now, Event::End(link, End::Reset)),
            Fault::Silence => self.links[link].answers_at = Duration::MAX,
            _ => self.send(link, answer.bytes(), news, now),
        }
    }

    /// A create was answered: earlier tries of it can store no pod while the one that this answer
    /// tells of exists.
    fn follow_create(&mut self, executed: &UnderWay, code: u16) {
        if !executed.is_create || code >= 300 && code != 409 {
            return;
        }
        for other in self.under_way.values_mut() {
            other.has_existed |= other.name == executed.name;
        }
        // The pod of another try came and went before this one arrived.
        if executed.has_existed && code < 300 {
            let pod = self.server.get(Kind::Pod, &executed.name);
            let uid = pod.and_then(|pod| pod.value["metadata"]["uid"].as_str());
            self.late_copies.extend(uid.map(str::to_owned));
        }
    }

    fn follow_rejection(&mut self, process: usize, rejected: &Rejected) {
        let may_exist = matches!(rejected, Rejected::Create(name)
            if self.server.get(Kind::Pod, name).is_some()
                || self.under_way.values().any(|it| it.is_create && it.name == *name));
        let known = self.known.entry(process).or_default();
        known.was_rejected(rejected, may_exist);
    }

    /// Another client creates a pod with the name that the daemon is about to use.
    fn take_name(&mut self, request: &Request, now: Duration) {
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let name = body["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if self.server.get(Kind::Pod, &name).is_none() {
            let metadata = serde_json::json!({"name": name, "labels": {"app": "foreign"}});
            let pod = serde_json::json!({"metadata": metadata, "spec": {}});
            self.write(now, |api| api.create(Kind::Pod, pod));
        }
    }

    fn arrive_watch(
        &mut self,
        id: u64,
        link: usize,
        request: Request,
        watch: &WatchRequest,
        now: Duration,
    ) {
        let server = self.links[link].server;
        // Without a version the list must be as new as the store.
        let is_stale = watch.sends_initial_events
            && watch.resource_version.is_none()
            && self.server.caches[server].revision < self.server.revision;
        if is_stale {
            let again = Event::Arrive(id, link, request, Fault::None);
            return self.schedule(now + Duration::from_millis(20), again);
        }
        let (changes, revision) = match self.server.open_watch(server, watch) {
            Ok(opened) => opened,
            // One server reports it in the stream.
            Err(answer) if answer.code == 410 && server == 1 => {
                self.send(link, STREAM.to_vec(), Vec::new(), now);
                self.send(link, chunk(&error(&answer.body)), Vec::new(), now);
                return self.send(link, STREAM_END.to_vec(), Vec::new(), now);
            }
            Err(answer) => return self.send(link, answer.bytes(), Vec::new(), now),
        };
        let begins = watch
            .sends_initial_events
            .then_some(News::Begins(watch.kind));
        self.send(link, STREAM.to_vec(), begins.into_iter().collect(), now);
        for change in changes {
            self.send(
                link,
                chunk(&frame(&change)),
                vec![News::Change(change)],
                now,
            );
        }
        if watch.sends_initial_events {
            let line = bookmark(watch.kind, revision, true);
            let news = News::InitialEventsEnd(watch.kind, revision);
            self.send(link, chunk(&line), vec![news], now);
        }
        self.watches.push(Watch {
            link,
            kind: watch.kind,
            server,
            from: revision,
        });
        self.schedule(now + watch.timeout, Event::WatchTimesOut(link));
    }

    /// Sends bytes to the client of a connection, after all bytes before.
    pub(super) fn send(&mut self, link: usize, bytes: Vec<u8>, news: Vec<News>, now: Duration) {
        let jitter = Duration::from_micros(self.rng.u64(0..1_000));
        let of = &mut self.links[link];
        let at = (now + of.lag + jitter).max(of.last_arrival);
        of.last_arrival = at;
        self.schedule(at, Event::Deliver(link, bytes, news));
    }

    pub(super) fn send_bookmark(&mut self, watch: &Watch, now: Duration) {
        let revision = self.server.caches[watch.server].revision;
        if revision < watch.from {
            return;
        }
        let line = bookmark(watch.kind, revision, false);
        self.send(
            watch.link,
            chunk(&line),
            vec![News::Bookmark(watch.kind, revision)],
            now,
        );
    }

    pub(super) fn cache_sees(&mut self, server: usize, revision: u64, now: Duration) {
        let changes = self.server.advance(server, revision);
        let of_server = self.watches.iter().filter(|watch| watch.server == server);
        let watches: Vec<Watch> = of_server.cloned().collect();
        for change in changes {
            for watch in &watches {
                if watch.kind == change.object.kind && change.revision > watch.from {
                    let news = vec![News::Change(change.clone())];
                    self.send(watch.link, chunk(&frame(&change)), news, now);
                }
            }
        }
    }

    /// What a response shows its reader. Responses to writes contain nothing that a sync
    /// decides by, but that of the Lease makes a leader, and a rejection that the write had no
    /// effect.
    fn news_of(&self, server: usize, request: &Request, answer: &Answer) -> Vec<News> {
        let Some((kind, name, _)) = target(&request.path) else {
            return Vec::new();
        };
        if kind == Kind::Lease && request.method != "GET" && answer.code < 300 {
            return vec![News::LeaseWritten];
        }
        if kind == Kind::Pod
            && let Some(rejected) = Rejected::of(request, answer.code)
        {
            return vec![News::Rejected(rejected)];
        }
        if answer.code != 200 || !matches!(kind, Kind::Pod | Kind::ReplicaSet) {
            return Vec::new();
        }
        let is_filtered =
            request.query("labelSelector").is_some() || request.query("fieldSelector").is_some();
        match name {
            Some(name) => {
                let object = self.server.get(kind, name).cloned();
                vec![News::Objects(object.into_iter().collect())]
            }
            None if is_filtered => {
                let field = request.query("fieldSelector").unwrap_or_default();
                let name = field.strip_prefix("metadata.name=");
                let all = self.server.all(kind);
                let found = all.filter(|object| name.is_none_or(|name| object.name == name));
                let objects = found.cloned().collect();
                let selector = request.query("labelSelector").unwrap_or_default();
                vec![match selector.strip_prefix("app=") {
                    Some(name) => News::PodsOf(name.to_owned(), objects),
                    None => News::Objects(objects),
                }]
            }
            None if request.query("resourceVersion").is_some() => {
                let (objects, revision) = self.server.cached(server, kind);
                vec![News::List(kind, objects, revision)]
            }
            // A question for the newest version alone.
            None if request.query("limit").as_deref() == Some("1") => Vec::new(),
            None => {
                let objects = self.server.all(kind).cloned().collect();
                vec![News::List(kind, objects, self.server.revision)]
            }
        }
    }

    fn learn(&mut self, link: usize, n_bytes: usize, now: Duration) {
        let task = simulation::task().unwrap_or(0);
        let turn = simulation::n_turns();
        let process = self.links[link].connection.process;
        let mut left = n_bytes;
        while let Some((bytes, _)) = self.links[link].unread.front_mut() {
            let taken = left.min(*bytes);
            *bytes -= taken;
            left -= taken;
            if *bytes > 0 {
                break;
            }
            let (_, news) = self.links[link].unread.pop_front().expect("it is there");
            for news in news {
                if let News::Rejected(rejected) = &news {
                    self.follow_rejection(process, rejected);
                }
                let known = self.known.entry(process).or_default();
                if let News::List(kind, _, revision) | News::InitialEventsEnd(kind, revision) =
                    &news
                    && known.reads_older(*kind, *revision, now)
                {
                    continue;
                }
                match &news {
                    News::Objects(objects) => known.was_read(objects),
                    News::LeaseWritten => {
                        known.renewed_at = known.renews_since.take();
                    }
                    News::List(kind, ..) | News::InitialEventsEnd(kind, _) => {
                        known.listed(*kind, turn);
                    }
                    News::PodsOf(name, pods) => {
                        let own = self.under_way.values().filter(|it| it.process == process);
                        let under_way = own.map(|it| &*it.name).collect();
                        known.pods_were_listed(pods, &under_way);
                        // The same thread has read the ReplicaSet right before. It may be gone.
                        let uids = known.view.uids(Kind::ReplicaSet, name).map(str::to_owned);
                        known.read_live.extend(uids);
                    }
                    _ => {}
                }
                known.view.learn(news, (task, turn));
            }
        }
    }
}
