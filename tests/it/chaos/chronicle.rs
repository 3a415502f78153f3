//! The changes in a round's namespace by revision, from etcd's watches of the pods, the ReplicaSets
//! and the Lease. They continue where they were after an outage of etcd, which the watches of an
//! API server cannot. Each has a thread `chronicle`, which ends with the round.

use std::io::{BufRead, BufReader};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine};
use replicaset_controller::client::{Client, ClientConfig, ClientOptions, Request};
use replicaset_controller::stdx::stop::{Cause, Stop};
use replicaset_controller::stdx::thread::Thread;
use serde_json::{Value, json};

use crate::support::{Kind, text_at};

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
    /// Follows these kinds, each in a namespace, from now on.
    pub(super) fn start(etcd: &str, kinds: &[(Kind, &str)], began: Instant, stop: &Stop) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let client = Client::new(&ClientConfig::plain(etcd), &ClientOptions::default(), stop);
        for (kind, namespace) in kinds {
            let (client, state) = (client.clone(), Arc::clone(&state));
            let (kind, range, ending) = (*kind, range(*kind, namespace), stop.clone());
            let next = revision(&client, &range) + 1;
            drop(Thread::spawn("chronicle", stop, move || {
                follow(&client, kind, &range, next, began, &state, &ending);
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
        // No state is newer than the one that follows it: if it seems so, its thread was late.
        let mut earliest = Duration::MAX;
        for seen in seen.iter_mut().rev() {
            earliest = earliest.min(seen.at);
            seen.at = earliest;
        }
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

/// The key and the end of the range of a kind's objects in a namespace.
fn range(kind: Kind, namespace: &str) -> [String; 2] {
    let key = format!("/registry/{}/{namespace}", kind.plural());
    // 0 is the character after the slash.
    ["/", "0"].map(|end| BASE64_STANDARD.encode(format!("{key}{end}")))
}

/// The request of a watch from a revision on.
fn request([key, range_end]: &[String; 2], revision: u64) -> Request {
    let create = json!({"create_request": {
        "key": key, "range_end": range_end, "start_revision": revision.to_string(), "prev_kv": true,
    }});
    Request::post("/v3/watch").body("application/json", create.to_string())
}

/// etcd's revision.
fn revision(client: &Client, [key, _]: &[String; 2]) -> u64 {
    let body = json!({"key": key, "keys_only": true}).to_string();
    let request = Request::post("/v3/kv/range").body("application/json", body);
    let response = client.send(&request).expect("etcd answers");
    let response: Value = serde_json::from_slice(&response.body).expect("JSON");
    text_at(&response, "/header/revision")
        .parse()
        .expect("a number")
}

/// The object in a value of etcd, where it is stored as JSON.
fn object(pair: &Value) -> Option<Value> {
    let value = BASE64_STANDARD.decode(text_at(pair, "/value")).ok()?;
    serde_json::from_slice(&value).ok()
}

fn follow(
    client: &Client,
    kind: Kind,
    range: &[String; 2],
    mut revision: u64,
    began: Instant,
    state: &Mutex<State>,
    stop: &Stop,
) {
    loop {
        let stream = client.stream_client().open_watch(&request(range, revision));
        let lines = stream.into_iter().flat_map(|it| BufReader::new(it).lines());
        for line in lines.map_while(Result::ok) {
            let Ok(response) = serde_json::from_str::<Value>(&line) else {
                break;
            };
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.has_gap |= response["result"]["canceled"] == true;
            for event in response["result"]["events"]
                .as_array()
                .into_iter()
                .flatten()
            {
                let is_gone = event["type"] == "DELETE";
                let version = text_at(event, "/kv/mod_revision").parse().unwrap_or(0);
                revision = version + 1;
                let pair = if is_gone { "prev_kv" } else { "kv" };
                let Some(object) = object(&event[pair]) else {
                    state.has_gap = true;
                    continue;
                };
                state.seen.push(Seen {
                    kind,
                    version,
                    at: began.elapsed(),
                    is_gone,
                    object,
                });
            }
        }
        if stop.wait_timeout(PAUSE) {
            return;
        }
    }
}
