//! Annotations with which a user opts in to behaviour beyond upstream's.
//!
//! On a ReplicaSet they select behaviour for it. A Deployment copies its own annotations to its
//! current ReplicaSet, without a roll-out.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::json::Text;
use super::policy::NAMES;

/// The prefix of their names.
pub const PREFIX: &str = "replicaset-controller/";

/// How many annotations of other names than [`NAMES`] are kept to be reported.
const UNKNOWN_MAX: usize = 10;

/// The opt-in annotations of one object, without the prefix, sorted by name: those with known
/// names, and the first of the others. Takes no memory of its own if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OptIns {
    kept: Box<[(Box<str>, Box<str>)]>,
    n_more_unknown: usize,
}

impl OptIns {
    /// Returns the value of the annotation with this name after the prefix.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(key, _)| *key == name).map(|it| it.1)
    }

    /// True without any opt-in annotation.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The names after the prefix, and the values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.kept.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Number of further annotations with unknown names.
    pub fn n_more_unknown(&self) -> usize {
        self.n_more_unknown
    }
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for OptIns {
    /// Keeps the opt-in annotations among these; of equal names the last one.
    fn from_iter<T: IntoIterator<Item = (K, V)>>(annotations: T) -> Self {
        let mut kept: Vec<(Box<str>, Box<str>)> = Vec::new();
        let mut n_unknown = 0;
        for (name, value) in annotations {
            let Some(name) = name.as_ref().strip_prefix(PREFIX) else {
                continue;
            };
            if let Some((_, known)) = kept.iter_mut().find(|(known, _)| **known == *name) {
                *known = value.as_ref().into();
                continue;
            }
            n_unknown += usize::from(!NAMES.contains(&name));
            if n_unknown <= UNKNOWN_MAX || NAMES.contains(&name) {
                kept.push((name.into(), value.as_ref().into()));
            }
        }
        kept.sort();
        Self {
            kept: kept.into(),
            n_more_unknown: n_unknown.saturating_sub(UNKNOWN_MAX),
        }
    }
}

impl<'de> Deserialize<'de> for OptIns {
    /// Reads a map of annotations, and skips all others without a copy.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OptInsVisitor)
    }
}

struct OptInsVisitor;

impl<'de> Visitor<'de> for OptInsVisitor {
    type Value = OptIns;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of annotations")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OptIns, A::Error> {
        let mut next = || {
            while let Some(name) = map.next_key::<Text<'de>>()? {
                if name.as_ref().starts_with(PREFIX) {
                    let value = map.next_value::<Option<Text<'de>>>()?;
                    return Ok(Some((name, value.unwrap_or_default())));
                }
                map.next_value::<IgnoredAny>()?;
            }
            Ok(None)
        };
        std::iter::from_fn(|| next().transpose()).collect()
    }
}

/// The annotation [`SCALE_DOWN`] of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScaleDownMark {
    /// Absent.
    #[default]
    None,
    /// `never`: no scale-down chooses this pod.
    Never,
    /// `first`: a scale-down chooses this pod before all unmarked ones.
    First,
    /// Any other value. It counts as absent.
    Unreadable,
}

/// Annotation of a pod that marks it for scale-downs of a ReplicaSet with protection.
pub const SCALE_DOWN: &str = "replicaset-controller/scale-down";

impl ScaleDownMark {
    /// Reads the value of [`SCALE_DOWN`].
    pub fn from_text(text: &str) -> Self {
        match text {
            "never" => Self::Never,
            "first" => Self::First,
            _ => Self::Unreadable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NAMES, OptIns, PREFIX};

    #[test]
    fn only_opt_in_annotations_are_kept() {
        let json = r#"{"b": "x", "replicaset-controller/z": "1",
            "deployment.kubernetes.io/revision": "3",
            "replicaset-controller/a": null, "replicaset-controller/z": "2"}"#;
        let read: OptIns = serde_json::from_str(json).expect("annotations");
        assert_eq!(read.iter().collect::<Vec<_>>(), [("a", ""), ("z", "2")]);
        assert_eq!(read.get("z"), Some("2"));
        assert_eq!(read.get("b"), None);
        let none: OptIns = serde_json::from_str(r#"{"b": "x"}"#).expect("annotations");
        assert!(none.is_empty());
    }

    #[test]
    fn known_names_are_kept_after_any_number_of_others() {
        let unknown = (0..1_000).map(|i| format!("{PREFIX}a{i}"));
        let known = NAMES.map(|name| format!("{PREFIX}{name}"));
        let read: OptIns = unknown.chain(known).map(|name| (name, "")).collect();
        assert!(NAMES.iter().all(|name| read.get(name).is_some()));
        assert_eq!((read.iter().count(), read.n_more_unknown()), (16, 990));
    }
}
