//! Object UIDs, held as 16 bytes where they are UUIDs.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The UID of an object: what tells two objects of one name apart.
///
/// Ordering and printing are those of the text that the API server sent.
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

    /// True for the UID of an object that has none (yet).
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
            // Canonical UUIDs have their dashes in the same places, so bytes order as the text.
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

/// Accepts only the canonical lower-case form, so that printing gives back the same text.
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
    fn text_survives_whatever_its_form() {
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
    fn order_is_that_of_the_text() {
        let mut uids = ["b", "0f8fad5b-d9cb-469f-a165-70867728950e", "1", "0"].map(Uid::new);
        uids.sort();
        assert_eq!(
            uids.map(|uid| uid.to_string()),
            ["0", "0f8fad5b-d9cb-469f-a165-70867728950e", "1", "b"]
        );
    }
}
