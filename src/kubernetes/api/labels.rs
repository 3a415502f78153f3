//! Label sets, shared between objects with equal labels.

use std::fmt;
use std::sync::Arc;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::json::Text;
use super::packed::{self, Packed};

/// An immutable set of labels. Cloning copies a pointer.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Labels(Arc<[u8]>);

impl Labels {
    /// The value of `key`, if present.
    pub fn get(&self, key: &str) -> Option<&str> {
        packed::get(&self.0, key)
    }

    /// True if there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Length in memory.
    pub fn n_bytes(&self) -> usize {
        self.0.len()
    }

    /// All labels in ascending order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        packed::iter(&self.0)
    }

    /// True if this set contains every label of `other` with the same value.
    pub fn is_superset_of(&self, other: &Self) -> bool {
        let mut others = other.iter();
        self == other || others.all(|(key, value)| self.get(key) == Some(value))
    }

    /// True if another reference to this set exists.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// True if both share the same memory, not just equal labels.
    pub fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Default for Labels {
    fn default() -> Self {
        Self(Arc::from([]))
    }
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Labels {
    /// The last value of a repeated key counts, as in a JSON object.
    fn from_iter<T: IntoIterator<Item = (K, V)>>(pairs: T) -> Self {
        let packed: Packed = pairs.into_iter().collect();
        Self(packed.as_bytes().into())
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Labels {
    /// `a=1,b=2`, for logs and messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (key, value)) in self.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{key}={value}")?;
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_option(LabelsVisitor)
    }
}

struct LabelsVisitor;

impl<'de> Visitor<'de> for LabelsVisitor {
    type Value = Labels;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of labels")
    }

    fn visit_none<E>(self) -> Result<Labels, E> {
        Ok(Labels::default())
    }

    fn visit_unit<E>(self) -> Result<Labels, E> {
        Ok(Labels::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Labels, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
        let mut next = || map.next_entry::<Text<'de>, Option<Text<'de>>>();
        let pairs = std::iter::from_fn(|| next().transpose());
        pairs
            .map(|pair| pair.map(|(key, value)| (key, value.unwrap_or_default())))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Labels;

    #[test]
    fn lookup_superset_and_print() {
        let labels: Labels = serde_json::from_str(r#"{"b":"2","a":"1"}"#).expect("valid labels");
        assert_eq!(labels.get("b"), Some("2"));
        assert_eq!(labels.get("c"), None);
        assert_eq!(labels.to_string(), "a=1,b=2");
        let fewer: Labels = [("a", "1")].into_iter().collect();
        assert!(labels.is_superset_of(&fewer));
        assert!(!fewer.is_superset_of(&labels));
        let null: Labels = serde_json::from_str("null").expect("null is an empty set");
        assert!(null.is_empty());
    }
}
