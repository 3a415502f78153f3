//! The names of the pods that are created.
//!
//! They look as the API server's own choice would: the prefix of `generateName`, cut so that the
//! whole fits 63 characters, and five characters of a small alphabet. They are drawn from a
//! sequence that depends on the ReplicaSet's UID and resource version, and nothing else. A daemon
//! that was killed in the middle of a scale-up and started again finds the ReplicaSet at the same
//! version, since the status that tells of the new pods is written after them. It therefore asks
//! for the *same* names as before: a create that was still under way at the API server makes the
//! repeated one fail as "already exists" instead of making one pod too many. That does not hold if
//! somebody else has written the ReplicaSet meanwhile.
//!
//! All versions share one cycle through the 27^5 suffixes, in an order that each UID shuffles, and
//! a version begins in it where its number says. Every pod that is stored makes a version of its
//! own, so those that a version names end before the next version of the ReplicaSet begins: no name
//! returns until the API server has made 14 million versions, whoever draws and however often. Two
//! things are left: the names of pods that came and went since the ReplicaSet was written last, if
//! the daemon is restarted then; and names under which nothing was stored, which nobody has had.
//!
//! A name that the API server refused is tried again before others, whatever the version. Its
//! refusal then reads the same as the one before, so that its event is counted up instead of
//! standing beside it.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::api::{ReplicaSet, ResourceVersion, Uid};
use crate::writes::pod_body::generate_name;

/// The longest pod name, in bytes (apiserver `pkg/storage/names/generate.go:maxNameLength`).
const NAME_BYTES_MAX: usize = 63;

/// Characters behind the prefix (apiserver `pkg/storage/names/generate.go:randomLength`).
const SUFFIX_LENGTH: usize = 5;

/// Characters that spell no words (apimachinery `pkg/util/rand/rand.go:alphanums`).
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// How many suffixes there are: 27^5.
const N_SUFFIXES: u64 = (ALPHABET.len() as u64).pow(5);

/// Odd and no multiple of 3, so that multiplying by it modulo [`N_SUFFIXES`] shuffles them; some
/// 0.618 of them, so that neighbours are far apart.
const STRIDE: u64 = 8_868_113;

/// Where one ReplicaSet stands in its sequence.
#[derive(Debug, Default)]
pub struct PodNames {
    position: Option<Position>,
}

#[derive(Debug)]
struct Position {
    version: ResourceVersion,
    /// Where the next name stands in the cycle.
    next: u64,
    /// Names that the API server refused, to be tried first.
    refused: VecDeque<Arc<str>>,
    /// Names of this version that were drawn and not tried, to come next.
    untried: VecDeque<Arc<str>>,
}

impl PodNames {
    /// The next `count` names for pods of `rs`: those that were given back, then new ones.
    pub fn draw(&mut self, rs: &ReplicaSet, count: usize) -> Vec<Arc<str>> {
        let prefix = prefix(&rs.key.name);
        let begin = begin(&rs.resource_version);
        let position = self.position.get_or_insert_with(|| Position {
            version: rs.resource_version.clone(),
            next: begin,
            refused: VecDeque::new(),
            untried: VecDeque::new(),
        });
        if position.version != rs.resource_version {
            position.version = rs.resource_version.clone();
            position.next = begin;
            position.untried.clear();
        }
        let mut draw = || {
            let returned = position.refused.pop_front();
            if let Some(returned) = returned.or_else(|| position.untried.pop_front()) {
                return returned;
            }
            let drawn = position.next;
            position.next = drawn.wrapping_add(1);
            format!("{prefix}{}", suffix(&rs.uid, drawn)).into()
        };
        (0..count).map(|_| draw()).collect()
    }

    /// Takes back a name under which the API server refused to store a pod. Bounded, since only
    /// what was drawn comes back, and what came back is drawn first.
    pub fn refused(&mut self, name: &Arc<str>) {
        if let Some(position) = &mut self.position {
            position.refused.push_back(Arc::clone(name));
        }
    }

