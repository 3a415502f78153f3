//! Object UIDs, stored in 16 bytes if they are UUIDs.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The UID of an object. It distinguishes objects with the same name.
///
/// Orders and prints like the text that the API server sent.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Uid(Repr);

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

/// INVARIANT: a text that [`parse_uuid`] accepts is always `Uuid`, so that equality of the
/// representation is equality of the text.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Uuid([u8; 16]),
    Text(Arc<str>),
}

impl Uid {
    /// The UID with this text.
    pub fn new(text: &str) -> Self {
        match parse_uuid(text.as_bytes()) {
            Some(bytes) => Self(Repr::Uuid(bytes)),
            None => Self(Repr::Text(text.into())),
        }
    }

    /// Bytes of its text beyond its own size: none for a UUID.
    pub fn n_text_bytes(&self) -> usize {
        match &self.0 {
            Repr::Uuid(_) => 0,
            Repr::Text(text) => text.len(),
        }
    }

    /// True if the object has no UID (yet).
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, Repr::Text(text) if text.is_empty())
    }
}

impl Default for Uid {
    fn default() -> Self {
        Self::new("")
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Text(text) => f.write_str(text),
            Repr::Uuid(bytes) => {
                let mut text = [b'-'; 36];
                let mut at = 0;
                for byte in bytes {
                    if matches!(at, 8 | 13 | 18 | 23) {
                        at += 1;
                    }
                    text[at] = HEX_DIGITS[usize::from(byte >> 4)];
                    text[at + 1] = HEX_DIGITS[usize::from(byte & 15)];
                    at += 2;
                }
                f.write_str(std::str::from_utf8(&text).unwrap_or_default())
            }
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uid({self})")
    }
}

impl PartialOrd for Uid {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Uid {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            // Canonical UUIDs have dashes at fixed positions, so byte order equals text order.
            (Repr::Uuid(a), Repr::Uuid(b)) => a.cmp(b),
            (Repr::Text(a), Repr::Text(b)) => a.cmp(b),
            _ => self.to_string().cmp(&other.to_string()),
        }
    }
}

impl Serialize for Uid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Uid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Ok(Self::new(&text))
    }
}

/// Accepts only the canonical lower-case form, so that the UID prints as received.
fn parse_uuid(text: &[u8]) -> Option<[u8; 16]> {
    if text.len() != 36 {
        return None;
    }
    let mut bytes = [0_u8; 16];
    let mut digits = 0;
    for (i, &c) in text.iter().enumerate() {
        if matches!(i, 8 | 13 | 18 | 23) {
            if c != b'-' {
                return None;
            }
            continue;
        }
        let digit = match c {
            b'0'..=b'9' => c - b'0',
            b'a'..=b'f' => c - b'a' + 10,
            _ => return None,
        };
        bytes[digits / 2] = bytes[digits / 2] << 4 | digit;
        digits += 1;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::Uid;

    #[test]
    fn any_text_prints_as_received() {
        for text in [
            "",
            "uid-1",
            "0f8fad5b-d9cb-469f-a165-70867728950e",
            "0F8FAD5B-D9CB-469F-A165-70867728950E",
            "0f8fad5bd9cb-469f-a165-70867728950e-",
        ] {
            assert_eq!(Uid::new(text).to_string(), text);
        }
    }

    #[test]
    fn uids_order_like_their_text() {
        let mut uids = ["b", "0f8fad5b-d9cb-469f-a165-70867728950e", "1", "0"].map(Uid::new);
        uids.sort();
        assert_eq!(
            uids.map(|uid| uid.to_string()),
            ["0", "0f8fad5b-d9cb-469f-a165-70867728950e", "1", "b"]
        );
    }
}
