//! Shares one copy of equal values between objects: namespaces, nodes, label sets, owners. Long
//! ones are not shared, since the tables keep some that no object holds.
//!
//! Each watch thread has its own interner, so there is no lock. Before a table grows, it drops the
//! values that no object holds.

use std::collections::HashSet;
use std::hash::Hash;
use std::iter;
use std::sync::Arc;

use arcstr::ArcStr;
use foldhash::fast::RandomState;

use super::label_selector::Labels;
use super::object_key::ControllerRef;

#[derive(Debug, Default)]
pub struct Interner {
    texts: Table<ArcStr>,
    labels: Table<Labels>,
    owners: Table<Arc<ControllerRef>>,
}

/// Bytes up to which a text, label set or owner is shared.
const SHARED_MAX: usize = 4 << 10;

impl Interner {
    pub fn text(&mut self, text: &str) -> ArcStr {
        if text.len() > SHARED_MAX {
            return text.into();
        }
        if let Some(known) = self.texts.values.get(text) {
            return known.clone();
        }
        self.texts
            .insert(text.into(), |text| ArcStr::strong_count(text) > Some(1))
    }

    pub fn labels(&mut self, labels: Labels) -> Labels {
        if labels.n_bytes() > SHARED_MAX {
            return labels;
        }
        if let Some(known) = self.labels.values.get(&labels) {
            return known.clone();
        }
        self.labels.insert(labels, Labels::is_shared)
    }

    pub fn owner(&mut self, owner: ControllerRef) -> Arc<ControllerRef> {
        if owner.kind.len() + owner.name.len() + owner.uid.n_text_bytes() > SHARED_MAX {
            return Arc::new(owner);
        }
        if let Some(known) = self.owners.values.get(&owner) {
            return Arc::clone(known);
        }
        self.owners
            .insert(Arc::new(owner), |owner| Arc::strong_count(owner) > 1)
    }
}

#[derive(Debug)]
struct Table<T> {
    values: HashSet<T, RandomState>,
    /// Size at which the table next drops values that no object holds.
    sweep_at: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            values: HashSet::default(),
            sweep_at: 1024,
        }
    }
}

impl<T: Clone + Eq + Hash> Table<T> {
    fn insert(&mut self, value: T, is_held: impl Fn(&T) -> bool) -> T {
        if self.values.len() >= self.sweep_at {
            self.values.retain(is_held);
            self.sweep_at = (2 * self.values.len()).max(1024);
        }
        self.values.insert(value.clone());
        value
    }
}

// Sorted strings in one buffer. A user of the cluster may write 100,000s of short ones into one
// object, which would take many times their length as strings of their own.
//
// An entry is a key, [`VALUE`], its value, [`END`]. Neither byte occurs in UTF-8.

const END: u8 = 0xff;
const VALUE: u8 = 0xfe;

/// A map of strings, or with empty values a set.
#[derive(Debug, Default)]
pub(super) struct Packed(Vec<u8>);

impl Packed {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Packed {
    /// The last value of a repeated key counts, as in a JSON object.
    fn from_iter<T: IntoIterator<Item = (K, V)>>(pairs: T) -> Self {
        let mut bytes = Vec::new();
        for (key, value) in pairs {
            bytes.extend_from_slice(key.as_ref().as_bytes());
            bytes.push(VALUE);
            bytes.extend_from_slice(value.as_ref().as_bytes());
            bytes.push(END);
        }
        // The API server sorts maps.
        if entries(&bytes).is_sorted_by(|earlier, later| key_of(earlier) < key_of(later)) {
            return Self(bytes);
        }
        let key_at = |start: u32| key_of(&bytes[start as usize..]);
        let mut starts = starts(&bytes);
        // Of equal keys the last one first, which is then kept.
        starts.sort_unstable_by(|a, b| key_at(*a).cmp(key_at(*b)).then(b.cmp(a)));
        starts.dedup_by(|a, b| key_at(*a) == key_at(*b));
        let sorted = starts
            .iter()
            .filter_map(|start| entries(&bytes[*start as usize..]).next());
        Self(sorted.flatten().copied().collect())
    }
}

/// Where the entries start: a fourth of the memory of slices.
fn starts(packed: &[u8]) -> Vec<u32> {
    let mut at = 0;
    let lengths = entries(packed).map(<[u8]>::len);
    let starts = lengths.map(|length| {
        at += length;
        u32::try_from(at - length).expect("objects are shorter than 4 GiB")
    });
    starts.collect()
}

pub(super) fn get<'a>(packed: &'a [u8], key: &str) -> Option<&'a str> {
    let (mut low, mut high) = (0, packed.len());
    while low < high {
        let middle = low.midpoint(high);
        let before = packed[low..middle].iter().rposition(|byte| *byte == END);
        let start = before.map_or(low, |at| low + at + 1);
        let entry = entries(&packed[start..high]).next()?;
        match key_of(entry).cmp(key.as_bytes()) {
            std::cmp::Ordering::Less => low = start + entry.len(),
            std::cmp::Ordering::Greater => high = start,
            std::cmp::Ordering::Equal => return Some(pair(entry).1),
        }
    }
    None
}

