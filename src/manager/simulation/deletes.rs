//! What the oracles know of the deletes that a process has sent for a pod.

/// The deletes of one pod that a process has sent.
#[derive(Debug, Default)]
pub(super) struct Deletes {
    /// The revision that the last one named as a condition.
    revision: Option<u64>,
    n_sent: u32,
    n_refused: u32,
    /// The store went back after the last one.
    are_undone: bool,
    /// The turn at which the sync of the first one began.
    since: u64,
}

impl Deletes {
    /// A delete was sent on condition of a revision, by the sync that began at this turn.
    pub(super) fn was_sent(&mut self, revision: Option<u64>, since: u64) {
        if self.n_sent == 0 {
            self.since = since;
        }
        self.n_sent += 1;
        self.are_undone = false;
        self.revision = revision;
    }

    pub(super) fn are_some(&self) -> bool {
        self.n_sent > 0
    }

    /// A delete was refused with a code that says that it had no effect.
    pub(super) fn was_refused(&mut self) {
        self.n_refused += 1;
    }

    /// The store went back: none has an effect any more, but each may be repeated.
    pub(super) fn were_undone(&mut self) {
        self.n_refused = self.n_sent;
        self.are_undone = self.are_some();
    }

    /// True if the outcome of one of them is unknown, as long as the pod is there.
    pub(super) fn are_open(&self) -> bool {
        self.n_refused < self.n_sent
    }

    pub(super) fn are_undone(&self) -> bool {
        self.are_undone
    }

    /// True if they are of the sync that began at this turn.
    pub(super) fn are_of(&self, since: u64) -> bool {
        self.since == since
    }

    /// True if one of them may have had an effect, or will have, on a pod that the process knows
    /// in this version at most: the API server refuses a delete on condition of a version that the
    /// pod has left.
    pub(super) fn may_count(&self, newest: u64) -> bool {
        self.are_open() && self.revision.is_none_or(|revision| newest <= revision)
    }
}
