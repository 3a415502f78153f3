//! Finds the differences between two responses, and counts the accepted ones. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::step::Step;

/// A member in which two responses differ.
#[derive(Clone, Debug)]
pub(super) struct Difference {
    /// The path to the member, such as `spec` and `replicas`. The status code is the member `HTTP`.
    pub(super) path: Vec<String>,
    /// kube-apiserver's value, if any.
    pub(super) real: Option<Value>,
    /// The dev server's value, if any.
    pub(super) dev: Option<Value>,
}

impl Difference {
    /// True if the path ends with these members.
    pub(super) fn ends_with(&self, members: &[&str]) -> bool {
        let end = self.path.iter().rev();
        self.path.len() >= members.len() && end.zip(members.iter().rev()).all(|(a, b)| a == b)
    }

    /// The values of both sides, if both are strings.
    pub(super) fn texts(&self) -> Option<(&str, &str)> {
        Some((self.real.as_ref()?.as_str()?, self.dev.as_ref()?.as_str()?))
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let render = |value: &Option<Value>| {
            let text = value
                .as_ref()
                .map_or("(nothing)".to_owned(), Value::to_string);
            text.chars().take(900).collect::<String>()
        };
        let path = self.path.join(".");
        let (real, dev) = (render(&self.real), render(&self.dev));
        write!(f, "{path}\n      real: {real}\n       dev: {dev}")
    }
}

/// All members in which `dev` differs from `real`.
pub(super) fn differences(real: &Value, dev: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    collect(&mut Vec::new(), Some(real), Some(dev), &mut found);
    found
}

fn collect(
    path: &mut Vec<String>,
    real: Option<&Value>,
    dev: Option<&Value>,
    found: &mut Vec<Difference>,
) {
    match (real, dev) {
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for name in names {
                path.push(name.clone());
                collect(path, left.get(name), right.get(name), found);
                path.pop();
            }
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            for index in 0..left.len().max(right.len()) {
                path.push(index.to_string());
                collect(path, left.get(index), right.get(index), found);
                path.pop();
            }
        }
        (real, dev) if real == dev => {}
        (real, dev) => found.push(Difference {
            path: path.clone(),
            real: real.cloned(),
            dev: dev.cloned(),
        }),
    }
}

/// A rule that accepts differences.
pub(super) struct Rule {
    /// The name in [`Tally::figures`].
    pub(super) name: &'static str,
    pub(super) accepts: fn(&Step, &Difference) -> bool,
}

/// The result of all comparisons.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) n_sent: usize,
    pub(super) n_compared: usize,
    /// Number of accepted differences, by rule.
    pub(super) accepted: BTreeMap<&'static str, usize>,
    /// Requests whose responses differ otherwise, with the differences.
    pub(super) failures: Vec<String>,
}

impl Tally {
    /// Compares the responses to one request, and records the differences that no rule accepts.
    pub(super) fn compare(&mut self, rules: &[&Rule], step: &Step, real: &Value, dev: &Value) {
        self.n_compared += 1;
        let mut lines = Vec::new();
        for difference in differences(real, dev) {
            let rule = rules.iter().find(|rule| (rule.accepts)(step, &difference));
            match rule {
                Some(rule) => *self.accepted.entry(rule.name).or_default() += 1,
                None => lines.push(format!("    {difference}")),
            }
        }
        if !lines.is_empty() {
            let number = self.n_compared;
            let step: String = step.to_string().chars().take(1500).collect();
            self.failures
                .push(format!("#{number} {step}\n{}", lines.join("\n")));
        }
    }

    /// One line of figures.
    pub(super) fn figures(&self) -> String {
        let n_accepted: usize = self.accepted.values().sum();
        let rules = self.accepted.iter();
        let rules: Vec<String> = rules.map(|(name, n)| format!("{name} {n}")).collect();
        format!(
            "{} requests sent, {} responses compared, {} differ, \
             {n_accepted} differences accepted ({})",
            self.n_sent,
            self.n_compared,
            self.failures.len(),
            rules.join(", "),
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Rule, Step, Tally, differences};

    #[test]
    fn every_differing_member_is_found() {
        let real = json!({"a": [1, {"b": 2}], "c": null, "d": "x"});
        let dev = json!({"a": [1, {"b": 3}, 4], "d": "x"});
        let found = differences(&real, &dev);
        let paths: Vec<String> = found.iter().map(|found| found.path.join(".")).collect();
        assert_eq!(paths, ["a.1.b", "a.2", "c"]);
        assert!(found[0].ends_with(&["1", "b"]) && !found[0].ends_with(&["2", "b"]));
    }

    #[test]
    fn only_an_accepted_difference_is_no_failure() {
        let rules = [Rule {
            name: "b",
            accepts: |_, difference| difference.ends_with(&["b"]),
        }];
        let step = Step::get("/");
        let mut tally = Tally::default();
        tally.compare(&[&rules[0]], &step, &json!({"b": 1}), &json!({"b": 2}));
        assert_eq!((tally.failures.len(), tally.accepted["b"]), (0, 1));
        tally.compare(&[&rules[0]], &step, &json!({"c": 1}), &json!({"b": 2}));
        assert_eq!((tally.failures.len(), tally.accepted["b"]), (1, 2));
        assert!(
            tally
                .figures()
                .contains("2 responses compared, 1 differ, 2")
        );
    }
}
