//! Custom resources: what the stored CustomResourceDefinitions define.
//!
//! DIFFERS: all versions of a resource share their objects without conversion. Objects are stored
//! whatever the schema says. When a definition goes, its objects go with it, finalizers or not.

use std::cmp::Reverse;

use serde_json::Value;

use crate::columns::plain::{Cell, Column};
use crate::objects::{entries, number, plain, text};
use crate::plain::{N_BUILT_IN, Plain, ScalePaths, Template};
use crate::resource::{Facts, Resource};
use crate::store::{Object, State};
use crate::update::remove;

/// The custom resources of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Custom {
    /// One for each served version, those of a resource by the priority of their names.
    served: Vec<Served>,
    /// Group and plural name of each resource ever served; the index gives its place.
    places: Vec<(String, String)>,
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

    fn place(&mut self, group: &str, plural: &str) -> usize {
        let mut known = self.places.iter();
        let index = known.position(|known| known.0 == group && known.1 == plural);
        let index = index.unwrap_or_else(|| {
            self.places.push((group.to_owned(), plural.to_owned()));
            self.places.len() - 1
        });
        N_BUILT_IN + index
    }
}

/// Serves what the definitions in `state` define, after one of them has changed.
pub(crate) fn refresh(state: &mut State) {
    let definitions = state.collection(Resource::Definitions).objects.values();
    let definitions: Vec<Value> = definitions.map(|object| object.value()).collect();
    let mut served = Vec::new();
    for definition in &definitions {
        let (group, plural) = (
            text(definition, "/spec/group"),
            text(definition, "/spec/names/plural"),
        );
        let place = state.custom.place(group, plural);
        let versions = entries(definition, "/spec/versions").iter();
        let mut versions: Vec<&Value> = versions
            .filter(|version| version["served"] == Value::Bool(true))
            .collect();
        versions.sort_by_key(|version| Reverse(priority(text(version, "/name"))));
        for version in versions {
            served.push(serve(&state.custom, definition, version, place));
        }
    }
    state.custom.served = served;
}

/// Removes the objects of a definition that goes, and no longer serves them.
pub(crate) fn remove_defined(state: &mut State, definition: &Value) {
    let (group, plural) = (
        text(definition, "/spec/group"),
        text(definition, "/spec/names/plural"),
    );
    let is_defined = |served: &Resource| served.group() == group && served.plural() == plural;
    let resource = state.custom.served().find(is_defined);
    if let Some(resource) = resource {
        let objects = state.of_namespace(resource, None);
        let objects: Vec<Object> = objects.cloned().collect();
        for object in objects {
            remove(state, resource, &object.key, object.value());
        }
    }
    refresh(state);
}

/// The resource of one version, made anew only after a change of the definition.
fn serve(custom: &Custom, definition: &Value, version: &Value, place: usize) -> Served {
    let uid = text(definition, "/metadata/uid");
    let generation = number(definition, "/metadata/generation");
    let name = text(version, "/name");
    let mut served = custom.served.iter();
    let same = served.find(|served| {
        served.uid == uid && served.generation == generation && served.resource.version() == name
    });
    same.cloned().unwrap_or_else(|| Served {
        // Resources are copied everywhere, so none is ever freed. Each served version takes some
        // hundred bytes each time that its definition changes, in a dry run too.
        resource: Resource::Plain(Box::leak(Box::new(plain_of(definition, version, place)))),
        uid: uid.to_owned(),
        generation,
    })
}

fn plain_of(definition: &Value, version: &Value, place: usize) -> Plain {
    let name = |pointer: &str| kept(text(definition, pointer));
    let names = |pointer: &str| {
        let texts = entries(definition, pointer).iter();
        let texts: Vec<&'static str> = texts.filter_map(Value::as_str).map(kept).collect();
        &*texts.leak()
    };
    let scale = version.pointer("/subresources/scale").map(scale_paths);
    // kube-apiserver refuses a definition without this path.
    let scale = scale.filter(|paths| !paths.spec_replicas.is_empty());
    let has_status = version.pointer("/subresources/status").is_some();
    let subresources: &'static [&'static str] = match (has_status, scale) {
        (true, Some(_)) => &["status", "scale"],
        (true, None) => &["status"],
        (false, Some(_)) => &["scale"],
        (false, None) => &[],
    };
    Plain {
        facts: Facts {
            group: name("/spec/group"),
            version: kept(text(version, "/name")),
            plural: name("/spec/names/plural"),
            singular: name("/spec/names/singular"),
            kind: name("/spec/names/kind"),
            list_kind: name("/spec/names/listKind"),
            short_names: names("/spec/names/shortNames"),
            categories: names("/spec/names/categories"),
            namespaced: text(definition, "/spec/scope") == "Namespaced",
            subresources,
            empty: "",
        },
        place,
        is_custom: true,
        has_generation: true,
        has_free_names: false,
        defaults: "{}",
        complete: plain::is_complete,
        first_status: has_status.then_some(""),
        template: Template::None,
        scale: scale.unwrap_or(ScalePaths::USUAL),
        idle_because: "",
        columns: columns(version),
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
fn columns(version: &Value) -> &'static [Column] {
    let columns = entries(version, "/additionalPrinterColumns").iter();
    let columns: Vec<Column> = columns
        .filter(|column| text(column, "/jsonPath") != ".metadata.creationTimestamp")
        .filter_map(|column| {
            let pointer = pointer_of(text(column, "/jsonPath"))?;
            let cell = match text(column, "/type") {
                "integer" => Cell::Count(pointer),
                "date" => Cell::Since(pointer),
                _ => Cell::Text(pointer),
            };
            Some(Column(kept(text(column, "/name")), cell))
        })
        .collect();
    columns.leak()
}

/// The JSON pointer for a JSON path of member names, such as `.spec.replicas`.
fn pointer_of(path: &str) -> Option<&'static str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let is_path = path.starts_with('.') && !path.contains("..") && path.chars().all(is_plain);
    is_path.then(|| kept(&path.replace('.', "/")))
}

/// A copy that is never freed, see [`serve`].
fn kept(text: &str) -> &'static str {
    text.to_owned().leak()
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
    use super::{pointer_of, priority};

    #[test]
    fn stable_versions_come_first() {
        let mut versions = ["foo", "v1alpha1", "v1", "v10", "v1beta2", "v2", "v1beta11"];
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        let expected = ["v10", "v2", "v1", "v1beta11", "v1beta2", "v1alpha1", "foo"];
        assert_eq!(versions, expected);
    }

    #[test]
    fn only_paths_of_member_names_become_pointers() {
        assert_eq!(pointer_of(".spec.replicas"), Some("/spec/replicas"));
        for path in ["spec", ".a..b", ".status.conditions[0].type", ".a\\.b"] {
            assert_eq!(pointer_of(path), None, "{path}");
        }
    }
}
