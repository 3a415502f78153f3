//! Parses `labelSelector` and `fieldSelector`. Pure.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value;

use crate::api::label_selector::LabelSelector;
use crate::api::{Labels, Selector};
use crate::json::{entries, text};
use crate::metadata;
use crate::resource::Resource;
use crate::status_error::StatusError;
use crate::store::Stored;

/// The objects that a list or watch covers.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) namespace: Option<String>,
    labels: Vec<LabelTerm>,
    fields: Vec<FieldTerm>,
}

/// A term of a label selector. Its operator is `in`, `notin`, `!`, `>`, `<`, or empty for a label
/// that exists.
#[derive(Clone, Debug)]
struct LabelTerm {
    key: String,
    operator: &'static str,
    values: Vec<String>,
}

#[derive(Clone, Debug)]
struct FieldTerm {
    path: String,
    value: String,
    equal: bool,
}

impl Scope {
    /// Parses both selectors. Upstream checks the other query options after the syntax and before
    /// the field names, so `check` runs in between.
    pub(crate) fn new(
        resource: Resource,
        namespace: Option<&str>,
        label_selector: &str,
        field_selector: &str,
        check: impl FnOnce() -> Result<(), StatusError>,
    ) -> Result<Self, StatusError> {
        let labels = parse_labels(label_selector)?;
        let mut fields = parse_fields(field_selector)?;
        check()?;
        for term in &mut fields {
            term.path = kept_path(resource, &term.path);
        }
        let resource = resource.kept_as();
        let mut paths = fields.iter().map(|term| term.path.as_str());
        if let Some(path) = paths.find(|path| !is_selectable(resource, path)) {
            return Err(unselectable(resource, path));
        }
        Ok(Self {
            namespace: namespace.map(str::to_owned),
            labels,
            fields,
        })
    }

    pub(crate) fn has_selectors(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Stored) -> bool {
        let mut scoped = self.namespace.iter();
        let mut labels = self.labels.iter();
        scoped.all(|namespace| namespace == object.namespace())
            && labels.all(|term| term.matches(&object.labels))
            && self.fields_match(object)
    }

    fn fields_match(&self, object: &Stored) -> bool {
        let mut value = None;
        self.fields.iter().all(|term| {
            let equal = match term.path.as_str() {
                "metadata.name" => object.name() == term.value,
                "metadata.namespace" => object.namespace() == term.value,
                path => {
                    let value = value.get_or_insert_with(|| object.value());
                    field_of(value, path) == *term.value
                }
            };
            equal == term.equal
        })
    }
}

/// Translates a path of the API version into the path under which the store keeps the field.
fn kept_path(resource: Resource, path: &str) -> String {
    let (first, rest) = path.split_at(path.find('.').unwrap_or(path.len()));
    let mut renamed = resource.row().renamed.iter();
    let kept = renamed.find(|(_, own)| own == first);
    kept.map_or(first, |(kept, _)| kept).to_owned() + rest
}

fn field_of<'a>(value: &'a Value, path: &str) -> Cow<'a, str> {
    let path = match path {
        // Upstream accepts both names of this field for old clients.
        "source" => "source.component",
        "status.successful" => "status.succeeded",
        path => path,
    };
    let mut fields = path.split('.');
    match fields.try_fold(value, |value, field| value.get(field)) {
        Some(Value::String(text)) => text.into(),
        None | Some(Value::Null) => {
            let zero = ZEROS.iter().find(|(known, _)| *known == path);
            zero.map_or("", |(_, zero)| *zero).into()
        }
        Some(other) => other.to_string().into(),
    }
}

/// Fields that Go does not write when they are false or 0.
const ZEROS: [(&str, &str); 3] = [
    ("spec.hostNetwork", "false"),
    ("spec.unschedulable", "false"),
    ("status.succeeded", "0"),
];

fn parse_fields(text: &str) -> Result<Vec<FieldTerm>, StatusError> {
    let terms = text.split(',').filter(|term| !term.is_empty());
    terms
        .map(|term| {
            let (path, value, equal) = split_term(term).ok_or_else(|| invalid_selector(text))?;
            Ok(FieldTerm {
                path: path.to_owned(),
                value: value.to_owned(),
                equal,
            })
        })
        .collect()
}

fn invalid_selector(text: &str) -> StatusError {
    StatusError::bad_request(format!(
        "invalid selector: '{text}'; can't understand '{text}'"
    ))
}

/// The error text differs between kinds with and without selectable fields of their own.
fn unselectable(resource: Resource, path: &str) -> StatusError {
    StatusError::bad_request(if resource.kind() == "Job" {
        format!("field label \"{path}\" not supported for Job")
    } else if resource.row().fields.is_empty() {
        let common = "\"metadata.name\", \"metadata.namespace\"";
        format!("\"{path}\" is not a known field selector: only {common}")
    } else {
        format!("field label not supported: {path}")
    })
}

