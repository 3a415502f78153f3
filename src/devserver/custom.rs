//! Custom resources: defaults, status and validation of CustomResourceDefinitions, and what the
//! stored ones define.
//!
//! DIFFERS: all versions of a resource share their objects without conversion. When a definition is
//! deleted, so are its objects, with or without finalizers. Names of two definitions are not
//! compared, groups of `k8s.io` need no approval, and a version may lack a schema: its objects may
//! have any members.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::json::{entries, map_of, number, set_default, text};
use crate::metadata::{SUBDOMAIN_RULE, dns_1035_faults, is_subdomain, now};
use crate::resource::{Cell, Column, Resource, Row, ScalePaths, age, n_built_in};
use crate::status_error::FieldError;

pub(crate) fn set_defaults(definition: &mut Value) {
    let spec = map_of(definition, "spec");
    set_default(spec, "conversion", json!({"strategy": "None"}));
    let names = spec.entry("names").or_insert_with(|| json!({}));
    let Some(names) = names.as_object_mut() else {
        return;
    };
    let kind = names.get("kind").and_then(Value::as_str);
    let kind = kind.unwrap_or_default().to_owned();
    set_default(names, "singular", kind.to_lowercase());
    set_default(names, "listKind", format!("{kind}List"));
}

/// The status of a definition whose objects are served.
pub(crate) fn status(definition: &Value) -> Value {
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": now(),
        })
    };
    let mut versions = entries(definition, "/spec/versions").iter();
    let stored = versions.find(|version| version["storage"] == json!(true));
    let stored = stored.map(|version| version["name"].clone());
    json!({
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition(
                "Established",
                "InitialNamesAccepted",
                "the initial names have been accepted",
            ),
        ],
        "acceptedNames": definition["spec"]["names"],
        "storedVersions": Vec::from_iter(stored),
    })
}

/// The mistakes without which the server could not serve the definition's objects
/// (apiextensions-apiserver `pkg/apis/apiextensions/validation`).
pub(crate) fn validate(definition: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for pointer in ["/spec/group", "/spec/names/plural", "/spec/names/kind"] {
        if text(definition, pointer).is_empty() {
            errors.push(FieldError::required(&pointer[1..].replace('/', "."), ""));
        }
    }
    let group = text(definition, "/spec/group");
    if !group.is_empty() && !is_subdomain(group) {
        errors.push(FieldError::invalid("spec.group", group, SUBDOMAIN_RULE));
    } else if !group.is_empty() && !group.contains('.') {
        let why = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", group, why));
    }
    let scope = text(definition, "/spec/scope");
    if !matches!(scope, "Namespaced" | "Cluster") {
        let supported = ["Cluster", "Namespaced"];
        errors.push(FieldError::not_supported("spec.scope", scope, &supported));
    }
    errors.extend(mistakes_of_versions(definition));
    errors.extend(mistakes_of_names(definition));
    let plural = text(definition, "/spec/names/plural");
    let name = text(definition, "/metadata/name");
    if errors.is_empty() && name != format!("{plural}.{group}") {
        let why = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", name, why));
    }
    errors
}

/// An error if the name is not a DNS label that begins with a letter.
fn invalid_label(field: &str, name: &str) -> Option<FieldError> {
    let faults = dns_1035_faults(name).join(",");
    (!faults.is_empty()).then(|| FieldError::invalid(field, name, &faults))
}

fn mistakes_of_versions(definition: &Value) -> Vec<FieldError> {
    let versions = entries(definition, "/spec/versions");
    let names: Vec<&str> = versions.iter().map(|it| text(it, "/name")).collect();
    let named = names.iter().enumerate();
    let mut errors: Vec<FieldError> = named
        .filter_map(|(n, name)| invalid_label(&format!("spec.versions[{n}].name"), name))
        .collect();
    let mut reject = |why| errors.push(FieldError::invalid("spec.versions", versions.len(), why));
    if names.iter().collect::<BTreeSet<_>>().len() < names.len() {
        reject("must contain unique version names");
    }
    if versions.iter().filter(|it| it["storage"] == true).count() != 1 {
        reject("must have exactly one version marked as storage version");
    }
    errors
}

fn mistakes_of_names(definition: &Value) -> Vec<FieldError> {
    let of = |member: &str| text(definition, &format!("/spec/names/{member}"));
    let mut errors = Vec::new();
    for member in ["plural", "singular"] {
        let name = Some(of(member)).filter(|name| !name.is_empty());
        errors.extend(name.and_then(|name| invalid_label(&format!("spec.names.{member}"), name)));
    }
    for member in ["kind", "listKind"] {
        let faults = dns_1035_faults(&of(member).to_lowercase()).join(",");
        if !of(member).is_empty() && !faults.is_empty() {
            let why = format!("may have mixed case, but should otherwise match: {faults}");
            let field = format!("spec.names.{member}");
            errors.push(FieldError::invalid(&field, of(member), &why));
        }
    }
    if of("kind") == of("listKind") {
        let why = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(
            "spec.names.listKind",
            of("listKind"),
            why,
        ));
    }
    for member in ["shortNames", "categories"] {
        let names = entries(definition, &format!("/spec/names/{member}")).iter();
        for (number, name) in names.enumerate() {
            let field = format!("spec.names.{member}[{number}]");
            errors.extend(invalid_label(&field, name.as_str().unwrap_or_default()));
        }
    }
    errors
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Custom {
    /// One for each served version, those of a resource by the priority of their names.
    served: Vec<Served>,
    /// Group and plural name of each resource ever served; the position gives its index.
    ever_served: Vec<(String, String)>,
}