pub(super) fn iter(packed: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    entries(packed).map(pair)
}

/// The entries with their last bytes.
fn entries(mut packed: &[u8]) -> impl Iterator<Item = &[u8]> {
    iter::from_fn(move || {
        let end = packed.iter().position(|byte| *byte == END)?;
        let (entry, rest) = packed.split_at(end + 1);
        packed = rest;
        Some(entry)
    })
}

fn key_of(entry: &[u8]) -> &[u8] {
    let end = entry.iter().position(|byte| *byte == VALUE);
    &entry[..end.unwrap_or(0)]
}

fn pair(entry: &[u8]) -> (&str, &str) {
    let key = key_of(entry);
    let value = &entry[key.len() + 1..entry.len() - 1];
    let text = |bytes| std::str::from_utf8(bytes).expect("entries are made from strings");
    (text(key), text(value))
}

#[cfg(test)]
mod tests {
    use super::{Interner, Packed, SHARED_MAX, get, iter};
    use crate::api::{ControllerRef, Labels};

    #[test]
    fn equal_values_are_shared_and_unused_ones_dropped() {
        let mut interner = Interner::default();
        let labels = |n: usize| -> Labels { [("app", n.to_string())].into_iter().collect() };
        let first = interner.labels(labels(0));
        assert!(first.is_shared_with(&interner.labels(labels(0))));
        for n in 0..10_000 {
            interner.labels(labels(n));
        }
        assert!(
            interner.labels.values.len() <= 1025,
            "unused label sets pile up"
        );
        assert!(
            first.is_shared_with(&interner.labels(labels(0))),
            "a set in use was dropped"
        );
    }

    /// Anyone who can create a pod can write some MB into an owner reference, again and again.
    #[test]
    fn long_values_are_not_kept() {
        let mut interner = Interner::default();
        let long = "x".repeat(SHARED_MAX + 1);
        interner.text(&long);
        let read = || [("app", &*long)].into_iter().collect::<Labels>();
        assert_eq!(interner.labels(read()), read());
        let owner = || ControllerRef {
            kind: "ReplicaSet".into(),
            name: "web".into(),
            uid: long.as_str().into(),
        };
        assert_eq!(*interner.owner(owner()), owner());
        let Interner {
            texts,
            labels,
            owners,
        } = interner;
        assert!(texts.values.is_empty() && labels.values.is_empty() && owners.values.is_empty());
    }

    #[test]
    fn entries_are_found_and_sorted_whatever_their_order() {
        let names = ["", "a", "ab", "b", "ba", "\u{10ffff}", "é"];
        for rotated in 0..names.len() {
            for n in 0..=names.len() {
                let mut some = names.to_vec();
                some.rotate_left(rotated);
                some.truncate(n);
                let packed: Packed = some.iter().map(|name| (name, format!("{name}!"))).collect();
                for name in names {
                    let value = some.contains(&name).then(|| format!("{name}!"));
                    assert_eq!(get(packed.as_bytes(), name), value.as_deref(), "{some:?}");
                }
                some.sort_unstable();
                let keys: Vec<_> = iter(packed.as_bytes()).map(|(key, _)| key).collect();
                assert_eq!(keys, some);
            }
        }
    }

    #[test]
    fn the_last_value_of_a_repeated_key_counts() {
        let pairs = [("b", "1"), ("a", "2"), ("b", "3"), ("a", "4"), ("b", "5")];
        let packed: Packed = pairs.into_iter().collect();
        let all: Vec<_> = iter(packed.as_bytes()).collect();
        assert_eq!(all, [("a", "4"), ("b", "5")]);
    }
}
