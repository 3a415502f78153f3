//! What happened in a round's namespace, in the order of resource versions: watches of the pods,
//! the ReplicaSets and the lease, which go on after the API server has been away. Each has a thread
//! `chronicle`, which ends with the round.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use replicaset_controller::client::Request;
use replicaset_controller::stdx::stop::{Cause, Stop};
use replicaset_controller::stdx::thread::Thread;
use serde_json::Value;

use crate::support::{Api, Kind, resource_version, text_at};

/// Pause before a broken watch is opened again.
const PAUSE: Duration = Duration::from_millis(50);

/// A state of an object.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) kind: Kind,
    pub(super) version: u64,
    /// When the watch showed it, since the round began.
    pub(super) at: Duration,
    pub(super) is_gone: bool,
    pub(super) object: Value,
}

#[derive(Debug)]
pub(super) struct Chronicle {
    state: Arc<Mutex<State>>,
    stop: Stop,
}

#[derive(Debug, Default)]
struct State {
    seen: Vec<Seen>,
    /// A watch could not be continued, so that states may be missing.
    has_gap: bool,
}

impl Chronicle {
    /// Follows the namespaces of these collections from now on.
    pub(super) fn start(collections: &[(Api, Kind)], began: Instant, stop: &Stop) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        for (api, kind) in collections {
            let (api, kind, state, stop) = (api.clone(), *kind, Arc::clone(&state), stop.clone());
            let list = api.send(&Request::get(api.collection(kind)));
            let version = resource_version(&list.expect("the API server lists"));
            let ending = stop.clone();
            drop(Thread::spawn("chronicle", &stop, move || {
                follow(&api, kind, version, began, &state, &ending);
            }));
        }
        Self {
            state,
            stop: stop.clone(),
        }
    }

    /// All states so far, by version; `None` if some may be missing.
    pub(super) fn seen(&self) -> Option<Vec<Seen>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = state.seen.clone();
        seen.sort_by_key(|seen| seen.version);
        (!state.has_gap).then_some(seen)
    }

    /// The newest version that the watches have shown.
    pub(super) fn version(&self, kind: Kind) -> u64 {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let of_kind = state.seen.iter().filter(|seen| seen.kind == kind);
        of_kind.map(|seen| seen.version).max().unwrap_or(0)
    }
}

impl Drop for Chronicle {
    fn drop(&mut self) {
        self.stop
            .stop(Cause::Requested("the round has ended".to_owned()));
    }
}

fn follow(
    api: &Api,
    kind: Kind,
    mut version: u64,
    began: Instant,
    state: &Mutex<State>,
    stop: &Stop,
) {
    loop {
        let events = api.watch_from(kind, &version.to_string());
        for event in events.into_iter().flatten() {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            let (type_, object) = (text_at(&event, "/type"), &event["object"]);
            if type_ == "ERROR" {
                state.has_gap |= object["code"] == 410;
                break;
            }
            version = resource_version(object);
            state.seen.push(Seen {
                kind,
                version,
                at: began.elapsed(),
                is_gone: type_ == "DELETED",
                object: object.clone(),
            });
        }
        if stop.wait_timeout(PAUSE) {
            return;
        }
    }
}
