//! Sorted strings in one buffer. A user of the cluster may write 100,000s of short ones into one
//! object, which would take many times their length as strings of their own.
//!
//! An entry is a key, [`VALUE`], its value, [`END`]. Neither byte occurs in UTF-8.

use std::iter;

const END: u8 = 0xff;
const VALUE: u8 = 0xfe;

/// A map of strings, or with empty values a set.
#[derive(Debug, Default)]
pub(super) struct Packed(Vec<u8>);

impl Packed {
    /// The buffer, for the functions of this module.
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

/// The value of `key`, if present.
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

/// All keys and values in ascending order of keys.
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
    use super::{Packed, get, iter};

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