fn is_selectable(resource: Resource, path: &str) -> bool {
    let mut own = resource.row().fields.iter();
    matches!(path, "metadata.name" | "metadata.namespace") || own.any(|known| known == path)
}

/// Splits `a=b`, `a==b` and `a!=b`.
fn split_term(term: &str) -> Option<(&str, &str, bool)> {
    if let Some((name, value)) = term.split_once("!=") {
        return Some((name.trim(), value.trim(), false));
    }
    let (name, value) = term.split_once('=')?;
    let value = value.strip_prefix('=').unwrap_or(value);
    Some((name.trim(), value.trim(), true))
}

fn parse_labels(text: &str) -> Result<Vec<LabelTerm>, StatusError> {
    let unparsable = || StatusError::bad_request(format!("unable to parse requirement: {text}"));
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let terms = split_outside_parentheses(text);
    if terms.iter().any(|term| term.is_empty()) {
        let why = "found ',', expected: !, identifier, or 'end of string'";
        return Err(StatusError::bad_request(why));
    }
    let terms = terms.into_iter();
    let terms = terms.map(|term| label_term(term).ok_or_else(unparsable));
    let terms = terms.collect::<Result<Vec<_>, _>>()?;
    terms.iter().try_for_each(check_syntax)?;
    Ok(terms)
}

impl LabelTerm {
    fn new(key: &str, operator: &'static str, values: &[&str]) -> Option<Self> {
        let key_is_one_word = !key.is_empty() && !key.contains(char::is_whitespace);
        key_is_one_word.then(|| Self {
            key: key.to_owned(),
            operator,
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        })
    }

    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let is_listed = || value.is_some_and(|value| self.values.iter().any(|it| it == value));
        let number = |text: &str| text.parse::<i64>().ok();
        let order = || Some(number(value?)?.cmp(&number(&self.values[0])?));
        match self.operator {
            "in" => is_listed(),
            "notin" => !is_listed(),
            "!" => value.is_none(),
            ">" => order() == Some(Ordering::Greater),
            "<" => order() == Some(Ordering::Less),
            _ => value.is_some(),
        }
    }
}

/// Rejects keys and values that are not valid labels.
fn check_syntax(term: &LabelTerm) -> Result<(), StatusError> {
    let key = term.key.as_str();
    let invalid = |field: &str, value: &str, why: &str| {
        let value = Value::from(value);
        let message =
            format!("unable to parse requirement: {field}: Invalid value: {value}: {why}");
        Err(StatusError::bad_request(message))
    };
    if let Some(why) = metadata::key_faults(key).first() {
        return invalid("<nil>", key, why);
    }
    for (index, value) in term.values.iter().enumerate() {
        if matches!(term.operator, ">" | "<") && value.parse::<i64>().is_err() {
            let why = "for 'Gt', 'Lt' operators, the value must be an integer";
            return invalid(&format!("values[{index}]"), value, why);
        }
        if let Some(why) = metadata::value_faults(value).first() {
            return invalid(&format!("values[{index}][{key}]"), value, why);
        }
    }
    Ok(())
}

/// Splits at the commas outside parentheses.
fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let terms = text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    terms.map(str::trim).collect()
}

fn label_term(term: &str) -> Option<LabelTerm> {
    if let Some(list) = term.strip_suffix(')') {
        let (head, list) = list.split_once('(')?;
        let (key, word) = head.trim().rsplit_once(char::is_whitespace)?;
        let mut known = ["in", "notin"].into_iter();
        let operator = known.find(|known| *known == word)?;
        let values: Vec<&str> = list.split(',').map(str::trim).collect();
        return LabelTerm::new(key.trim(), operator, &values);
    }
    if let Some((key, value, equal)) = split_term(term) {
        return LabelTerm::new(key, if equal { "in" } else { "notin" }, &[value]);
    }
    for operator in [">", "<"] {
        if let Some((key, value)) = term.split_once(operator) {
            return LabelTerm::new(key.trim(), operator, &[value.trim()]);
        }
    }
    match term.strip_prefix('!') {
        Some(key) => LabelTerm::new(key.trim(), "!", &[]),
        None => LabelTerm::new(term, "", &[]),
    }
}

/// The label selector in an object's spec; `None` if it is invalid or absent.
pub(crate) fn label_selector(object: &Value) -> Option<Selector> {
    let selector = serde_json::from_value::<LabelSelector>(object["spec"]["selector"].clone());
    Selector::new(selector.ok()?).ok()
}

/// The selector of an object with the subresource `scale` as query text.
pub(crate) fn selector_text(resource: Resource, value: &Value) -> String {
    match resource.row().scale.selector.as_str() {
        "" => text_of(&value["spec"]["selector"]),
        pointer => text(value, pointer).to_owned(),
    }
}

