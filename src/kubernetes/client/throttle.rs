//! Client-side rate limit: a token bucket that keeps this daemon from crowding out other clients of
//! the API server. The bucket is pure; [`Throttle`] blocks the sending thread.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::error::ClientError;
use super::request::{Flow, Request};
use crate::stdx::stop::Stop;
use crate::stdx::{clock, thread};

/// Longer waits are logged at the debug level (client-go `rest/request.go:longThrottleLatency`).
const LONG_WAIT: Duration = Duration::from_millis(50);

/// Longer waits are logged at the default level (client-go
/// `rest/request.go:extraLongThrottleLatency`).
const VERY_LONG_WAIT: Duration = Duration::from_secs(1);

/// Minimum interval between two such lines at the default level, so that one large scale-up does
/// not flood the log (client-go `rest/request.go:globalThrottledLogger`).
const NOTICE_INTERVAL: Duration = Duration::from_secs(10);

/// A token bucket and the requests that wait for its tokens. Tokens arrive at a steady rate up to a
/// limit.
///
/// The namespaces take turns, and the objects of a namespace take turns within the turn of their
/// namespace (see [`Request::on_behalf_of`]), however many requests each has.
///
/// DIFFERS: upstream serves requests in their order of arrival (client-go
/// `util/flowcontrol/throttle.go:tokenBucketRateLimiter`), so that the many pods of one ReplicaSet
/// delay all others.
#[derive(Debug)]
struct FairBucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    updated: Instant,
    /// The turns of the namespaces: a place for each waiting request.
    all: Turns,
    namespaces: HashMap<u64, Namespace>,
}

#[derive(Debug, Default)]
struct Namespace {
    /// Its places in the order of service. They are not bound to a request: the first request in
    /// the turns of the owners has the first place.
    places: VecDeque<Place>,
    owners: Turns,
}

/// A waiting request: its namespace, and its place there.
#[derive(Clone, Copy, Debug)]
struct Ticket {
    namespace: u64,
    place: Place,
}

/// Start-time fair queueing with requests of equal weight.
#[derive(Debug, Default)]
struct Turns {
    /// Waiting requests in the order of service.
    waiting: BTreeSet<Place>,
    /// The next turn of each flow, if it is not the current turn.
    next: HashMap<u64, u64>,
    /// The turn of the last request served.
    turn: u64,
    n_enqueued: u64,
}

/// A request's place in the queue: its turn and its order of arrival.
type Place = (u64, u64);

/// Upper bound of spare requests.
const SPARE_MAX: u32 = 64;

/// Above this number of flows the bucket drops those that are not ahead of the current turn.
const TURNS_MAX: usize = 1024;

impl Turns {
    fn enqueue(&mut self, flow: u64) -> Place {
        if self.waiting.is_empty() {
            // If no request waits, no flow is ahead of another.
            self.next.clear();
        } else if self.next.len() >= TURNS_MAX {
            let turn = self.turn;
            self.next.retain(|_, next| *next > turn);
        }
        let next = self.next.entry(flow).or_default();
        let turn = self.turn.max(*next);
        *next = turn + 1;
        self.n_enqueued += 1;
        let place = (turn, self.n_enqueued);
        self.waiting.insert(place);
        place
    }

    /// Number of requests that are served before `place`.
    fn n_before(&self, place: Place) -> usize {
        self.waiting.range(..place).count()
    }

    /// Removes the request at `place`, which is served.
    fn serve(&mut self, place: Place) {
        self.waiting.remove(&place);
        self.turn = self.turn.max(place.0);
    }
}

impl FairBucket {
    /// Creates a full bucket without waiting requests.
    fn new(per_second: f32, burst: u32, now: Instant) -> Self {
        let burst = f64::from(burst.max(1));
        Self {
            per_second: per_second.into(),
            burst,
            tokens: burst,
            updated: now,
            all: Turns::default(),
            namespaces: HashMap::new(),
        }
    }

