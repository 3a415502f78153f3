//! Label selectors, in the API's form and in a form for matching, and label sets, shared between
//! objects with equal labels.

use std::fmt;
use std::sync::Arc;

use prost::encoding::{decode_varint, encode_varint};
use serde::{Deserialize, Deserializer};

use super::interner;
use super::interner::Packed;
use super::json::{Text, collect, collect_map};

/// A selector as in `spec.selector`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    pub match_labels: Labels,
    #[serde(deserialize_with = "collect::<_, ExpressionJson<'de>, _>")]
    pub match_expressions: Expressions,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ExpressionJson<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow)]
    operator: Text<'a>,
    #[serde(deserialize_with = "collect::<_, Text<'de>, _>")]
    values: Values,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// An unknown operator.
    #[error("\"{0}\" is not a valid label selector operator")]
    UnknownOperator(String),
    #[error("for label \"{0}\": operators 'In' and 'NotIn' need a value")]
    NoValues(String),
    /// `Exists` or `DoesNotExist` with values.
    #[error("for label \"{0}\": operators 'Exists' and 'DoesNotExist' take no value")]
    UnwantedValues(String),
}

/// A parsed selector: its requirements in one buffer, since a user may write 100,000s of values.
///
/// A requirement is its operator, the lengths of key and value, and these two. The value of `In`
/// and `NotIn` is a packed set.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Selector(Box<[u8]>);

#[derive(Debug, Default)]
pub struct Values(Packed);

/// `matchExpressions` as the requirements of a [`Selector`], or why one is invalid.
#[derive(Debug)]
pub struct Expressions(Result<Vec<u8>, SelectorError>);

/// Operators in the buffer of a [`Selector`].
mod operator {
    pub(super) const EQUALS: u8 = 0;
    pub(super) const IN: u8 = 1;
    pub(super) const NOT_IN: u8 = 2;
    pub(super) const EXISTS: u8 = 3;
    pub(super) const DOES_NOT_EXIST: u8 = 4;
}

#[derive(Clone, Copy)]
struct Requirement<'a> {
    operator: u8,
    key: &'a str,
    value: &'a [u8],
}

impl Selector {
    /// Parses a selector.
    pub fn new(selector: LabelSelector) -> Result<Self, SelectorError> {
        let expressions = selector.match_expressions.0?;
        let mut buffer = Vec::new();
        for (key, value) in selector.match_labels.iter() {
            write(operator::EQUALS, key, value.as_bytes(), &mut buffer);
        }
        buffer.extend(expressions);
        Ok(Self(buffer.into()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if `labels` satisfy every requirement. An empty selector matches nothing.
    ///
    /// DIFFERS: upstream's sync lets an empty selector match everything. The API server rejects
    /// such a ReplicaSet; if one ever passes, adopting all pods of a namespace would do more harm.
    pub fn matches(&self, labels: &Labels) -> bool {
        !self.is_empty() && self.keeps(labels)
    }

    /// True unless an owner with this selector releases a pod with `labels`. An empty selector
    /// keeps what it has.
    pub fn keeps(&self, labels: &Labels) -> bool {
        self.requirements().all(|it| it.matches(labels))
    }

    fn requirements(&self) -> impl Iterator<Item = Requirement<'_>> {
        let mut buffer = &*self.0;
        std::iter::from_fn(move || Requirement::read(&mut buffer))
    }
}
impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Selector {
    /// The syntax of a `labelSelector` query: `a=1,b in (x,y),!c`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (
            i,
            Requirement {
                operator,
                key,
                value,
            },
        ) in self.requirements().enumerate()
        {
            f.write_str(if i == 0 { "" } else { "," })?;
            match operator {
                operator::EQUALS => write!(f, "{key}={}", String::from_utf8_lossy(value))?,
                operator::IN => write!(f, "{key} in ({})", list(value))?,
                operator::NOT_IN => write!(f, "{key} notin ({})", list(value))?,
                operator::EXISTS => f.write_str(key)?,
                _ => write!(f, "!{key}")?,
            }
        }
        Ok(())
    }
}

/// The values of a packed set with commas between them.
fn list(values: &[u8]) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        for (i, (value, _)) in interner::iter(values).enumerate() {
            f.write_str(if i == 0 { "" } else { "," })?;
            f.write_str(value)?;
        }
        Ok(())
    })
}

impl<'a> Requirement<'a> {
    /// Splits the next requirement from the buffer of a selector.
    fn read(buffer: &mut &'a [u8]) -> Option<Self> {
        let operator = *buffer.split_off_first()?;
        let [n_key, n_value] = [(), ()].map(|()| decode_varint(buffer));
        let mut take = |length| buffer.split_off(..usize::try_from(length).ok()?);
        let (key, value) = (take(n_key.ok()?)?, take(n_value.ok()?)?);
        let key = std::str::from_utf8(key).ok()?;
        Some(Self {
            operator,
            key,
            value,
        })
    }

    fn matches(self, labels: &Labels) -> bool {
        let found = labels.get(self.key);
        let is_listed = || found.is_some_and(|it| interner::get(self.value, it).is_some());
        match self.operator {
            operator::EQUALS => found.map(str::as_bytes) == Some(self.value),
            operator::IN => is_listed(),
            operator::NOT_IN => !is_listed(),
            operator::EXISTS => found.is_some(),
            _ => found.is_none(),
        }
    }
}

