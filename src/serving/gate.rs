//! Authenticates and authorizes every request before its page. The error texts are
//! kube-controller-manager's (apiserver `pkg/endpoints/filters`). Runs on the threads `http-N`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::authentication::Authentication;
use super::authorization::{Authorization, Decision};
use super::pages::Pages;
use crate::api::Status;
use crate::http_server::{Handler, Request, Response};
use crate::stdx::escape::report;

/// The paths that any client may read. Each is an exact path or, with a trailing `*`, a prefix. The
/// leading `/` is optional (apiserver `pkg/authorization/path/path.go`).
///
/// DIFFERS: for reading only. Upstream opens these paths for writes too, which a `*` does not
/// suggest.
#[derive(Clone, Debug, Default)]
pub struct AllowedPaths(Vec<String>);

impl AllowedPaths {
    /// The values of `--authorization-always-allow-paths`. INVARIANT: a `*` is at the end, if
    /// anywhere; the flag's parser ensures it.
    pub fn of<T: AsRef<str>>(paths: &[T]) -> Self {
        Self(
            paths
                .iter()
                .map(|path| bare(path.as_ref()).to_owned())
                .collect(),
        )
    }

    /// True if any client may send this HTTP method to this path.
    pub fn allow(&self, method: &str, path: &str) -> bool {
        let is_read = ["GET", "HEAD"]
            .iter()
            .any(|it| method.eq_ignore_ascii_case(it));
        let path = bare(path);
        let matches = |allowed: &String| match allowed.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => path == allowed,
        };
        is_read && self.0.iter().any(matches)
    }
}

fn bare(path: &str) -> &str {
    path.strip_prefix('/').unwrap_or(path)
}

pub(super) struct Gate {
    pub(super) authentication: Authentication,
    pub(super) authorization: Authorization,
    pub(super) allowed_paths: AllowedPaths,
    pub(super) pages: Arc<Pages>,
    pub(super) last_warning: Mutex<Option<Instant>>,
}

/// Any client can cause these warnings, so the gate logs one per period.
const WARNING_PERIOD: Duration = Duration::from_mins(1);

/// The pages for clients on the loopback interface, read-only.
pub(super) struct PlainGate(pub(super) Arc<Pages>);

impl Handler for Gate {
    fn handle(&self, request: Request) -> Response {
        with_common_headers(self.respond(&request))
    }
}

impl Handler for PlainGate {
    fn handle(&self, request: Request) -> Response {
        if !matches!(request.method.as_str(), "GET" | "HEAD") {
            let text = "plain HTTP is for reading only; use the secure port\n";
            return with_common_headers(
                Response::text(405, text).with_header("allow", "GET, HEAD"),
            );
        }
        with_common_headers(self.0.answer(&request))
    }
}

impl Gate {
    /// Logs at warn level once per period, and at debug level otherwise.
    fn warn(&self, message: &str) {
        let now = Instant::now();
        let mut last = self.last_warning.lock();
        let is_due = last.is_none_or(|at| now.saturating_duration_since(at) >= WARNING_PERIOD);
        if is_due {
            *last = Some(now);
        }
        drop(last);
        if is_due {
            log::warn!("{message}");
        } else {
            log::debug!("{message}");
        }
    }

