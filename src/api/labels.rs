//! Label sets, shared between the objects that have equal ones.

use std::fmt;
use std::sync::Arc;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// An immutable set of labels. Cloning copies a pointer.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Labels(Arc<[(Box<str>, Box<str>)]>);

impl Labels {
    /// The value of `key`, if the label is there.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// True if there is no label at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All labels by ascending key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// True if every label of `other` is here with the same value.
    pub fn is_superset_of(&self, other: &Self) -> bool {
        other
            .iter()
            .all(|(key, value)| self.get(key) == Some(value))
    }

    /// True if another copy of this very set is held somewhere.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// True if both are the same set in memory, not just equal.
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
    /// Of a key that comes more than once the last value counts, as in a JSON object.
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
    /// `a=1,b=2`, as in logs and in messages to users.
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
        let null: Labels = serde_json::from_str("null").expect("null is no labels");
        assert!(null.is_empty());
    }
}