    fn enqueue(&mut self, flow: Flow) -> Ticket {
        let namespace = self.namespaces.entry(flow.namespace).or_default();
        let place = self.all.enqueue(flow.namespace);
        namespace.places.push_back(place);
        Ticket {
            namespace: flow.namespace,
            place: namespace.owners.enqueue(flow.owner),
        }
    }

    /// Takes the token of the request `ticket` if there are enough for it and all requests before
    /// it.
    fn take(&mut self, ticket: Ticket, now: Instant) -> Result<(), Duration> {
        self.refill(now);
        let Some(namespace) = self.namespaces.get_mut(&ticket.namespace) else {
            return Ok(());
        };
        let index = namespace.owners.n_before(ticket.place);
        let place = namespace.places.get(index).copied().unwrap_or_default();
        // Every request before this one takes a token first.
        let n_before = u32::try_from(self.all.n_before(place)).unwrap_or(u32::MAX);
        let missing = f64::from(n_before) + 1.0 - self.tokens;
        if missing > TOKEN_EPSILON {
            let wait = Duration::try_from_secs_f64(missing / self.per_second);
            return Err(wait.unwrap_or(Duration::MAX));
        }
        self.tokens -= 1.0;
        self.all.serve(place);
        namespace.places.remove(index);
        namespace.owners.serve(ticket.place);
        self.drop_if_empty(ticket.namespace);
        Ok(())
    }

    /// Removes the request `ticket` from the queue. Its namespace loses its last place.
    fn remove(&mut self, ticket: Ticket) {
        if let Some(namespace) = self.namespaces.get_mut(&ticket.namespace) {
            namespace.owners.waiting.remove(&ticket.place);
            if let Some(last) = namespace.places.pop_back() {
                self.all.waiting.remove(&last);
            }
        }
        self.drop_if_empty(ticket.namespace);
    }

    fn drop_if_empty(&mut self, namespace: u64) {
        if (self.namespaces.get(&namespace)).is_some_and(|it| it.places.is_empty()) {
            self.namespaces.remove(&namespace);
        }
    }

    /// Returns how many requests, up to [`SPARE_MAX`], may be sent at once and still leave half of
    /// the burst. None if a request waits.
    fn n_spare(&mut self, now: Instant) -> usize {
        self.refill(now);
        let spare = self.tokens - (self.burst / 2.0).floor() + TOKEN_EPSILON;
        let is_spare = |n: &u32| f64::from(*n) <= spare;
        if self.namespaces.is_empty() {
            (1..=SPARE_MAX).take_while(is_spare).count()
        } else {
            0
        }
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.updated).as_secs_f64();
        self.updated = self.updated.max(now);
        self.tokens = (self.tokens + elapsed * self.per_second).min(self.burst);
    }
}

/// Tolerance for rounded times, as a fraction of a token.
const TOKEN_EPSILON: f64 = 1e-6;

/// Blocks requests until the rate limit allows them.
#[derive(Debug)]
pub(super) struct Throttle {
    /// `None`: no limit.
    state: Option<Mutex<State>>,
    stop: Stop,
}

#[derive(Debug)]
struct State {
    bucket: FairBucket,
    last_notice: Option<Instant>,
}

impl Throttle {
    /// Creates a throttle of `qps` requests per second and `burst` at once. There is no limit if
    /// `qps` is not above zero.
    pub(super) fn new(qps: f32, burst: u32, stop: &Stop) -> Self {
        let state = (qps > 0.0).then(|| {
            Mutex::new(State {
                bucket: FairBucket::new(qps, burst, clock::now()),
                last_notice: None,
            })
        });
        Self {
            state,
            stop: stop.clone(),
        }
    }

    pub(super) fn is_limited(&self) -> bool {
        self.state.is_some()
    }

    /// Returns how many requests may be sent at once and still leave half of the burst to others;
    /// [`usize::MAX`] without a limit. Never blocks.
    pub(super) fn n_spare(&self) -> usize {
        let Some(state) = &self.state else {
            return usize::MAX;
        };
        let mut state = state.lock();
        state.bucket.n_spare(clock::now())
    }

