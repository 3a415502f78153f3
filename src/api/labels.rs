//! Label sets, shared between objects with equal labels.

use std::fmt;
use std::sync::Arc;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// An immutable set of labels. Cloning copies a pointer.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Labels(Arc<[(Box<str>, Box<str>)]>);

impl Labels {
    /// The value of `key`, if present.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// True if there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All labels in ascending order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// True if this set contains every label of `other` with the same value.
    pub fn is_superset_of(&self, other: &Self) -> bool {
        other
            .iter()
            .all(|(key, value)| self.get(key) == Some(value))
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

impl<K: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(K, V)> for Labels {
    /// The last value of a repeated key counts, as in a JSON object.
    fn from_iter<T: IntoIterator<Item = (K, V)>>(pairs: T) -> Self {
        let mut labels: Vec<(Box<str>, Box<str>)> = Vec::new();
        for (key, value) in pairs {
            let key = key.into();
            match labels.binary_search_by(|(k, _)| k.cmp(&key)) {
                Ok(at) => labels[at].1 = value.into(),
                Err(at) => labels.insert(at, (key, value.into())),
            }
        }
        Self(labels.into())
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
        let mut pairs: Vec<(Box<str>, Box<str>)> = Vec::new();
        while let Some((key, value)) = map.next_entry::<Box<str>, Option<Box<str>>>()? {
            pairs.push((key, value.unwrap_or_default()));
        }
        Ok(pairs.into_iter().collect())
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
