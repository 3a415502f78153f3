//! Faults of single requests, drawn by the seed and counted by kind.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;

use super::http::{Answer, Request};
use super::rejections::rejection;

/// What goes wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// The connection breaks before the request arrives.
    LoseRequest,
    /// The server acts, and the connection breaks before the answer.
    LoseAnswer,
    /// The connection breaks, and the request arrives this much later.
    Late(Duration),
    /// The server acts and never answers.
    Silence,
    /// The request takes long.
    Slow(Duration),
    /// The server rejects with this code, and this `Retry-After` in seconds.
    Reject(u16, Option<u32>),
}

/// The kinds of faults that a history may have, as bits of [`Plan::fault_kinds`].
pub(super) const KINDS: [&str; 11] = [
    "lost request",
    "lost answer",
    "late request",
    "no answer",
    "slow request",
    "429 with Retry-After",
    "503 with Retry-After",
    "504 without Retry-After",
    "500",
    "422",
    "403",
];

/// Draws the faults of a history.
#[derive(Debug)]
pub(super) struct Faults {
    rng: Rng,
    /// Bits of [`KINDS`].
    kinds: u32,
    /// Of 1,000 requests, this many have a fault.
    rate: u32,
    /// How often each kind was drawn.
    pub(super) counts: BTreeMap<&'static str, u64>,
}

impl Faults {
    /// Draws faults of these kinds for so many of 1,000 requests.
    pub(super) fn new(seed: u64, kinds: u32, rate: u32) -> Self {
        Self {
            rng: Rng::with_seed(seed ^ 0xfa17),
            kinds,
            rate,
            counts: BTreeMap::new(),
        }
    }

    /// No request fails from now on.
    pub(super) fn end(&mut self) {
        self.rate = 0;
    }

    pub(super) fn count(&mut self, kind: &'static str) {
        *self.counts.entry(kind).or_default() += 1;
    }

    pub(super) fn draw(&mut self, request: &Request, is_watch: bool) -> Fault {
        // Always three draws, so that one kind less does not change the other faults.
        let (dice, kind, extent) = (
            self.rng.u32(..1_000),
            self.rng.usize(..KINDS.len()),
            self.rng.u64(..1_000),
        );
        if dice >= self.rate || self.kinds & (1 << kind) == 0 {
            return Fault::None;
        }
        let is_read = request.method == "GET";
        let fault = match KINDS[kind] {
            "lost request" => Fault::LoseRequest,
            "lost answer" => Fault::LoseAnswer,
            "late request" if !is_read => Fault::Late(Duration::from_millis(10 + 4 * extent)),
            "no answer" if !is_watch => Fault::Silence,
            "slow request" => Fault::Slow(Duration::from_millis(3 * extent)),
            "429 with Retry-After" => Fault::Reject(429, Some(1)),
            "503 with Retry-After" => Fault::Reject(503, Some(1 + u32::from(extent > 900))),
            "504 without Retry-After" => Fault::Reject(504, None),
            "500" => Fault::Reject(500, None),
            "422" if request.method == "POST" => Fault::Reject(422, None),
            // As of an admission webhook.
            "403" if request.method == "POST" => Fault::Reject(403, None),
            _ => return Fault::None,
        };
        self.count(KINDS[kind]);
        fault
    }
}

impl Fault {
    /// The rejection of a request that has no effect.
    pub(super) fn rejection(self) -> Option<Answer> {
        let Self::Reject(code, retry_after) = self else {
            return None;
        };
        let reason = match code {
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            422 => "Invalid",
            403 => "Forbidden",
            _ => "InternalError",
        };
        let mut answer = rejection(code, reason, "the simulation rejects this request");
        answer.retry_after = retry_after;
        Some(answer)
    }

    /// How much longer the request takes to its server.
    pub(super) fn delay(self) -> Duration {
        match self {
            Self::Late(delay) | Self::Slow(delay) => delay,
            _ => Duration::ZERO,
        }
    }
}