    /// Takes back a name that was not tried.
    pub fn untried(&mut self, name: &Arc<str>) {
        if let Some(position) = &mut self.position {
            position.untried.push_back(Arc::clone(name));
        }
    }

    /// The cache shows a new version of the ReplicaSet, which begins elsewhere in the cycle.
    pub fn forget_versions_before(&mut self, version: &ResourceVersion) {
        let is_over = |it: &mut Position| it.version != *version && it.refused.is_empty();
        self.position.take_if(is_over);
    }

    /// True if there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        self.position.is_none()
    }
}

/// The next `count` names that `draw` gives and `is_taken` does not know.
pub fn take(
    count: usize,
    draw: impl Fn(usize) -> Vec<Arc<str>>,
    is_taken: impl Fn(&str) -> bool,
) -> Vec<Arc<str>> {
    let mut names: Vec<Arc<str>> = Vec::with_capacity(count);
    while names.len() < count {
        for name in draw(count - names.len()) {
            if !is_taken(&name) && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

fn prefix(rs_name: &str) -> String {
    let mut prefix = generate_name(rs_name);
    prefix.truncate(NAME_BYTES_MAX - SUFFIX_LENGTH);
    prefix
}

/// Where the names of a version begin. One that is no number says nothing of how many were before
/// it.
fn begin(version: &ResourceVersion) -> u64 {
    version.number().unwrap_or_else(|| hash(version))
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// What stands at `index` in the cycle of this UID.
fn suffix(uid: &Uid, index: u64) -> String {
    let base = ALPHABET.len() as u64;
    let mut number = (index % N_SUFFIXES * STRIDE + hash(uid) % N_SUFFIXES) % N_SUFFIXES;
    let draw = |_| {
        let digit = usize::try_from(number % base).expect("a remainder below 27");
        number /= base;
        char::from(ALPHABET[digit])
    };
    (0..SUFFIX_LENGTH).map(draw).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::{Mutex, PoisonError};

    use super::{ALPHABET, Arc, N_SUFFIXES, PodNames, suffix};
    use crate::api::ReplicaSet;
    use crate::controller::testing::replica_set;

    /// `web` as it was stored under this version.
    fn at(version: &str) -> ReplicaSet {
        let mut rs = replica_set("web", 1);
        rs.resource_version = version.into();
        rs
    }

    /// The names of one ReplicaSet, which several threads may draw.
    #[derive(Default)]
    struct Names(Mutex<PodNames>);

    impl Names {
        fn take(
            &self,
            rs: &ReplicaSet,
            count: usize,
            is_taken: impl Fn(&str) -> bool,
        ) -> Vec<Arc<str>> {
            super::take(count, |more| self.with(|it| it.draw(rs, more)), is_taken)
        }

        fn with<R>(&self, change: impl FnOnce(&mut PodNames) -> R) -> R {
            change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }

    fn take(names: &Names, rs: &ReplicaSet, count: usize) -> Vec<Arc<str>> {
        names.take(rs, count, |_| false)
    }

    #[test]
    fn names_look_as_the_api_server_would_choose_them() {
        let long = "x".repeat(70);
        for (name, prefix) in [("web", "web-"), (&*long, &*"x".repeat(58))] {
            let rs = replica_set(name, 1);
            for pod in take(&Names::default(), &rs, 50) {
                let suffix = pod.strip_prefix(prefix).expect("the prefix");
                assert_eq!(suffix.len(), 5, "{pod}");
                assert!(suffix.bytes().all(|c| ALPHABET.contains(&c)), "{pod}");
            }
        }
    }

    #[test]
    fn a_name_is_given_once_and_never_if_taken() {
        let (names, rs) = (Names::default(), replica_set("web", 1));
        let mut seen = HashSet::new();
        for _ in 0..10 {
            for name in names.take(&rs, 100, |name| name.ends_with('b')) {
                assert!(
                    !name.ends_with('b') && seen.insert(Arc::clone(&name)),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn parallel_takers_get_different_names() {
        let (names, rs) = (Names::default(), replica_set("web", 1));
        let taken: Vec<Vec<Arc<str>>> = std::thread::scope(|scope| {
            let take = || take(&names, &rs, 50);
            let takers: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            let join = |taker: std::thread::ScopedJoinHandle<'_, _>| taker.join().expect("names");
            takers.into_iter().map(join).collect()
        });
        let different: HashSet<_> = taken.iter().flatten().collect();
        assert_eq!(different.len(), 200);
    }

    #[test]
    fn a_name_given_back_comes_first_unless_it_is_taken_meanwhile() {
        let (names, rs) = (Names::default(), replica_set("web", 1));
        let first = take(&names, &rs, 3);
        names.with(|it| it.untried(&first[2]));
        names.with(|it| it.refused(&first[0]));
        assert_eq!(take(&names, &rs, 1), [Arc::clone(&first[0])]);
        let second = take(&names, &rs, 2);
        assert_eq!(second[0], first[2]);
        assert!(!first.contains(&second[1]), "given out once");
        names.with(|it| it.refused(&second[1]));
        let third = names.take(&rs, 1, |name| *name == *second[1]);
        assert!(!first.contains(&third[0]) && !second.contains(&third[0]));
    }

    /// So that the next daemon, which knows only the version, asks for the same.
    #[test]
    fn names_not_tried_go_with_their_version_and_refused_ones_stay() {
        let names = Names::default();
        let first = take(&names, &at("7000"), 3);
        names.with(|it| it.refused(&first[0]));
        names.with(|it| it.untried(&first[1]));
        let second = take(&names, &at("7001"), 2);
        assert_eq!(second[0], first[0]);
        assert_eq!(second[1..], take(&Names::default(), &at("7001"), 1));
    }

    #[test]
    fn a_restarted_daemon_asks_for_the_same_names() {
        let rs = at("7000");
        let before = take(&Names::default(), &rs, 20);
        let stored = [&before[0], &before[1], &before[4]];
        let is_stored = |name: &str| stored.iter().any(|stored| ***stored == *name);
        let after = Names::default().take(&rs, 17, is_stored);
        assert!(
            after.iter().all(|name| before.contains(name)),
            "{after:?} of {before:?}"
        );
    }

    /// Each pod that is stored, and each status, is a version of its own.
    #[test]
    fn no_name_returns_however_often_the_daemon_is_restarted() {
        let (mut version, mut seen) = (7_000_u64, HashSet::new());
        for count in (0..500).map(|n| n % 70) {
            for name in take(&Names::default(), &at(&version.to_string()), count) {
                assert!(seen.insert(Arc::clone(&name)), "{name} at {version}");
            }
            version += count as u64 + 1;
        }
    }

    #[test]
    fn the_next_version_forgets_all_but_refused_names() {
        let mut names = PodNames::default();
        let first = names.draw(&at("7000"), 2);
        names.forget_versions_before(&"7000".into());
        assert!(!names.is_empty(), "the same version goes on");
        names.refused(&first[0]);
        names.forget_versions_before(&"7001".into());
        assert_eq!(names.draw(&at("7001"), 1), first[..1]);
        names.forget_versions_before(&"7002".into());
        assert!(names.is_empty());
    }

    #[test]
    fn a_version_that_is_no_number_draws_names_too() {
        let names = take(&Names::default(), &at("abc"), 50);
        let different: HashSet<_> = names.iter().collect();
        assert_eq!(different.len(), 50);
        assert_eq!(take(&Names::default(), &at("abc"), 50), names);
    }

    #[test]
    fn all_suffixes_are_used_before_one_comes_again() {
        let mut seen = HashSet::new();
        let n_tried = 200_000;
        let uid = "uid".into();
        // The last ones and the first ones of a round.
        for index in N_SUFFIXES - n_tried / 2..N_SUFFIXES + n_tried / 2 {
            assert!(seen.insert(suffix(&uid, index)), "{index}");
        }
        assert_eq!(suffix(&uid, 3), suffix(&uid, N_SUFFIXES + 3));
    }
}
