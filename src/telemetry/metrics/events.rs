//! What became of the events for people, by the controller that recorded them.

use super::computed::Computed;
use super::registry::Registry;

/// The one family; `outcome` is `sent`, `filtered`, `failed` or `dropped`.
#[derive(Debug)]
pub struct EventFamilies {
    /// What the recorder counts for itself anyway.
    pub events: Computed,
}

impl EventFamilies {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            events: registry.computed_counters(
                "replicaset_controller_events_total",
                "Events for people, by what became of them: sent to the API server, filtered because \
                 there were too many about one object, failed, or dropped because too many waited.",
                &["name", "outcome"],
            ),
        }
    }
}