    fn respond(&self, request: &Request) -> Response {
        let path = &request.path;
        // DIFFERS: always-allowed paths need no authentication. Upstream reviews a token first, so
        // a probe with a token fails while the API server is down.
        if self.allowed_paths.allow(&request.method, path) {
            return self.pages.answer(request);
        }
        // DIFFERS: upstream reviews any path. Here a path without a page costs no review; the list
        // of pages is not a secret.
        if !self.pages.has(path) {
            return self.pages.answer(request);
        }
        let user = match self.authentication.user(request) {
            Ok(user) => user,
            Err(why) => {
                self.warn(&format!(
                    "unable to authenticate a request for {path}: {why}"
                ));
                // As in upstream, only the log has the reason, not the client.
                let status = Status::new(401, "Unauthorized", "Unauthorized");
                let mut response = Response::status(&status);
                // A client pays for the next attempt with a handshake.
                response.closes = !request.peer.certificates.is_empty();
                return response;
            }
        };
        let verb = request.method.to_ascii_lowercase();
        let address = request.peer.address;
        match self.authorization.decide(&user, address, &verb, path) {
            Ok(Decision::Allowed) => {
                if !matches!(verb.as_str(), "get" | "head") {
                    let (name, from) = (&user.name, request.peer.address);
                    let from = from.map_or_else(String::new, |from| format!(" from {from}"));
                    log::info!("{} {path} by user {name:?}{from}", request.method);
                }
                self.pages.answer(request)
            }
            Ok(Decision::Denied(reason)) => {
                let name = &user.name;
                log::debug!("forbidden: {verb} {path} for user {name:?}: {reason}");
                let why = sanitized(&format!("User {name:?} cannot {verb} path {path:?}"));
                let why = if reason.is_empty() {
                    why
                } else {
                    format!("{why}: {reason}")
                };
                let status = Status::new(403, "Forbidden", format!("forbidden: {why}"));
                Response::status(&status)
            }
            Err(error) => {
                let why = report(&error);
                self.warn(&format!("cannot decide whether {path} is allowed: {why}"));
                let uri = &request.path_and_query;
                let text = sanitized(&format!("Internal Server Error: {uri:?}: {why}"));
                Response::text(500, &format!("{text}\n"))
            }
        }
    }
}

fn with_common_headers(response: Response) -> Response {
    let mut response = response.with_header("x-content-type-options", "nosniff");
    if !response
        .headers
        .iter()
        .any(|(name, _)| name == "cache-control")
    {
        response = response.with_header("cache-control", "no-cache, private");
    }
    response
}

/// Escapes the text, so that no error message is HTML (apiserver
/// `pkg/endpoints/handlers/responsewriters/errors.go:sanitizer`).
pub(super) fn sanitized(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

// A bound on the reviews in progress, shared between the clients so that none keeps the others
// out: clients of each standing have slots of their own, and no address has more than a quarter of
// them. Connection threads take slots.

/// How long a client with credentials waits for a slot.
const WAIT: Duration = Duration::from_secs(2);

/// What a client's credentials are worth before the review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    Anonymous,
    /// A token that may be made up.
    Unknown,
    /// An unknown token of an address that has had an accepted one.
    KnownAddress,
    /// A token that was accepted before, or a user that is authenticated.
    Known,
}

impl Standing {
    /// Maximum reviews in progress, and maximum of clients that wait for a slot. For all together
    /// below the limit on connections.
    const fn slots(self) -> usize {
        match self {
            Self::Anonymous => 4,
            Self::Unknown => 8,
            Self::KnownAddress | Self::Known => 12,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Client {
    pub(super) standing: Standing,
    pub(super) address: Option<IpAddr>,
}

/// The slots. The lock is held for map operations only.
#[derive(Debug, Default)]
pub(super) struct Slots {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: BTreeMap<Client, usize>,
    waiting: BTreeMap<Client, usize>,
}

/// A slot until it is dropped.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    slots: &'a Slots,
    client: Client,
}

impl Slots {
    /// Takes a slot. A client with credentials waits for one for a moment.
    pub(super) fn take(&self, client: Client) -> Option<Slot<'_>> {
        let mut state = self.state.lock();
        if !has_capacity(&state.running, client) {
            // Without these bounds, waiting clients would hold all connections.
            if client.standing == Standing::Anonymous || !has_capacity(&state.waiting, client) {
                return None;
            }
            *state.waiting.entry(client).or_default() += 1;
            let is_full = |state: &mut State| !has_capacity(&state.running, client);
            self.freed.wait_while_for(&mut state, is_full, WAIT);
            remove_one(&mut state.waiting, client);
            if !has_capacity(&state.running, client) {
                return None;
            }
        }
        *state.running.entry(client).or_default() += 1;
        drop(state);
        Some(Slot {
            slots: self,
            client,
        })
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        remove_one(&mut self.slots.state.lock().running, self.client);
        self.slots.freed.notify_all();
    }
}

fn has_capacity(counts: &BTreeMap<Client, usize>, client: Client) -> bool {
    let max = client.standing.slots();
    let alike = counts
        .iter()
        .filter(|(other, _)| other.standing == client.standing);
    let total: usize = alike.map(|(_, count)| count).sum();
    total < max && counts.get(&client).is_none_or(|own| *own < max / 4)
}

fn remove_one(counts: &mut BTreeMap<Client, usize>, client: Client) {
    if let Some(count) = counts.get_mut(&client) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        AllowedPaths, Client, Handler, Pages, PlainGate, Request, Response, Slots, Standing,
    };
    use crate::stdx::stop::Stop;
    use crate::stdx::thread::spawn;