/// A version of a custom resource.
#[derive(Clone, Debug)]
struct Served {
    resource: Resource,
    uid: String,
    /// The definition's generation that `resource` was made from.
    generation: Option<i64>,
}

impl Custom {
    pub(crate) fn served(&self) -> impl Iterator<Item = Resource> {
        self.served.iter().map(|served| served.resource)
    }

    pub(crate) fn defined_by(&self, definition: &Value) -> Option<Resource> {
        let (group, plural) = names_of(definition);
        let mut served = self.served();
        served.find(|it| it.group() == group && it.plural() == plural)
    }

    /// Serves what these definitions define, after one of them has changed.
    pub(crate) fn refresh(&mut self, definitions: &[Value]) {
        let mut served = Vec::new();
        for definition in definitions {
            let index = self.index(names_of(definition));
            let versions = entries(definition, "/spec/versions").iter();
            let mut versions: Vec<&Value> = versions.filter(|it| it["served"] == true).collect();
            versions.sort_by_key(|version| Reverse(priority(text(version, "/name"))));
            let versions = versions.into_iter();
            served.extend(versions.map(|version| self.serve(definition, version, index)));
        }
        self.served = served;
    }

    fn index(&mut self, (group, plural): (&str, &str)) -> usize {
        let mut known = self.ever_served.iter();
        let index = known.position(|known| known.0 == group && known.1 == plural);
        let index = index.unwrap_or_else(|| {
            self.ever_served.push((group.to_owned(), plural.to_owned()));
            self.ever_served.len() - 1
        });
        n_built_in() + index
    }

    /// The resource of one version, rebuilt only after a change of the definition.
    fn serve(&self, definition: &Value, version: &Value, index: usize) -> Served {
        let uid = text(definition, "/metadata/uid");
        let generation = number(definition, "/metadata/generation");
        let name = text(version, "/name");
        let mut served = self.served.iter();
        let same = served.find(|served| {
            let is_current = served.uid == uid && served.generation == generation;
            is_current && served.resource.version() == name
        });
        same.cloned().unwrap_or_else(|| Served {
            // Resources are copied everywhere, so none is ever freed. Each served version takes a
            // few hundred bytes each time that its definition changes, in a dry run too.
            resource: Resource::Plain(Box::leak(Box::new(row_of(definition, version, index)))),
            uid: uid.to_owned(),
            generation,
        })
    }
}

fn names_of(definition: &Value) -> (&str, &str) {
    let plural = text(definition, "/spec/names/plural");
    (text(definition, "/spec/group"), plural)
}

fn row_of(definition: &Value, version: &Value, index: usize) -> Row {
    let name = |pointer: &str| text(definition, pointer).to_owned();
    let names = |pointer: &str| {
        let texts = entries(definition, pointer)
            .iter()
            .filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    };
    let schema = version.pointer("/schema/openAPIV3Schema").cloned();
    let scale = version.pointer("/subresources/scale").map(scale_paths);
    // kube-apiserver rejects a definition without this path.
    let scale = scale.filter(|paths| !paths.spec_replicas.is_empty());
    let has_status = version.pointer("/subresources/status").is_some();
    let subresources = [("status", has_status), ("scale", scale.is_some())].into_iter();
    let subresources = subresources.filter(|(_, is_there)| *is_there);
    Row {
        group: name("/spec/group"),
        version: text(version, "/name").to_owned(),
        plural: name("/spec/names/plural"),
        singular: name("/spec/names/singular"),
        kind: name("/spec/names/kind"),
        list_kind: name("/spec/names/listKind"),
        short_names: names("/spec/names/shortNames"),
        categories: names("/spec/names/categories"),
        is_namespaced: text(definition, "/spec/scope") == "Namespaced",
        subresources: subresources.map(|(name, _)| name.to_owned()).collect(),
        index,
        is_custom: true,
        has_generation: true,
        first_status: has_status.then_some(Value::Null),
        scale: scale.unwrap_or_default(),
        columns: columns(version),
        schema: schema.unwrap_or_default(),
        ..Row::default()
    }
}

fn scale_paths(scale: &Value) -> ScalePaths {
    let pointer = |name: &str| pointer_of(text(scale, name)).unwrap_or_default();
    ScalePaths {
        spec_replicas: pointer("/specReplicasPath"),
        status_replicas: pointer("/statusReplicasPath"),
        selector: pointer("/labelSelectorPath"),
    }
}

