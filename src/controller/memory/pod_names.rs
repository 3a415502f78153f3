//! The names of created pods.
//!
//! They have the form that the API server generates: the prefix of `generateName`, cut so that the
//! name fits 63 characters, and five characters of a small alphabet. They come from a sequence that
//! depends only on the ReplicaSet's UID and resource version. A daemon that was killed during a
//! scale-up and restarted finds the ReplicaSet at the same version, because the status write
//! follows the creates. So it uses the *same* names again: if an earlier create is still in
//! progress at the API server, the repeated one fails with "already exists" instead of creating a
//! surplus pod. This does not hold if another client wrote the ReplicaSet meanwhile.
//!
//! All versions share one cycle through the 27^5 suffixes, in an order that each UID shuffles; the
//! number of a version is its start in the cycle. Each stored pod takes a version of its own, so
//! the names of one ReplicaSet version end before the next version starts: no name returns until
//! the API server has issued 14 million versions, across any number of restarts. Two exceptions
//! remain: the names of pods that appeared and vanished since the last write of the ReplicaSet, if
//! the daemon restarts then; and names under which no pod was stored.
//!
//! The sync retries a name that the API server refused before any new name, whatever the version.
//! The error message then stays the same, so the recorder counts up the event instead of creating
//! another.

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

/// Number of suffixes: 27^5.
const N_SUFFIXES: u64 = (ALPHABET.len() as u64).pow(5);

/// Odd and no multiple of 3, so multiplication modulo [`N_SUFFIXES`] is a permutation; about 0.618
/// times as large, so neighbours are far apart.
const STRIDE: u64 = 8_868_113;

/// The position of one ReplicaSet in its sequence.
#[derive(Debug, Default)]
pub struct PodNames {
    position: Option<Position>,
}

#[derive(Debug)]
struct Position {
    version: ResourceVersion,
    /// Index of the next name in the cycle.
    next: u64,
    /// Names that the API server refused; drawn first.
    refused: VecDeque<Arc<str>>,
    /// Names of this version that were drawn but not sent; drawn next.
    untried: VecDeque<Arc<str>>,
}

impl PodNames {
    /// Draws `count` names for pods of `rs`: first the returned ones, then new ones.
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

    /// Returns a name that the API server refused. The list is bounded: only drawn names return,
    /// and the next draw takes them first.
    pub fn refused(&mut self, name: &Arc<str>) {
        if let Some(position) = &mut self.position {
            position.refused.push_back(Arc::clone(name));
        }
    }

    /// Returns a name that was not sent.
    pub fn untried(&mut self, name: &Arc<str>) {
        if let Some(position) = &mut self.position {
            position.untried.push_back(Arc::clone(name));
        }
    }

    /// Drops the sequence of an older version, unless it holds refused names.
    pub fn forget_versions_before(&mut self, version: &ResourceVersion) {
        let is_over = |it: &mut Position| it.version != *version && it.refused.is_empty();
        self.position.take_if(is_over);
    }

    /// True if no sequence has started.
    pub fn is_empty(&self) -> bool {
        self.position.is_none()
    }
}

/// Draws names until `count` of them are not taken.
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

/// The start of a version in the cycle. A version that is no number starts at its hash, because it
/// does not count the versions before it.
fn begin(version: &ResourceVersion) -> u64 {
    version.number().unwrap_or_else(|| hash(version))
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The suffix at `index` in the cycle of this UID.
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

    /// Returns `web` as stored under this version.
    fn at(version: &str) -> ReplicaSet {
        let mut rs = replica_set("web", 1);
        rs.resource_version = version.into();
        rs
    }

    /// The names of one ReplicaSet, shared by several threads.
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

    /// A restarted daemon knows only the version, and must draw the same names.
    #[test]
    fn names_not_tried_go_with_their_version_and_refused_ones_stay() {
        let names = Names::default();
        let first = take(&names, &at("7000"), 3);
        names.with(|it| it.refused(&first[0]));
        // The first names of a version are the last ones of the versions before it.
        names.with(|it| it.untried(&first[2]));
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

    /// Each stored pod and each status takes a version of its own.
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
        // The last and the first suffixes of a cycle.
        for index in N_SUFFIXES - n_tried / 2..N_SUFFIXES + n_tried / 2 {
            assert!(seen.insert(suffix(&uid, index)), "{index}");
        }
        assert_eq!(suffix(&uid, 3), suffix(&uid, N_SUFFIXES + 3));
    }
}
