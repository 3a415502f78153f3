//! Selects the changes that `dev` prints: targets of ReplicaSets and ReplicationControllers and
//! when they are reached, and the number of pods created and deleted. Pure.

use std::collections::BTreeMap;

use crate::devserver::Tally;
use crate::run::stand_in::world::SetFacts;

/// Remembers the printed state, so that each change is printed once.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// By kind, namespace and name.
    known: BTreeMap<(String, String, String), Known>,
}

#[derive(Debug)]
struct Known {
    uid: String,
    desired: usize,
    is_complete: bool,
    failure: Option<String>,
}

impl Changes {
    /// Returns lines for the changes in `sets`, which are all sets, and for the pods counted since.
    pub(super) fn lines(&mut self, sets: &[SetFacts], pods: &Tally) -> Vec<String> {
        let mut lines = Vec::new();
        for set in sets {
            let key = (set.kind.clone(), set.namespace.clone(), set.name.clone());
            let before = self.known.get(&key).filter(|known| known.uid == set.uid);
            describe(set, before, &mut lines);
            self.known.insert(key, known(set));
        }
        self.known.retain(|(kind, namespace, name), known| {
            let is_there = sets.iter().any(|set| set.uid == known.uid);
            if !is_there {
                lines.push(format!("{kind} {namespace}/{name}: deleted"));
            }
            is_there
        });
        let more = if pods.is_complete { "" } else { "more than " };
        match (pods.added, pods.deleted) {
            (0, 0) => {}
            (added, 0) => lines.push(format!("pods: {more}{added} created")),
            (0, deleted) => lines.push(format!("pods: {more}{deleted} gone")),
            (added, deleted) => {
                lines.push(format!("pods: {more}{added} created, {more}{deleted} gone"));
            }
        }
        lines
    }
}

fn known(set: &SetFacts) -> Known {
    Known {
        uid: set.uid.clone(),
        desired: set.desired,
        is_complete: is_complete(set),
        failure: set.failure.clone(),
    }
}

fn is_complete(set: &SetFacts) -> bool {
    let counts = [set.current, set.ready, set.available];
    set.is_observed && counts.iter().all(|count| *count == set.desired)
}

fn describe(set: &SetFacts, before: Option<&Known>, lines: &mut Vec<String>) {
    let desired = set.desired;
    let mut say = |what: String| {
        let (kind, namespace, name) = (&set.kind, &set.namespace, &set.name);
        lines.push(format!("{kind} {namespace}/{name}: {what}"));
    };
    match before {
        None => say(format!("new, wants {}", count(desired))),
        Some(known) if known.desired != desired => {
            say(format!("scaled from {} to {desired}", known.desired));
        }
        Some(_) => {}
    }
    let failed_before = before.and_then(|known| known.failure.as_ref());
    match (failed_before, &set.failure) {
        (None, Some(why)) => say(format!("blocked: {why}")),
        (Some(_), None) => say("no longer blocked".to_owned()),
        _ => {}
    }
    let was_complete = before.is_some_and(|known| known.is_complete && known.desired == desired);
    if is_complete(set) && !was_complete {
        say(match desired {
            0 => "has no pods, as desired".to_owned(),
            1 => "its pod is available".to_owned(),
            _ => format!("all {desired} pods are available"),
        });
    } else if was_complete && !is_complete(set) {
        say(format!("{} of {} available", set.available, count(desired)));
    }
}

fn count(pods: usize) -> String {
    match pods {
        1 => "1 pod".to_owned(),
        _ => format!("{pods} pods"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Changes, SetFacts, Tally};

    fn set(desired: usize, available: usize) -> SetFacts {
        SetFacts {
            kind: "replicaset".to_owned(),
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            uid: "u".to_owned(),
            desired,
            current: available,
            ready: available,
            available,
            is_observed: true,
            failure: None,
        }
    }

    fn tally(added: usize, deleted: usize) -> Tally {
        Tally {
            added,
            deleted,
            is_complete: true,
            ..Tally::default()
        }
    }

    #[test]
    fn each_change_is_said_once() {
        let mut changes = Changes::default();
        let mut check = |sets: &[SetFacts], pods: Tally, expected: &[&str]| {
            let prefixed = |line: &&str| match line.strip_prefix("rs ") {
                Some(rest) => format!("replicaset default/web: {rest}"),
                None => (*line).to_owned(),
            };
            let expected: Vec<String> = expected.iter().map(prefixed).collect();
            assert_eq!(changes.lines(sets, &pods), expected);
        };
        check(&[], tally(0, 0), &[]);
        check(&[set(3, 0)], tally(0, 0), &["rs new, wants 3 pods"]);
        check(&[set(3, 1)], tally(3, 0), &["pods: 3 created"]);
        check(&[set(3, 3)], tally(0, 0), &["rs all 3 pods are available"]);
        check(&[set(3, 3)], tally(0, 0), &[]);
        check(
            &[set(3, 2)],
            tally(1, 1),
            &["rs 2 of 3 pods available", "pods: 1 created, 1 gone"],
        );
        let blocked = SetFacts {
            failure: Some("quota".to_owned()),
            ..set(5, 3)
        };
        check(
            std::slice::from_ref(&blocked),
            tally(0, 0),
            &["rs scaled from 3 to 5", "rs blocked: quota"],
        );
        check(&[blocked], tally(0, 0), &[]);
        check(
            &[set(5, 5)],
            tally(2, 0),
            &[
                "rs no longer blocked",
                "rs all 5 pods are available",
                "pods: 2 created",
            ],
        );
        let mut successor = set(1, 0);
        successor.uid = "v".to_owned();
        check(
            &[successor],
            tally(0, 5),
            &["rs new, wants 1 pod", "pods: 5 gone"],
        );
        check(&[], tally(0, 0), &["rs deleted"]);
    }
}