/// A selector, or the map of labels that some kinds have in its place, as query text.
pub(crate) fn text_of(selector: &Value) -> String {
    let is_map = |name: &&str| !selector[name].is_string() && !selector[name].is_null();
    let is_selector = ["matchLabels", "matchExpressions"].iter().any(is_map);
    let labels = if is_selector {
        &selector["matchLabels"]
    } else {
        selector
    };
    let equalities = labels.as_object().into_iter().flatten();
    let mut terms: Vec<(&str, String)> = equalities
        .map(|(key, value)| {
            let term = format!("{key}={}", value.as_str().unwrap_or_default());
            (key.as_str(), term)
        })
        .collect();
    for expression in entries(selector, "/matchExpressions") {
        let key = text(expression, "/key");
        let values = entries(expression, "/values").iter();
        let values: Vec<&str> = values.filter_map(Value::as_str).collect();
        let values = values.join(",");
        let term = match text(expression, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        terms.push((key, term));
    }
    // Terms of one key keep their order.
    terms.sort_by_key(|(key, _)| *key);
    let terms: Vec<String> = terms.into_iter().map(|(_, term)| term).collect();
    terms.join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Resource, Scope, Stored, text_of};

    #[track_caller]
    fn check(labels: &str, fields: &str, expected: Option<bool>) {
        let object = json!({
            "metadata": {"name": "p", "namespace": "n", "labels": {"a": "1", "b": "x"}},
            "status": {"phase": "Running"},
        });
        let object = Stored::new("n/p", 1, &object);
        let scope = Scope::new(Resource::Pods, Some("n"), labels, fields, || Ok(()));
        let found = scope.ok().map(|scope| scope.matches(&object));
        assert_eq!(found, expected, "labels {labels:?}, fields {fields:?}");
    }

    #[test]
    fn every_form_of_label_selector_parses() {
        for labels in [
            "",
            "a=1",
            "a==1,b=x",
            "a in (1, 2)",
            "a in (2,1),b",
            "c notin (1)",
            "a!=2",
            "c!=2",
            "!c",
            "a , b",
            "a>0",
            "a > 0, a<2,b",
        ] {
            check(labels, "", Some(true));
        }
        for labels in [
            "a=2",
            "a in (2,3)",
            "a notin (1)",
            "a!=1",
            "!a",
            "c",
            "a=1,c",
            "a>1",
            "a<1",
            "b>0",
            "c<1",
        ] {
            check(labels, "", Some(false));
        }
        for labels in [
            "a b",
            "a has (1)",
            "=1",
            "a=b c",
            "A_/b=c",
            "a in (x, /d)",
            "a in (x",
            "a>x",
            "a>",
            ">1",
            "a>1>0",
            "a>=1",
        ] {
            check(labels, "", None);
        }
    }

    #[test]
    fn cordoned_nodes_and_counts_are_selectable() {
        let matches = |resource, fields: &str, object| {
            let scope = Scope::new(resource, None, "", fields, || Ok(())).expect("a selector");
            scope.matches(&Stored::new("x", 1, &object))
        };
        let node = json!({"metadata": {"name": "x"}, "spec": {"unschedulable": true}});
        assert!(matches(Resource::Nodes, "spec.unschedulable=true", node));
        let jobs = Resource::of("batch", "jobs");
        let job = |n: i64| json!({"metadata": {"name": "x"}, "status": {"succeeded": n}});
        assert!(matches(jobs, "status.successful=1", job(1)));
        assert!(matches(
            jobs,
            "status.successful=0",
            json!({"metadata": {"name": "x"}})
        ));
        let error = Scope::new(jobs, None, "", "spec.x=1", || Ok(())).expect_err("a bad field");
        let text = format!("{error:?}");
        assert!(text.contains("not supported for Job"), "{text}");
        let counts = json!({"metadata": {"name": "x"}, "status": {"replicas": 2}});
        let controllers = Resource::ReplicationControllers;
        assert!(matches(controllers, "status.replicas=2", counts));
    }

    #[test]
    fn selectors_have_the_text_of_go() {
        let expressions = json!([{"key": "b", "operator": "Exists"}]);
        let selector = json!({"matchLabels": {"c": "1"}, "matchExpressions": expressions});
        assert_eq!(text_of(&selector), "b,c=1");
        assert_eq!(
            text_of(&json!({"matchLabels": "x", "a": "y"})),
            "a=y,matchLabels=x"
        );
    }

    #[test]
    fn field_selectors_match() {
        check("", "metadata.name=p", Some(true));
        check("", "metadata.name!=p", Some(false));
        check("", "metadata.namespace==n,status.phase=Running", Some(true));
        check("", "status.phase!=Running", Some(false));
        check("", "spec.nodeName=", Some(true));
        // Go does not write what is false.
        check(
            "",
            "spec.hostNetwork=false,spec.hostNetwork!=true",
            Some(true),
        );
        check("", "spec.containers=1", None);
        check("", "nonsense", None);
    }
}
