//! The names of the pods that are created.
//!
//! They look as the API server's own choice would: the prefix of `generateName`, cut so that the whole
//! fits 63 characters, and five characters of a small alphabet. They are drawn from a sequence that
//! depends on the ReplicaSet's UID and generation and on the hour, and nothing else. A daemon that was
//! killed in the middle of a scale-up and started again therefore asks for the *same* names as before:
//! a create that was still under way at the API server makes the repeated one fail as "already exists"
//! instead of making one pod too many.
//!
//! A name that the API server refused is tried again before others. Its refusal then reads the same as
//! the one before, so that its event is counted up instead of standing beside it.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;

use crate::api::{ObjectKey, ReplicaSet, Uid};
use crate::writes::pod_body::generate_name;

/// The longest pod name, in bytes (apiserver `pkg/storage/names/generate.go:maxNameLength`).
const NAME_BYTES_MAX: usize = 63;

/// Characters behind the prefix (apiserver `pkg/storage/names/generate.go:randomLength`).
const SUFFIX_LENGTH: usize = 5;

/// Characters that spell no words (apimachinery `pkg/util/rand/rand.go:alphanums`).
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Where each ReplicaSet stands in its sequence. Shared by the workers; one short lock.
#[derive(Debug, Default)]
pub struct PodNames {
    positions: Mutex<HashMap<ObjectKey, Position>>,
}

#[derive(Debug, PartialEq)]
struct Position {
    owner: Uid,
    seed: u64,
    next: u64,
    /// Names given back, to be tried first.
    refused: VecDeque<Arc<str>>,
}

