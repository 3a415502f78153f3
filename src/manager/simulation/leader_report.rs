//! What the leader reports about itself once all objects have converged.

use super::objects::{Kind, NAMESPACE, is_terminating};
use super::world::World;
use crate::api::ObjectKey;
use crate::controller::ReplicaSetController;
use crate::explain::inspect::RecordFacts;
use crate::stdx::turns::simulation::in_process;

impl World {
    /// PROPERTY P40: At rest, the leader reports so for every ReplicaSet: but for writes of unknown
    /// outcome it expects none, waits for no version, has no back-off and no error; its queue is
    /// empty; and its count of ReplicaSets that have not converged is correct.
    pub(super) fn reports_unrest(&self) -> Option<String> {
        let state = self.lock();
        let Some((process, queue, controller)) = state.leading() else {
            return Some("nobody leads".to_owned());
        };
        let sets = state.server.all(Kind::ReplicaSet);
        let alive = sets.filter(|rs| !is_terminating(rs));
        let (mut keys, mut n_behind) = (Vec::new(), 0);
        for rs in alive {
            keys.push(ObjectKey::new(NAMESPACE, &*rs.name));
            let (spec, status) = (&rs.value["spec"], &rs.value["status"]);
            let available = status["availableReplicas"].as_i64().unwrap_or(0);
            let n_pods = status["replicas"].as_i64().unwrap_or(0);
            let replicas = spec["replicas"].as_i64().unwrap_or(1);
            n_behind += usize::from(available != replicas || n_pods != replicas);
        }
        drop(state);
        in_process(process, || {
            let unrest = keys.iter().find_map(|key| unrest_of(&controller, key));
            let reported = (
                queue.stats().depth,
                queue.in_progress().total.is_zero(),
                controller.inspector().totals().rejected,
                controller.inspector().totals().pods_backed_off,
                controller.inspector().totals().expected,
                controller.inspector().n_not_converged(),
            );
            let expected = (0, true, [0; 4], 0, (0, 0), n_behind);
            let figures = || (reported != expected).then(|| format!("figures: {reported:?}"));
            unrest.or_else(figures)
        })
    }
}

/// What the leader reports about a ReplicaSet that contradicts that it has converged.
fn unrest_of(controller: &ReplicaSetController, key: &ObjectKey) -> Option<String> {
    let Some(memory) = controller
        .inspector()
        .inspect(key)
        .and_then(|facts| facts.memory)
    else {
        return Some(format!("the leader does not know {key}"));
    };
    let memory = RecordFacts {
        unresolved_creations: Vec::new(),
        unresolved_deletions: Vec::new(),
        ..memory
    };
    let is_quiet = memory.is_quiet() && !memory.queue.is_processing;
    (!is_quiet).then(|| format!("{key}: {memory:?}"))
}
