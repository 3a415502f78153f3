//! Resource versions and their only valid comparison.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A position in the API server's history. Empty if unknown.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(Repr);

/// INVARIANT: a text that [`parse_number`] accepts is always `Number`.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Number(u64),
    Text(Arc<str>),
}

impl ResourceVersion {
    /// The version with this text.
    pub fn new(text: &str) -> Self {
        match parse_number(text) {
            Some(number) => Self(Repr::Number(number)),
            None => Self(Repr::Text(text.into())),
        }
    }

    /// The numeric value, if it is a number.
    pub fn number(&self) -> Option<u64> {
        match &self.0 {
            Repr::Number(number) => Some(*number),
            Repr::Text(_) => None,
        }
    }

    /// True if no version is known.
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, Repr::Text(text) if text.is_empty())
    }

    /// Compares two versions; `None` unless both are decimal numbers without leading zeros.
    ///
    /// Numbers of any length compare (apimachinery `util/resourceversion:CompareResourceVersion`).
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        if let (Repr::Number(a), Repr::Number(b)) = (&self.0, &other.0) {
            Some(a.cmp(b))
        } else {
            let (a, b) = (self.to_string(), other.to_string());
            (is_comparable(&a) && is_comparable(&b))
                .then(|| a.len().cmp(&b.len()).then_with(|| a.cmp(&b)))
        }
    }

    /// True if `self` is at least as new as `required`. Also true for incomparable versions, since
    /// those must never block a sync.
    pub fn is_as_new_as(&self, required: &Self) -> bool {
        self.compare(required) != Some(Ordering::Less)
    }
}

impl Default for ResourceVersion {
    fn default() -> Self {
        Self::new("")
    }
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Number(number) => write!(f, "{number}"),
            Repr::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResourceVersion({self})")
    }
}

impl Serialize for ResourceVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ResourceVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Ok(Self::new(&text))
    }
}

fn is_comparable(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('0') && text.bytes().all(|c| c.is_ascii_digit())
}

fn parse_number(text: &str) -> Option<u64> {
    if is_comparable(text) {
        text.parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering::{Equal, Greater, Less};

    use super::ResourceVersion;

    #[test]
    fn h_08_decimal_strings_of_any_length_compare() {
        let long = "99999999999999999999999999999999";
        for (a, b, expected) in [
            ("5", "10", Some(Less)),
            ("10", "10", Some(Equal)),
            ("15", "10", Some(Greater)),
            (long, "10", Some(Greater)),
            ("18446744073709551615", "18446744073709551616", Some(Less)),
            (long, long, Some(Equal)),
            ("", "10", None),
            ("0", "10", None),
            ("010", "10", None),
            ("ten", "10", None),
            ("+10", "10", None),
        ] {
            let (a, b) = (ResourceVersion::new(a), ResourceVersion::new(b));
            assert_eq!(a.compare(&b), expected, "{a:?} against {b:?}");
        }
    }

    #[test]
    fn h_07_incomparable_versions_never_block() {
        for (current, required, ready) in [
            ("5", "10", false),
            ("10", "10", true),
            ("15", "10", true),
            ("", "10", true),
            ("x", "10", true),
            ("5", "", true),
        ] {
            let (current, required) = (
                ResourceVersion::new(current),
                ResourceVersion::new(required),
            );
            assert_eq!(
                current.is_as_new_as(&required),
                ready,
                "{current:?} for {required:?}"
            );
        }
    }
}