/// Appends a requirement.
fn write(operator: u8, key: &str, value: &[u8], buffer: &mut Vec<u8>) {
    buffer.push(operator);
    encode_varint(key.len() as u64, buffer);
    encode_varint(value.len() as u64, buffer);
    buffer.extend_from_slice(key.as_bytes());
    buffer.extend_from_slice(value);
}

impl<T: AsRef<str>> FromIterator<T> for Values {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self(values.into_iter().map(|value| (value, "")).collect())
    }
}

impl Default for Expressions {
    fn default() -> Self {
        Self(Ok(Vec::new()))
    }
}

impl<'a> FromIterator<ExpressionJson<'a>> for Expressions {
    fn from_iter<I: IntoIterator<Item = ExpressionJson<'a>>>(expressions: I) -> Self {
        let mut all = Self::default();
        for it in expressions {
            all.push(it.key.as_ref(), it.operator.as_ref(), &it.values);
        }
        all
    }
}

impl Expressions {
    /// Appends a requirement. After an invalid one, all others are ignored.
    pub fn push(&mut self, key: &str, operator: &str, values: &Values) {
        let Ok(buffer) = &mut self.0 else { return };
        let values = values.0.as_bytes();
        let (operator, takes_values) = match operator {
            "In" => (operator::IN, true),
            "NotIn" => (operator::NOT_IN, true),
            "Exists" => (operator::EXISTS, false),
            "DoesNotExist" => (operator::DOES_NOT_EXIST, false),
            other => {
                self.0 = Err(SelectorError::UnknownOperator(other.to_owned()));
                return;
            }
        };
        match (takes_values, values.is_empty()) {
            (true, true) => self.0 = Err(SelectorError::NoValues(key.to_owned())),
            (false, false) => self.0 = Err(SelectorError::UnwantedValues(key.to_owned())),
            _ => write(operator, key, values, buffer),
        }
    }
}

/// An immutable set of labels. Cloning copies a pointer.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Labels(Arc<[u8]>);

impl Labels {
    pub fn get(&self, key: &str) -> Option<&str> {
        interner::get(&self.0, key)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn n_bytes(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        interner::iter(&self.0)
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
        collect_map(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::{LabelSelector, Labels, Selector, SelectorError};

    fn parse(selector: &str) -> Result<Selector, SelectorError> {
        let selector: LabelSelector = serde_json::from_str(selector).expect("a selector");
        Selector::new(selector)
    }

    #[track_caller]
    fn check(selector: &str, labels: &[(&str, &str)], expected: bool) {
        let selector = parse(selector).expect("a valid selector");
        let labels: Labels = labels.iter().copied().collect();
        assert_eq!(
            selector.matches(&labels),
            expected,
            "{selector:?} on {labels}"
        );
    }

    #[test]
    fn c_30_absent_and_empty_selectors_match_nothing() {
        check("{}", &[("a", "1")], false);
        check(r#"{"matchLabels":{}}"#, &[("a", "1")], false);
        check(
            r#"{"matchLabels":null,"matchExpressions":null}"#,
            &[],
            false,
        );
    }

    #[test]
    fn every_operator_matches() {
        check(
            r#"{"matchLabels":{"a":"1"}}"#,
            &[("a", "1"), ("b", "2")],
            true,
        );
        check(r#"{"matchLabels":{"a":"1"}}"#, &[("a", "2")], false);
        let expression = |operator: &str, values: &str| {
            format!(
                r#"{{"matchExpressions":[
                    {{"key":"a","operator":"{operator}","values":{values}}}]}}"#
            )
        };
        check(&expression("In", r#"["1","2"]"#), &[("a", "2")], true);
        check(&expression("In", r#"["1","2"]"#), &[], false);
        check(&expression("NotIn", r#"["1","2"]"#), &[("a", "2")], false);
        check(&expression("NotIn", r#"["1","2"]"#), &[], true);
        check(&expression("Exists", "[]"), &[("a", "")], true);
        check(&expression("Exists", "null"), &[], false);
        check(&expression("DoesNotExist", "null"), &[("a", "")], false);
        check(&expression("DoesNotExist", "[]"), &[], true);
    }

    #[test]
    fn a_selector_prints_as_a_query() {
        let selector = parse(
            r#"{"matchLabels":{"a":"1"},"matchExpressions":[
                {"key":"b","operator":"In","values":["y","x","y"]},
                {"key":"c","operator":"NotIn","values":["z"]},
                {"key":"d","operator":"Exists"},{"key":"e","operator":"DoesNotExist"}]}"#,
        );
        let selector = selector.expect("a valid selector").to_string();
        assert_eq!(selector, "a=1,b in (x,y),c notin (z),d,!e");
    }

    #[test]
    fn invalid_selectors_report_why() {
        for (expression, message) in [
            (
                r#"{"key":"a","operator":"Invalid"}"#,
                "\"Invalid\" is not a valid label selector operator",
            ),
            (
                r#"{"key":"a","operator":"In"}"#,
                "for label \"a\": operators 'In' and 'NotIn' need a value",
            ),
            (
                r#"{"key":"a","operator":"Exists","values":["1"]}"#,
                "for label \"a\": operators 'Exists' and 'DoesNotExist' take no value",
            ),
        ] {
            let text = format!(r#"{{"matchExpressions":[{expression}]}}"#);
            let error = parse(&text).expect_err("an invalid selector");
            assert_eq!(error.to_string(), message);
        }
    }

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