    #[test]
    fn paths_are_whole_or_prefixes() {
        let allowed = AllowedPaths::of(&["/healthz", "readyz", "/debug/*", "/"]);
        for (path, expected) in [
            ("/healthz", true),
            ("/healthz/ping", false),
            ("/readyz", true),
            ("/debug/threads", true),
            ("/debug", false),
            ("/", true),
            ("/metrics", false),
        ] {
            assert_eq!(allowed.allow("GET", path), expected, "{path}");
            assert_eq!(allowed.allow("head", path), expected, "{path}");
            assert!(!allowed.allow("PUT", path), "{path}");
        }
        assert!(AllowedPaths::of(&["*"]).allow("GET", "/a"));
    }

    #[test]
    fn plain_http_is_for_reading_only() {
        let pages = Pages::default();
        pages.page("/debug/flags/v", "", |_| Response::text(200, "4"));
        let gate = PlainGate(Arc::new(pages));
        for (method, code) in [
            ("GET", 200),
            ("HEAD", 200),
            ("PUT", 405),
            ("POST", 405),
            ("PATCH", 405),
            ("DELETE", 405),
        ] {
            let response = gate.handle(Request {
                method: method.to_owned(),
                path: "/debug/flags/v".to_owned(),
                ..Request::default()
            });
            assert_eq!(response.code, code, "{method}");
        }
    }

    const ANONYMOUS: usize = Standing::Anonymous.slots();

    fn client(standing: Standing, number: usize) -> Client {
        let number = u8::try_from(number).expect("a small number");
        Client {
            standing,
            address: Some([10, 0, 0, number].into()),
        }
    }

    #[test]
    fn no_client_keeps_the_others_out() {
        let slots = Slots::default();
        let anonymous = |number| slots.take(client(Standing::Anonymous, number));
        let mut taken = vec![anonymous(0).expect("the first one")];
        assert!(anonymous(0).is_none(), "a quarter is one");
        taken.extend((1..ANONYMOUS).map(|number| anonymous(number).expect("free")));
        assert!(anonymous(9).is_none(), "all are taken");
        for standing in [Standing::Unknown, Standing::KnownAddress, Standing::Known] {
            let n = standing.slots();
            for number in 0..n {
                let slot = slots.take(client(standing, 4 * number / n));
                taken.push(slot.expect("the others have none of these"));
            }
        }
        taken.clear();
        assert!(anonymous(9).is_some());
    }

    #[test]
    fn a_client_with_credentials_waits_for_a_slot() {
        let slots = Arc::new(Slots::default());
        let own = || slots.take(client(Standing::Known, 0)).expect("one is free");
        let taken = [own(), own(), own()];
        let waiting = Arc::clone(&slots);
        let thread = spawn("t-waits", &Stop::new(), move || {
            let slot = waiting.take(client(Standing::Known, 0));
            slot.expect("one becomes free");
        });
        while slots.state.lock().waiting.is_empty() && !thread.is_finished() {
            std::thread::yield_now();
        }
        drop(taken);
        thread.join().expect("it got a slot");
    }
}