/// DIFFERS: columns whose path has more than names of members are left out.
fn columns(version: &Value) -> Vec<Column> {
    let columns = entries(version, "/additionalPrinterColumns");
    if columns.is_empty() {
        return vec![age()];
    }
    let own = columns.iter().filter_map(|column| {
        let pointer = pointer_of(text(column, "/jsonPath"))?;
        let cell = match text(column, "/type") {
            "date" => Cell::Since(pointer),
            "integer" => Cell::Number(pointer),
            _ => Cell::Text(pointer, "<none>".to_owned()),
        };
        Some(Column {
            name: text(column, "/name").to_owned(),
            cell,
            is_wide: number(column, "/priority").unwrap_or(0) > 0,
        })
    });
    own.collect()
}

/// The JSON pointer for a JSON path of member names, such as `.spec.replicas`.
fn pointer_of(path: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let is_path = path.starts_with('.') && !path.contains("..") && path.chars().all(is_plain);
    is_path.then(|| path.replace('.', "/"))
}

/// The rank of a version's name: `v2`, `v1`, `v1beta1`, `v1alpha1`, then any other (apimachinery
/// `pkg/version/helpers.go:CompareKubeAwareVersionStrings`).
fn priority(version: &str) -> (u8, u32, u32) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let end = rest.find(|c: char| !c.is_ascii_digit());
        let (major, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let major: u32 = major.parse().ok()?;
        let minor = |name: &str| rest.strip_prefix(name)?.parse::<u32>().ok();
        if rest.is_empty() {
            return Some((3, major, 0));
        }
        let beta = minor("beta").map(|minor| (2, major, minor));
        beta.or_else(|| minor("alpha").map(|minor| (1, major, minor)))
    };
    parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{pointer_of, priority, set_defaults, validate};

    #[test]
    fn stable_versions_come_first() {
        let mut versions = ["foo", "v1alpha1", "v1", "v10", "v1beta2", "v2", "v1beta11"];
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        let expected = ["v10", "v2", "v1", "v1beta11", "v1beta2", "v1alpha1", "foo"];
        assert_eq!(versions, expected);
    }

    #[test]
    fn only_paths_of_member_names_become_pointers() {
        assert_eq!(
            pointer_of(".spec.replicas"),
            Some("/spec/replicas".to_owned())
        );
        for path in ["spec", ".a..b", ".status.conditions[0].type", ".a\\.b"] {
            assert_eq!(pointer_of(path), None, "{path}");
        }
    }

    fn definition() -> Value {
        let mut definition = json!({
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {
                    "plural": "widgets", "kind": "Widget", "shortNames": [], "categories": [],
                },
                "versions": [{"name": "v1", "served": true, "storage": true}],
            },
        });
        set_defaults(&mut definition);
        definition
    }

    #[test]
    fn a_definition_gets_the_names_that_it_lacks() {
        let definition = definition();
        assert_eq!(validate(&definition), []);
        let names = &definition["spec"]["names"];
        assert_eq!(
            (&names["singular"], &names["listKind"]),
            (&json!("widget"), &json!("WidgetList"))
        );
    }

    #[test]
    fn definitions_that_cannot_be_served_are_invalid() {
        #[track_caller]
        fn check(pointer: &str, value: &Value, expected: &str) {
            let mut definition = definition();
            let member = definition.pointer_mut(pointer).expect("a member");
            *member = value.clone();
            let errors = validate(&definition);
            assert_eq!(errors[0].field(), expected, "{errors:?}");
        }
        check(
            "/metadata/name",
            &json!("gadgets.example.com"),
            "metadata.name",
        );
        check("/spec/group", &json!(""), "spec.group");
        check("/spec/group", &json!("a/b.c"), "spec.group");
        check("/spec/group", &json!("example"), "spec.group");
        check("/spec/names/kind", &json!("\0"), "spec.names.kind");
        check(
            "/spec/names/listKind",
            &json!("List of Widgets"),
            "spec.names.listKind",
        );
        check(
            "/spec/names/listKind",
            &json!("Widget"),
            "spec.names.listKind",
        );
        check("/spec/names/plural", &json!("Widgets"), "spec.names.plural");
        let long = "w".repeat(64);
        check("/spec/names/singular", &json!(long), "spec.names.singular");
        check(
            "/spec/names/shortNames",
            &json!(["w", ""]),
            "spec.names.shortNames[1]",
        );
        check(
            "/spec/names/categories",
            &json!([1]),
            "spec.names.categories[0]",
        );
        check(
            "/spec/versions/0/name",
            &json!("1"),
            "spec.versions[0].name",
        );
        check("/spec/scope", &json!("Global"), "spec.scope");
        check("/spec/versions", &json!([]), "spec.versions");
        let version = json!({"name": "v1", "storage": true});
        let twice = json!([version, {"name": "v1", "storage": false}]);
        check("/spec/versions", &twice, "spec.versions");
    }
}
