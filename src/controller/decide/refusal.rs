//! Kinds of refused creates, and how long each waits until it is tried again. Pure.
//!
//! DIFFERS: upstream retries after 5 ms, doubled with each failure of the key up to 1,000 s,
//! whatever the error is.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::api::Uid;
use crate::writes::WriteError;

/// A ReplicaSet in front of a quota is tried at the latest after this time: the longest back-off
/// upstream (client-go `DefaultTypedControllerRateLimiter`).
pub const QUOTA_WAIT: Duration = Duration::from_secs(1000);

/// The first and the longest wait after an overload without `Retry-After`.
const OVERLOAD_WAIT_MIN: Duration = Duration::from_millis(5);
/// See `OVERLOAD_WAIT_MIN`.
pub const OVERLOAD_WAIT_MAX: Duration = Duration::from_secs(30);

/// The first and the longest wait after a 422. Most pods that are invalid stay so. But a broken
/// webhook or policy also answers 422, and its repair starts no sync.
const INVALID_WAIT_MIN: Duration = Duration::from_secs(1);
/// See `INVALID_WAIT_MIN`.
pub const INVALID_WAIT_MAX: Duration = Duration::from_mins(5);

/// Why the API server refuses the pods of a ReplicaSet. An error of no kind has upstream's
/// back-off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 403 of this ResourceQuota.
    Quota(Arc<str>),
    /// 429, 503, a time-out, or a webhook that did not respond.
    Overload {
        /// `details.retryAfterSeconds`, or the header `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// 422, of the API server itself or of a webhook or policy.
    Invalid,
}

impl Refusal {
    /// The kinds, in the order of [`Refusal::kind`].
    pub const KINDS: [&str; 3] = ["quota", "overload", "invalid"];

    /// The kind of this failed create; `None` for errors of other kinds.
    pub fn of(error: &WriteError) -> Option<Self> {
        let status = error.response()?;
        if let Some(quota) = status.refusing_quota() {
            return Some(Self::Quota(quota.into()));
        }
        if status.is_overload() {
            let retry_after = status.retry_after();
            return Some(Self::Overload { retry_after });
        }
        status.is_invalid().then_some(Self::Invalid)
    }

    /// Index of its kind in [`Refusal::KINDS`].
    pub fn kind(&self) -> usize {
        match self {
            Self::Quota(_) => 0,
            Self::Overload { .. } => 1,
            Self::Invalid => 2,
        }
    }

    /// The wait after the `n`-th refusal of this kind in a row, if nothing ends it earlier.
    pub fn wait(&self, owner: &Uid, n: u32) -> Duration {
        let (least, longest, retry_after) = match self {
            Self::Quota(_) => return QUOTA_WAIT,
            Self::Invalid => (INVALID_WAIT_MIN, INVALID_WAIT_MAX, None),
            Self::Overload { retry_after } => (OVERLOAD_WAIT_MIN, OVERLOAD_WAIT_MAX, *retry_after),
        };
        let doublings = n.saturating_sub(1).min(16);
        let wait = least * (1 << doublings);
        let wait = wait.max(retry_after.unwrap_or_default());
        // What is cut off to the longest wait is spread, too.
        let least = if wait < longest {
            wait
        } else {
            longest.mul_f64(1.0 / 1.5)
        };
        let most = least.mul_f64(1.5).min(longest);
        least + most.saturating_sub(least).mul_f64(uniform(owner, n))
    }
}