impl PodNames {
    /// The next `count` names for pods of `rs` that `is_taken` does not know.
    pub fn take(
        &self,
        rs: &ReplicaSet,
        now: Timestamp,
        count: usize,
        is_taken: impl Fn(&str) -> bool,
    ) -> Vec<Arc<str>> {
        let seed = seed(rs, now);
        let prefix = prefix(&rs.key.name);
        let mut names: Vec<Arc<str>> = Vec::with_capacity(count);
        while names.len() < count {
            let name = self.draw(rs, seed, &prefix);
            if !is_taken(&name) && !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Takes back a name under which no pod was or will be stored. Bounded, since only what was taken
    /// comes back, and what came back is taken first.
    pub fn give_back(&self, rs: &ReplicaSet, name: &Arc<str>) {
        let mut positions = self
            .positions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = positions.get_mut(&rs.key)
            && at.owner == rs.uid
        {
            at.refused.push_back(Arc::clone(name));
        }
    }

    /// Forgets the sequence of `key`: of `owner` only, or (with `None`) of whoever.
    pub fn clear(&self, key: &ObjectKey, owner: Option<&Uid>) {
        let mut positions = self
            .positions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if positions
            .get(key)
            .is_some_and(|at| owner.is_none_or(|uid| at.owner == *uid))
        {
            positions.remove(key);
        }
    }

    /// A name that was given back, or the next one of the sequence. Several creates of one batch may
    /// ask at once, if their names turn out to be taken.
    fn draw(&self, rs: &ReplicaSet, seed: u64, prefix: &str) -> Arc<str> {
        let start = || Position {
            owner: rs.uid.clone(),
            seed,
            next: 0,
            refused: VecDeque::new(),
        };
        let mut positions = self
            .positions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let position = positions.entry(rs.key.clone()).or_insert_with(start);
        if position.owner != rs.uid || position.seed != seed {
            *position = start();
        }
        if let Some(refused) = position.refused.pop_front() {
            return refused;
        }
        let drawn = position.next;
        position.next += 1;
        drop(positions);
        format!("{prefix}{}", suffix(seed, drawn)).into()
    }
}

fn prefix(rs_name: &str) -> String {
    let mut prefix = generate_name(rs_name);
    prefix.truncate(NAME_BYTES_MAX - SUFFIX_LENGTH);
    prefix
}

fn seed(rs: &ReplicaSet, now: Timestamp) -> u64 {
    let mut hasher = DefaultHasher::new();
    rs.uid.hash(&mut hasher);
    rs.generation.hash(&mut hasher);
    now.as_second().div_euclid(3600).hash(&mut hasher);
    hasher.finish()
}

fn suffix(seed: u64, index: u64) -> String {
    let mut hasher = DefaultHasher::new();
    (seed, index).hash(&mut hasher);
    let mut bits = hasher.finish();
    let base = ALPHABET.len() as u64;
    let draw = |_| {
        let digit = usize::try_from(bits % base).expect("a remainder below 27");
        bits /= base;
        char::from(ALPHABET[digit])
    };
    (0..SUFFIX_LENGTH).map(draw).collect()
}

#[cfg(test)]
mod tests {
    use super::{ALPHABET, Arc, PodNames, Timestamp};
    use crate::controller::testing::replica_set;

    fn noon() -> Timestamp {
        "2026-01-02T12:00:00Z".parse().expect("a time")
    }

    #[test]
    fn names_look_as_the_api_server_would_choose_them() {
        let long = "x".repeat(70);
        for (name, prefix) in [("web", "web-"), (&*long, &*"x".repeat(58))] {
            let rs = replica_set(name, 1);
            for pod in PodNames::default().take(&rs, noon(), 50, |_| false) {
                let suffix = pod.strip_prefix(prefix).expect("the prefix");
                assert_eq!(suffix.len(), 5, "{pod}");
                assert!(suffix.bytes().all(|c| ALPHABET.contains(&c)), "{pod}");
            }
        }
    }

    #[test]
    fn a_name_is_given_once_and_never_if_taken() {
        let (names, rs) = (PodNames::default(), replica_set("web", 1));
        let mut seen = std::collections::HashSet::new();
        for _ in 0..10 {
            for name in names.take(&rs, noon(), 100, |name| name.ends_with('b')) {
                assert!(
                    !name.ends_with('b') && seen.insert(Arc::clone(&name)),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn parallel_takers_get_different_names() {
        let (names, rs) = (PodNames::default(), replica_set("web", 1));
        let taken: Vec<Vec<Arc<str>>> = std::thread::scope(|scope| {
            let take = || names.take(&rs, noon(), 50, |_| false);
            let takers: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            let join = |taker: std::thread::ScopedJoinHandle<'_, _>| taker.join().expect("names");
            takers.into_iter().map(join).collect()
        });
        let different: std::collections::HashSet<_> = taken.iter().flatten().collect();
        assert_eq!(different.len(), 200);
    }

    #[test]
    fn a_name_given_back_comes_first_unless_it_is_taken_meanwhile() {
        let (names, rs) = (PodNames::default(), replica_set("web", 1));
        let first = names.take(&rs, noon(), 3, |_| false);
        names.give_back(&rs, &first[0]);
        names.give_back(&rs, &first[2]);
        assert_eq!(
            names.take(&rs, noon(), 1, |_| false),
            [Arc::clone(&first[0])]
        );
        let second = names.take(&rs, noon(), 2, |_| false);
        assert_eq!(second[0], first[2]);
        assert!(!first.contains(&second[1]), "given out once");
        names.give_back(&rs, &second[1]);
        let third = names.take(&rs, noon(), 1, |name| *name == *second[1]);
        assert!(!first.contains(&third[0]) && !second.contains(&third[0]));
    }

    #[test]
    fn a_restarted_daemon_asks_for_the_same_names() {
        let rs = replica_set("web", 1);
        let before = PodNames::default().take(&rs, noon(), 20, |_| false);
        let stored = [&before[0], &before[1], &before[4]];
        let is_stored = |name: &str| stored.iter().any(|stored| ***stored == *name);
        let after = PodNames::default().take(&rs, noon(), 17, is_stored);
        assert!(
            after.iter().all(|name| before.contains(name)),
            "{after:?} of {before:?}"
        );
    }
}
