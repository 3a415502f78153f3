//! Label selectors, in the API's form and in a form for matching.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use super::labels::Labels;

/// A selector as in `spec.selector`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels that must have exactly this value.
    pub match_labels: Option<BTreeMap<String, String>>,
    /// Further requirements; all must hold.
    pub match_expressions: Option<Vec<LabelSelectorRequirement>>,
}

/// One entry of `matchExpressions`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LabelSelectorRequirement {
    /// The label's key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values for `In` and `NotIn`.
    pub values: Option<Vec<String>>,
}

/// Why a selector is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// An unknown operator.
    #[error("\"{0}\" is not a valid label selector operator")]
    UnknownOperator(String),
    /// `In` or `NotIn` without values.
    #[error("for label \"{0}\": operators 'In' and 'NotIn' need a value")]
    NoValues(String),
    /// `Exists` or `DoesNotExist` with values.
    #[error("for label \"{0}\": operators 'Exists' and 'DoesNotExist' take no value")]
    UnwantedValues(String),
}

/// A parsed selector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Box<[Requirement]>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: Box<str>,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    Equals(Box<str>),
    In(Box<[String]>),
    NotIn(Box<[String]>),
    Exists,
    DoesNotExist,
}

impl Selector {
    /// Parses a selector.
    ///
    /// # Errors
    /// [`SelectorError`] for an unknown operator or a wrong number of values.
    pub fn new(selector: &LabelSelector) -> Result<Self, SelectorError> {
        let equalities = selector.match_labels.iter().flatten().map(|(key, value)| {
            Ok(Requirement {
                key: key.as_str().into(),
                operator: Operator::Equals(value.as_str().into()),
            })
        });
        let expressions = selector.match_expressions.iter().flatten().map(requirement);
        equalities
            .chain(expressions)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// A selector of equality requirements.
    pub fn equalities<K: Into<Box<str>>, V: Into<Box<str>>>(
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let requirement = |(key, value): (K, V)| Requirement {
            key: key.into(),
            operator: Operator::Equals(value.into()),
        };
        Self(pairs.into_iter().map(requirement).collect())
    }

    /// True for an absent or empty selector.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if `labels` satisfy every requirement. An empty selector matches nothing.
    ///
    /// DIFFERS: upstream's sync lets an empty selector match everything. The API server rejects
    /// such a ReplicaSet; if one ever passes, adopting all pods of a namespace would do more harm.
    pub fn matches(&self, labels: &Labels) -> bool {
        !self.is_empty() && self.0.iter().all(|requirement| requirement.matches(labels))
    }
}

impl fmt::Display for Selector {
    /// The syntax of a `labelSelector` query: `a=1,b in (x,y),!c`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Requirement { key, operator }) in self.0.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "," })?;
            match operator {
                Operator::Equals(value) => write!(f, "{key}={value}")?,
                Operator::In(values) => write!(f, "{key} in ({})", values.join(","))?,
                Operator::NotIn(values) => write!(f, "{key} notin ({})", values.join(","))?,
                Operator::Exists => write!(f, "{key}")?,
                Operator::DoesNotExist => write!(f, "!{key}")?,
            }
        }
        Ok(())
    }
}

impl Requirement {
    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        match &self.operator {
            Operator::Equals(expected) => value == Some(&**expected),
            Operator::In(values) => value.is_some_and(|v| values.iter().any(|w| w == v)),
            Operator::NotIn(values) => !value.is_some_and(|v| values.iter().any(|w| w == v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

fn requirement(expression: &LabelSelectorRequirement) -> Result<Requirement, SelectorError> {
    let values = expression.values.as_deref().unwrap_or_default();
    let some_values = || match values {
        [] => Err(SelectorError::NoValues(expression.key.clone())),
        _ => Ok(values.into()),
    };
    let no_values = |operator| match values {
        [] => Ok(operator),
        _ => Err(SelectorError::UnwantedValues(expression.key.clone())),
    };
    let operator = match expression.operator.as_str() {
        "In" => Operator::In(some_values()?),
        "NotIn" => Operator::NotIn(some_values()?),
        "Exists" => no_values(Operator::Exists)?,
        "DoesNotExist" => no_values(Operator::DoesNotExist)?,
        other => return Err(SelectorError::UnknownOperator(other.to_owned())),
    };
    Ok(Requirement {
        key: expression.key.as_str().into(),
        operator,
    })
}

#[cfg(test)]
mod tests {
    use super::{LabelSelector, Labels, Selector};

    #[track_caller]
    fn check(selector: &str, labels: &[(&str, &str)], expected: bool) {
        let selector: LabelSelector = serde_json::from_str(selector).expect("a selector");
        let selector = Selector::new(&selector).expect("a valid selector");
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
        let selector: LabelSelector = serde_json::from_str(
            r#"{"matchLabels":{"a":"1"},"matchExpressions":[
                {"key":"b","operator":"In","values":["x","y"]},
                {"key":"c","operator":"NotIn","values":["z"]},
                {"key":"d","operator":"Exists"},{"key":"e","operator":"DoesNotExist"}]}"#,
        )
        .expect("a selector");
        let selector = Selector::new(&selector).expect("a valid selector");
        assert_eq!(selector.to_string(), "a=1,b in (x,y),c notin (z),d,!e");
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
            let selector: LabelSelector = serde_json::from_str(&text).expect("a selector");
            let error = Selector::new(&selector).expect_err("an invalid selector");
            assert_eq!(error.to_string(), message);
        }
    }
}
