//! When a ReplicaSet needs its next sync, if no event brings it earlier, and why. Pure.

use std::time::Instant;

/// Why a sync comes back without an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Something has changed during the sync.
    Changed,
    /// A cache must reach a version, or an own write be shown.
    CachesLag,
    /// Creates wait: after a refusal, or for the news of a deletion.
    Held,
    /// An opt-in lets pods be created or deleted.
    OptIn,
    /// An opt-in changes what is reported.
    OptInReport,
    /// A Ready pod becomes available.
    Availability,
    /// A status with mere progress may be written.
    Status,
    /// A Failed pod may be deleted.
    Leftovers,
}

impl Reason {
    /// True if pods may have to be created or deleted then.
    fn is_urgent(self) -> bool {
        match self {
            Self::Changed | Self::CachesLag | Self::Held | Self::OptIn => true,
            Self::OptInReport | Self::Availability | Self::Status | Self::Leftovers => false,
        }
    }
}

/// The earliest time of each priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// When pods may have to be created or deleted.
    pub high: Option<(Instant, Reason)>,
    /// When anything else may have to be done.
    pub low: Option<(Instant, Reason)>,
}

impl Next {
    /// Adds a reason. The earliest counts.
    pub fn add(&mut self, at: Instant, reason: Reason) {
        let known = if reason.is_urgent() {
            &mut self.high
        } else {
            &mut self.low
        };
        if known.is_none_or(|(earlier, _)| at < earlier) {
            *known = Some((at, reason));
        }
    }
}