/// A number in `0.0..1.0` that differs between ReplicaSets and tries, and is the same in each run
/// of a test.
fn uniform(owner: &Uid, n: u32) -> f64 {
    let mut hasher = DefaultHasher::new();
    (owner, n).hash(&mut hasher);
    f64::from(u16::try_from(hasher.finish() & 0xffff).unwrap_or_default()) / 65_536.0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{INVALID_WAIT_MAX, OVERLOAD_WAIT_MAX, QUOTA_WAIT, Refusal};
    use crate::api::Status;
    use crate::writes::WriteError;

    /// The kind of the error as writes report it: from 500 on, its outcome is unknown.
    fn of(code: u16, reason: &str, message: &str) -> Option<Refusal> {
        let status = Status::new(code, reason, message);
        Refusal::of(&match code {
            500.. => WriteError::Unknown {
                message: message.to_owned(),
                status: Some(status),
            },
            _ => WriteError::Refused(status),
        })
    }

    #[test]
    fn each_refusal_has_its_kind() {
        let overload = Some(Refusal::Overload { retry_after: None });
        let quota = Some(Refusal::Quota("q".into()));
        let exceeded = "pods \"a\" is forbidden: exceeded quota: q, requested: pods=1";
        let terminating = "unable to create new content in namespace a because it is being \
            terminated";
        for (code, reason, message, expected) in [
            (403, "Forbidden", exceeded, quota),
            (403, "Forbidden", "error looking up service account", None),
            (403, "Forbidden", terminating, None),
            (
                422,
                "Invalid",
                "spec.containers: Required",
                Some(Refusal::Invalid),
            ),
            (429, "TooManyRequests", "", overload.clone()),
            (503, "ServiceUnavailable", "", overload.clone()),
            (504, "Timeout", "", overload),
            (500, "InternalError", "etcd", None),
            (409, "AlreadyExists", "", None),
        ] {
            assert_eq!(of(code, reason, message), expected, "{code} {message}");
        }
        assert_eq!(Refusal::of(&WriteError::unknown("connection reset")), None);
        assert_eq!(Refusal::of(&WriteError::Stopped), None);
    }

    #[test]
    fn an_overload_waits_for_retry_after_and_at_most_30_s() {
        let uid = "uid".into();
        let wait = |seconds: Option<u64>, n| {
            let retry_after = seconds.map(Duration::from_secs);
            Refusal::Overload { retry_after }.wait(&uid, n)
        };
        for n in 1..40 {
            let without = wait(None, n);
            let least = Duration::from_millis(5) * (1 << (n - 1).min(16));
            let longest = OVERLOAD_WAIT_MAX * 2 / 3;
            assert!(without >= least.min(longest), "{n}: {without:?}");
            assert!(
                without <= (least * 3 / 2).min(OVERLOAD_WAIT_MAX),
                "{n}: {without:?}"
            );
            let with = wait(Some(7), n);
            assert!(with >= Duration::from_secs(7) && with <= OVERLOAD_WAIT_MAX);
        }
        for seconds in [30, u64::MAX / 2] {
            let waits = [1, 2, 3].map(|n| wait(Some(seconds), n));
            assert!(waits.iter().all(|wait| *wait <= OVERLOAD_WAIT_MAX));
            assert!(waits[0] != waits[1] && waits[1] != waits[2], "{waits:?}");
        }
        let other = Refusal::Overload {
            retry_after: Some(Duration::from_secs(1)),
        };
        assert_ne!(
            other.wait(&"a".into(), 1),
            other.wait(&"b".into(), 1),
            "jitter"
        );
    }

    #[test]
    fn an_invalid_pod_is_tried_after_a_second_up_to_5_min() {
        let uid = "uid".into();
        let mut at = Duration::ZERO;
        let mut tries = Vec::new();
        for n in 1..30 {
            let wait = Refusal::Invalid.wait(&uid, n);
            assert!(wait <= INVALID_WAIT_MAX, "{n}: {wait:?}");
            at += wait;
            tries.push(at.as_secs());
        }
        assert!((1..=2).contains(&tries[0]), "{tries:?}");
        // A policy is lifted after 10 s.
        let first = tries.iter().find(|it| **it >= 10).expect("a try");
        assert!(*first < 30, "{tries:?}");
        let in_an_hour = tries.iter().filter(|it| **it < 3600).count();
        assert!((15..=30).contains(&in_an_hour), "{tries:?}");
    }

    #[test]
    fn a_quota_is_tried_after_1000_s_at_the_latest() {
        for n in [1, 2, 100] {
            assert_eq!(
                Refusal::Quota("q".into()).wait(&"uid".into(), n),
                QUOTA_WAIT
            );
        }
    }
}