    /// Blocks until `request` may be sent. The stop signal ends the wait. A request that need not
    /// wait may be sent even then, because the last events and the lease are written after the
    /// signal.
    pub(super) fn wait(&self, request: &Request) -> Result<(), ClientError> {
        let Some(state) = &self.state else {
            return Ok(());
        };
        let lock = || state.lock();
        let now = clock::now();
        let mut guard = lock();
        let ticket = guard.bucket.enqueue(request.flow);
        let mut taken = guard.bucket.take(ticket, now);
        let due = |last_notice| now.saturating_duration_since(last_notice) >= NOTICE_INTERVAL;
        let wait = taken.err().unwrap_or_default();
        let notice = wait > VERY_LONG_WAIT && guard.last_notice.is_none_or(due);
        if notice {
            guard.last_notice = Some(now);
        }
        drop(guard);
        if taken.is_ok() {
            return Ok(());
        }
        if notice {
            log::info!("client-side throttling (--kube-api-qps): {request} waits {wait:.1?}");
        } else if wait > LONG_WAIT {
            log::debug!("client-side throttling (--kube-api-qps): {request} waits {wait:.3?}");
        }
        let _wait = thread::enter("waits for the rate limit", format_args!("{wait:.1?}"));
        // Requests of other flows may have enqueued before this one during its wait.
        while let Err(wait) = taken {
            if self.stop.wait_timeout(wait) {
                lock().bucket.remove(ticket);
                return Err(ClientError::Stopped);
            }
            taken = lock().bucket.take(ticket, clock::now());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{FairBucket, Throttle};
    use crate::client::request::Flow;
    use crate::client::{ClientError, Request};
    use crate::stdx::stop::{Cause, Stop};

    /// Returns the wait of each request in milliseconds if all enqueue at once.
    fn waits(bucket: &mut FairBucket, owners: &[u64], now: Instant) -> Vec<u128> {
        let flows: Vec<_> = owners.iter().map(|owner| of(1, *owner)).collect();
        waits_of(bucket, &flows, now)
    }

    fn of(namespace: u64, owner: u64) -> Flow {
        Flow { namespace, owner }
    }

    fn waits_of(bucket: &mut FairBucket, flows: &[Flow], now: Instant) -> Vec<u128> {
        let tickets: Vec<_> = flows.iter().map(|flow| bucket.enqueue(*flow)).collect();
        let wait = |ticket| bucket.take(ticket, now).err().unwrap_or_default();
        let waits: Vec<_> = tickets.into_iter().map(wait).collect();
        waits.iter().map(Duration::as_millis).collect()
    }

    #[test]
    fn a_burst_is_free_and_then_callers_are_spaced() {
        let start = Instant::now();
        let mut bucket = FairBucket::new(20.0, 3, start);
        assert_eq!(waits(&mut bucket, &[0; 6], start), [0, 0, 0, 50, 100, 150]);
    }

    #[test]
    fn quiet_times_fill_the_bucket_up_to_the_burst() {
        let start = Instant::now();
        let mut bucket = FairBucket::new(10.0, 2, start);
        assert_eq!(waits(&mut bucket, &[0; 2], start), [0, 0]);
        let later = start + Duration::from_mins(1);
        assert_eq!(waits(&mut bucket, &[0; 3], later), [0, 0, 100]);
    }

    #[test]
    fn time_that_runs_backwards_adds_no_tokens() {
        let start = Instant::now();
        let mut bucket = FairBucket::new(1.0, 1, start + Duration::from_secs(5));
        assert_eq!(waits(&mut bucket, &[0; 2], start), [0, 1000]);
    }

    #[test]
    fn a_small_flow_does_not_wait_for_a_large_one() {
        let start = Instant::now();
        let mut bucket = FairBucket::new(10.0, 1, start);
        assert_eq!(
            waits(&mut bucket, &[1, 1, 1, 1, 2, 3, 2], start),
            [0, 300, 500, 600, 100, 200, 400],
            "flow 1 has had its first turn, then each has one in turn"
        );
    }

    #[test]
    fn a_namespace_does_not_wait_for_the_many_objects_of_another() {
        let start = Instant::now();
        let mut bucket = FairBucket::new(10.0, 1, start);
        let flows = [
            (1, 1),
            (1, 1),
            (1, 1),
            (1, 2),
            (1, 3),
            (2, 1),
            (3, 1),
            (2, 1),
        ];
        let flows = flows.map(|(namespace, owner)| of(namespace, owner));
        assert_eq!(
            waits_of(&mut bucket, &flows, start),
            [0, 600, 700, 300, 500, 100, 200, 400],
            "namespace 1 has had its first turn, then each has one in turn; so have its owners"
        );
        assert!(bucket.namespaces.contains_key(&1));
    }

    #[test]
    fn a_quiet_flow_saves_no_turns() {
        let start = Instant::now();
        let mut bucket = FairBucket::new(1.0, 1, start);
        let mut at = start;
        // A request always waits while flow 1 is served 50 times.
        let mut next = bucket.enqueue(of(1, 1));
        for _ in 0..50 {
            let one_more = bucket.enqueue(of(1, 1));
            bucket.take(next, at).expect("a token a second");
            at += Duration::from_secs(1);
            next = one_more;
        }
        assert_eq!(
            waits(&mut bucket, &[2, 2, 2], at),
            [0, 2000, 3000],
            "one turn before the request that waits, the next one after it"
        );
    }

    #[test]
    fn the_next_request_gets_the_token_of_a_removed_one() {
        let start = Instant::now();
        let mut bucket = FairBucket::new(10.0, 1, start);
        let tickets = [0; 3].map(|owner| bucket.enqueue(of(1, owner)));
        bucket.take(tickets[0], start).expect("the burst");
        bucket.remove(tickets[1]);
        let wait = bucket
            .take(tickets[2], start)
            .expect_err("the bucket is empty");
        assert_eq!(wait.as_millis(), 100);
        let later = start + wait;
        bucket
            .take(tickets[2], later)
            .expect("the token has arrived");
    }

    #[test]
    fn half_of_the_burst_is_never_spare() {
        let now = Instant::now();
        let mut bucket = FairBucket::new(10.0, 30, now);
        assert_eq!(bucket.n_spare(now), 15);
        assert_eq!(waits(&mut bucket, &[0; 12], now), [0; 12]);
        assert_eq!(bucket.n_spare(now), 3);
        assert_eq!(waits(&mut bucket, &[0; 18], now), [0; 18]);
        assert_eq!(bucket.n_spare(now), 0);
        let later = now + Duration::from_secs(2);
        assert_eq!(bucket.n_spare(later), 5);
        bucket.enqueue(of(1, 0));
        assert_eq!(bucket.n_spare(later), 0, "a request waits");
        let mut smallest = FairBucket::new(1.0, 1, now);
        assert_eq!(smallest.n_spare(now), 1);
        let unlimited = Throttle::new(0.0, 0, &Stop::new());
        assert_eq!(unlimited.n_spare(), usize::MAX);
    }

    #[test]
    fn zero_qps_is_no_limit_and_zero_burst_is_one() {
        for qps in [0.0, -1.0] {
            let throttle = Throttle::new(qps, 0, &Stop::new());
            for _ in 0..1000 {
                throttle.wait(&Request::get("/")).expect("there is no wait");
            }
        }
        let now = Instant::now();
        let mut bucket = FairBucket::new(1.0, 0, now);
        assert_eq!(waits(&mut bucket, &[0], now), [0]);
    }

    #[test]
    fn stop_ends_waits_but_free_requests_are_sent() {
        let stop = Stop::new();
        let throttle = Throttle::new(0.001, 1, &stop);
        stop.stop(Cause::Requested("test".to_owned()));
        throttle.wait(&Request::get("/")).expect("there is no wait");
        assert!(matches!(
            throttle.wait(&Request::get("/")),
            Err(ClientError::Stopped)
        ));
        let state = throttle.state.as_ref().expect("there is a limit");
        let state = state.lock();
        assert!(state.bucket.namespaces.is_empty(), "the request is removed");
    }
}
