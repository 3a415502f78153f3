//! What looks as if somebody else had written a ReplicaSet or a pod of it. Plain data without lock, clock
//! or I/O; [`other_writers`](crate::controller::observe::other_writers) follows it up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::api::{Pod, ResourceVersion};

/// Nothing is suspected for so long after the daemon took over: longer than a watch lags in health.
pub const GRACE: Duration = Duration::from_secs(10);

/// A ReplicaSet is told of once in this time; what is suspected in between only counts.
const TOLD_INTERVAL: Duration = Duration::from_mins(10);

/// When this daemon began to write, by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Armed {
    /// By the monotonic clock.
    pub since: Instant,
    /// By the wall clock, as the API server stamps objects.
    pub wall: Timestamp,
}

/// What is suspected of one ReplicaSet, and what was told of it.
#[derive(Debug, Default)]
pub struct Suspicion {
    suspects: Suspects,
    /// The version of an own status write that the watch has not shown yet.
    own_status: Option<ResourceVersion>,
    told: Option<Instant>,
}

/// What looks like somebody else's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspects {
    /// A pod that this daemon did not create.
    pub pod: Option<Arc<str>>,
    /// The version of a status that this daemon did not write.
    pub status: Option<ResourceVersion>,
}

impl Armed {
    fn is_past_grace(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) > GRACE
    }
}

impl Suspicion {
    /// A status of ours was stored under `version`.
    pub fn wrote_status(&mut self, version: &ResourceVersion) {
        if self.suspects.status.as_ref() == Some(version) {
            self.suspects.status = None;
        } else {
            self.own_status = Some(version.clone());
        }
    }

    /// The watch brought a pod that this daemon does not expect.
    pub fn saw_pod(&mut self, pod: &Pod, armed: &Armed, now: Instant) {
        let is_new = |creation: &crate::api::CompactTimestamp| creation.timestamp() > armed.wall;
        if armed.is_past_grace(now) && pod.creation.as_ref().is_some_and(is_new) {
            self.suspects.pod = Some(Arc::clone(&pod.key.name));
        }
    }

    /// The watch brought a status that has changed.
    pub fn saw_status(&mut self, version: &ResourceVersion, armed: Option<&Armed>, now: Instant) {
        let own = self.own_status.take_if(|own| version.is_as_new_as(own));
        if own.as_ref() != Some(version) && armed.is_some_and(|armed| armed.is_past_grace(now)) {
            self.suspects.status = Some(version.clone());
        }
    }

    /// True if something is suspected.
    pub fn is_raised(&self) -> bool {
        self.suspects != Suspects::default()
    }

    /// True if somebody else was told of not long ago.
    pub fn is_told(&self, now: Instant) -> bool {
        let is_recent = |told: Instant| now.saturating_duration_since(told) < TOLD_INTERVAL;
        self.told.is_some_and(is_recent)
    }

    /// Takes what is suspected.
    pub fn take(&mut self) -> Suspects {
        std::mem::take(&mut self.suspects)
    }

    /// Somebody else was told of.
    pub fn note_told(&mut self, now: Instant) {
        self.told = Some(now);
    }

    /// True if nothing has to be remembered.
    pub fn is_over(&self, now: Instant) -> bool {
        !self.is_raised() && self.own_status.is_none() && !self.is_told(now)
    }
}

impl Suspects {
    /// What they are, as the metric calls it.
    pub fn kinds(&self) -> impl Iterator<Item = &'static str> {
        let pod = self.pod.as_ref().map(|_| "pod");
        pod.into_iter()
            .chain(self.status.as_ref().map(|_| "status"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Armed, GRACE, Suspicion};
    use crate::api::{ObjectKey, Pod};
    use crate::stdx::clock::{Clock, FakeClock};

    fn armed(clock: &FakeClock) -> Armed {
        Armed {
            since: clock.now(),
            wall: clock.wall(),
        }
    }

    fn pod(clock: &FakeClock) -> Pod {
        Pod {
            key: ObjectKey::new("shop", "web-1"),
            creation: Some(clock.wall().into()),
            ..Pod::default()
        }
    }

    #[test]
    fn a_predecessors_late_writes_raise_no_suspicion() {
        let (mut suspicion, clock) = (Suspicion::default(), FakeClock::default());
        let (before, armed) = (pod(&clock), armed(&clock));
        clock.advance(GRACE);
        suspicion.saw_pod(&pod(&clock), &armed, clock.now());
        suspicion.saw_status(&"7".into(), Some(&armed), clock.now());
        clock.advance(Duration::from_secs(1));
        // It comes late, but it was created before.
        suspicion.saw_pod(&before, &armed, clock.now());
        assert!(!suspicion.is_raised());
        suspicion.saw_pod(&pod(&clock), &armed, clock.now());
        assert!(suspicion.is_raised());
    }

    #[test]
    fn once_told_it_is_told_no_more_for_ten_minutes() {
        let (mut suspicion, clock) = (Suspicion::default(), FakeClock::default());
        assert!(!suspicion.is_told(clock.now()));
        suspicion.note_told(clock.now());
        clock.advance(Duration::from_secs(599));
        assert!(suspicion.is_told(clock.now()));
        clock.advance(Duration::from_secs(1));
        assert!(!suspicion.is_told(clock.now()));
    }

    #[test]
    fn nothing_is_suspected_while_this_daemon_must_not_write() {
        let mut suspicion = Suspicion::default();
        suspicion.saw_status(&"7".into(), None, Instant::now());
        assert!(!suspicion.is_raised());
    }

    #[test]
    fn own_statuses_raise_none_whichever_of_event_and_answer_comes_first() {
        let (mut suspicion, clock) = (Suspicion::default(), FakeClock::default());
        let armed = armed(&clock);
        clock.advance(GRACE + Duration::from_secs(1));
        suspicion.wrote_status(&"7".into());
        suspicion.saw_status(&"7".into(), Some(&armed), clock.now());
        suspicion.saw_status(&"8".into(), Some(&armed), clock.now());
        suspicion.wrote_status(&"8".into());
        assert!(suspicion.is_over(clock.now()));
    }
}
