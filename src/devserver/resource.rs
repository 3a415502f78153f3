//! The served resources: one table of the built-in ones with their discovery data. Custom ones come
//! from their definitions.

use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::json::{add_missing, text};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Resource {
    Pods,
    ReplicaSets,
    ReplicationControllers,
    Namespaces,
    Events,
    Leases,
    ServiceAccounts,
    Quotas,
    Nodes,
    Definitions,
    /// A resource that the server only stores.
    Plain(&'static Row),
}

/// One resource per paragraph: plural name, version and kind, and then any of these words. The
/// first ten have a behaviour of their own, in the order of [`Resource::KNOWN`].
///
/// | word | meaning |
/// |---|---|
/// | `short=`, `sub=` | short names, subresources |
/// | `category=`, `all` | the groups that kubectl gets by one name |
/// | `cluster` | without namespaces |
/// | `counted` | `metadata.generation` counts changes |
/// | `first=` | the status of a new object; without it the request's stays |
/// | `template=` | `spec.template` gets its defaults (`pod`), and is validated (`selected`) |
/// | `idle=` | the controller without which an object has no effect here |
/// | `same=`, `renamed=` | the resource whose objects these are, and its names of fields |
/// | `empty=` | the fields after the metadata in bookmarks |
/// | `{...}` | defaults |
/// | `fields=` | what field selectors may select besides name and namespace |
/// | `Name=`, `~Name=` | a column of tables, of wide ones; `_` for a blank; see [`Cell`] |
const TABLE: &str = include_str!("resources.txt");

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let mut rows: Vec<Row> = Vec::new();
    for line in TABLE.lines().filter(|line| !line.is_empty()) {
        let mut words = line.split_whitespace();
        if !line.starts_with(' ') {
            let mut word = || words.next().unwrap_or_default().to_owned();
            let (plural, version, kind) = (word(), word(), word());
            let (group, version) = version.rsplit_once('/').unwrap_or(("", &version));
            rows.push(Row {
                index: rows.len(),
                group: group.to_owned(),
                version: version.to_owned(),
                singular: kind.to_lowercase(),
                list_kind: format!("{kind}List"),
                plural,
                kind,
                is_namespaced: true,
                ..Row::default()
            });
        }
        let words: Vec<&str> = words.collect();
        let same = words.iter().find_map(|word| word.strip_prefix("same="));
        let same = same.and_then(|name| rows.iter().position(|row| row.plural == name));
        if let Some(row) = rows.last_mut() {
            row.index = same.unwrap_or(row.index);
            for word in words {
                row.add(word);
            }
        }
    }
    for row in &mut rows {
        let mut names = row.columns.iter().map(|it| it.name.as_str());
        if !names.any(|name| matches!(name, "Age" | "Last Seen" | "Created At")) {
            let wide = row.columns.iter().position(|it| it.is_wide);
            row.columns.insert(wide.unwrap_or(row.columns.len()), age());
        }
    }
    rows
});

/// The last column of most tables.
pub(crate) fn age() -> Column {
    Column {
        name: "Age".to_owned(),
        cell: Cell::Since("/metadata/creationTimestamp".to_owned()),
        is_wide: false,
    }
}

#[derive(Debug, Default)]
pub(crate) struct Row {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    /// The groups of resources that kubectl gets by one name, such as `all`.
    pub(crate) categories: Vec<String>,
    pub(crate) is_namespaced: bool,
    pub(crate) subresources: Vec<String>,
    /// The fields after the metadata of an empty object, for bookmarks.
    pub(crate) empty: String,
    /// See [`Resource::index`].
    pub(crate) index: usize,
    pub(crate) is_custom: bool,
    /// The server counts changes of an object in `metadata.generation`.
    pub(crate) has_generation: bool,
    /// The members that objects get if they lack them.
    pub(crate) defaults: Vec<Value>,
    /// The status of a new object, `null` for none; without it the request's stays.
    pub(crate) first_status: Option<Value>,
    pub(crate) template: Template,
    pub(crate) scale: ScalePaths,
    /// The controller without which an object has no effect here; empty for none.
    pub(crate) idle_without: String,
    /// Names of fields in storage and here, of a resource that stores objects of another one.
    pub(crate) renamed: Vec<(String, String)>,
    /// The schema of a custom resource, `null` for any members.
    pub(crate) schema: Value,
    /// What field selectors may select besides name and namespace.
    pub(crate) fields: Vec<String>,
    /// Table columns after the name.
    pub(crate) columns: Vec<Column>,
}

/// How the server treats `spec.template`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Template {
    #[default]
    None,
    /// A pod template gets its defaults.
    Pod,
    /// As `Pod`, and template and selector are validated as those of a ReplicaSet.
    Selected,
}

/// The fields of the subresource `scale`, as JSON pointers.
#[derive(Debug)]
pub(crate) struct ScalePaths {
    pub(crate) spec_replicas: String,
    pub(crate) status_replicas: String,
    /// A selector in its text form. Empty for the label selector in `/spec/selector`.
    pub(crate) selector: String,
}

impl Default for ScalePaths {
    /// The fields of the built-in kinds.
    fn default() -> Self {
        Self {
            spec_replicas: "/spec/replicas".to_owned(),
            status_replicas: "/status/replicas".to_owned(),
            selector: String::new(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) cell: Cell,
    /// Only `-o wide` shows it.
    pub(crate) is_wide: bool,
}

/// The content of a column of a table. The first text is a JSON pointer.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    /// A text, and after `|` in the table what stands for a missing one.
    Text(String, String),
    /// `?` in the table; `False` if it is missing.
    Bool(String),
    /// This member of all entries of a list, or the entries themselves, and what stands for none;
    /// with `*` in the table, and with `^` at most three.
    Joined(String, String, String, bool),
    /// Two texts, such as `Role/r`, with `&` and `:` in the table, and what stands for none.
    Pair(String, String, String),
    /// A selector, or its map of labels, `!` in the table.
    Selector(String),
    /// Of this kind only, `%` in the table; see `table`.
    Own(String),
    /// `+` in the table; 0 if it is missing.
    Count(String),
    /// Nothing if it is missing.
    Number(String),
    /// The number of members, `#` in the table.
    Size(String),
    /// Two counts, such as `1/3`, with `:` in the table.
    Ratio(String, String),
    /// The time since then, `@` in the table.
    Since(String),
}

impl Row {
    /// Adds what a word of the table says.
    fn add(&mut self, word: &str) {
        let json = |text: &str| serde_json::from_str(text).expect("JSON in the table");
        let (name, text) = word.split_once('=').unwrap_or((word, ""));
        let names = || text.split(',').map(str::to_owned).collect::<Vec<_>>();
        match name {
            "all" => self.categories = vec![name.to_owned()],
            "category" => self.categories = names(),
            "cluster" => self.is_namespaced = false,
            "counted" => self.has_generation = true,
            "empty" => self.empty.push_str(text),
            "fields" => self.fields.extend(names()),
            "first" => {
                let first = self.first_status.get_or_insert_with(|| Map::new().into());
                add_missing(first, &json(text));
            }
            "idle" => text.clone_into(&mut self.idle_without),
            "renamed" => {
                let pairs = text.split(',').filter_map(|pair| pair.split_once(':'));
                self.renamed
                    .extend(pairs.map(|(kept, own)| (kept.to_owned(), own.to_owned())));
            }
            "same" => {}
            "short" => self.short_names = names(),
            "sub" => self.subresources = names(),
            "template" if text == "pod" => self.template = Template::Pod,
            "template" => self.template = Template::Selected,
            _ if word.starts_with('{') => self.defaults.push(json(word)),
            column => self.columns.push(Column {
                name: column.trim_start_matches('~').replace('_', " "),
                cell: Cell::read(text),
                is_wide: column.starts_with('~'),
            }),
        }
    }
}

impl Cell {
    fn read(text: &str) -> Self {
        let own = str::to_owned;
        let (text, missing) = text.split_once('|').unwrap_or((text, "<none>"));
        let (mark, pointer) = text.split_at_checked(1).unwrap_or_default();
        match (mark, text.split_once(':')) {
            ("+", ..) => Self::Count(own(pointer)),
            ("#", ..) => Self::Size(own(pointer)),
            ("@", ..) => Self::Since(own(pointer)),
            ("%", ..) => Self::Own(own(pointer)),
            ("!", ..) => Self::Selector(own(pointer)),
            ("?", ..) => Self::Bool(own(pointer)),
            ("*" | "^", ..) => {
                let (list, name) = pointer.split_once('*').unwrap_or((pointer, ""));
                let name = if name.is_empty() {
                    String::new()
                } else {
                    format!("/{name}")
                };
                Self::Joined(own(list), name, own(missing), mark == "^")
            }
            ("&", Some((first, second))) => Self::Pair(own(&first[1..]), own(second), own(missing)),
            (_, Some((part, whole))) => Self::Ratio(own(part), own(whole)),
            _ => Self::Text(own(text), own(missing)),
        }
    }
}

// Two resources are equal if group, version and plural name are. The index identifies group and
// plural name.
impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index && self.version == other.version
    }
}

impl Eq for Row {}

impl Hash for Row {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.index.hash(state);
        self.version.hash(state);
    }
}

fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(map) = object.as_object_mut()
        && let Some(value) = map.remove(from)
    {
        map.insert(to.to_owned(), value);
    }
}

pub(crate) fn n_built_in() -> usize {
    ROWS.len()
}

impl Resource {
    /// The resources with a behaviour of their own, in the order of the table.
    pub(crate) const KNOWN: [Self; 10] = [
        Self::Pods,
        Self::ReplicaSets,
        Self::ReplicationControllers,
        Self::Namespaces,
        Self::Events,
        Self::Leases,
        Self::ServiceAccounts,
        Self::Quotas,
        Self::Nodes,
        Self::Definitions,
    ];

    /// All resources that the server has without definitions of custom ones.
    pub(crate) fn built_in() -> impl Iterator<Item = Self> {
        let plain = ROWS[Self::KNOWN.len()..].iter().map(Self::Plain);
        Self::KNOWN.into_iter().chain(plain)
    }

    pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<Self> {
        Self::built_in().find(|resource| resource.is_at(group, version, plural))
    }

    /// The built-in resource with these names, in version `v1`.
    pub(crate) fn of(group: &str, plural: &str) -> Self {
        Self::find(group, "v1", plural).expect("a built-in resource")
    }

    /// True for the resource with these names.
    pub(crate) fn is_at(self, group: &str, version: &str, plural: &str) -> bool {
        self.plural() == plural && self.version() == version && self.group() == group
    }

    /// True for the resource of the objects with this `kind` and `apiVersion`.
    pub(crate) fn is_of(self, document: &Value) -> bool {
        text(document, "/kind") == self.kind()
            && text(document, "/apiVersion") == self.api_version()
    }

    /// The resource under whose rules the objects are stored.
    pub(crate) fn kept_as(self) -> Self {
        match self {
            Self::Plain(row) if !row.renamed.is_empty() => Self::KNOWN[row.index],
            own => own,
        }
    }

    pub(crate) fn row(self) -> &'static Row {
        match self {
            Self::Plain(row) => row,
            known => &ROWS[known.index()],
        }
    }

    /// The index of the resource's collection. Versions of one resource share it.
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Plain(row) => row.index,
            known => {
                let mut all = Self::KNOWN.iter();
                all.position(|it| *it == known).expect("all are known")
            }
        }
    }

    pub(crate) fn group(self) -> &'static str {
        &self.row().group
    }

    pub(crate) fn version(self) -> &'static str {
        &self.row().version
    }

    pub(crate) fn plural(self) -> &'static str {
        &self.row().plural
    }

    pub(crate) fn kind(self) -> &'static str {
        &self.row().kind
    }

    pub(crate) fn is_namespaced(self) -> bool {
        self.row().is_namespaced
    }

    pub(crate) fn subresources(self) -> &'static [String] {
        &self.row().subresources
    }

    pub(crate) fn has_subresource(self, name: &str) -> bool {
        self.subresources().iter().any(|known| known == name)
    }

    /// True if a delete returns the last object; for other kinds it returns a `Success` status.
    pub(crate) fn delete_returns_object(self) -> bool {
        matches!(self, Self::Pods | Self::ServiceAccounts | Self::Quotas)
    }

    pub(crate) fn has_delete_collection(self) -> bool {
        self != Self::Namespaces
    }

    /// True if only the subresource `status` writes the status.
    pub(crate) fn has_status(self) -> bool {
        self.has_subresource("status")
    }

    /// True if names are path segments: they may contain colons and capital letters.
    pub(crate) fn has_free_names(self) -> bool {
        self.group() == "rbac.authorization.k8s.io"
    }

    pub(crate) fn is_custom(self) -> bool {
        self.row().is_custom
    }

    /// Renames the fields of this API version to the stored version's.
    pub(crate) fn to_stored(self, mut object: Value) -> Value {
        for (kept, own) in &self.row().renamed {
            rename(&mut object, own, kept);
        }
        object
    }

    /// Renames the fields of the stored version to this API version's.
    pub(crate) fn to_served(self, mut object: Value) -> Value {
        for (kept, own) in &self.row().renamed {
            rename(&mut object, kept, own);
        }
        object
    }

    /// `apps/v1`, or `v1` for the core group.
    pub(crate) fn api_version(self) -> String {
        match (self.group(), self.version()) {
            ("", version) => version.to_owned(),
            (group, version) => format!("{group}/{version}"),
        }
    }

    /// `replicasets.apps`, or `pods` for the core group: how messages name the resource.
    pub(crate) fn qualified_plural(self) -> String {
        self.qualified(self.plural())
    }

    /// `ReplicaSet.apps`, or `Pod` for the core group: how messages name the kind.
    pub(crate) fn qualified_kind(self) -> String {
        self.qualified(self.kind())
    }

    fn qualified(self, name: &str) -> String {
        match self.group() {
            "" => name.to_owned(),
            group => format!("{name}.{group}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Resource;

    #[test]
    fn the_tables_are_sorted_by_index() {
        let own = Resource::built_in().filter(|it| it.kept_as() == *it);
        for (index, resource) in own.enumerate() {
            assert_eq!(resource.index(), index);
            let (group, version) = (resource.group(), resource.version());
            let plural = resource.plural();
            assert_eq!(Resource::find(group, version, plural), Some(resource));
            let stem = resource.row().singular.trim_end_matches(['y', 's']);
            assert!(plural.starts_with(stem), "{plural} is not {stem}");
            for text in resource
                .row()
                .defaults
                .iter()
                .chain(&resource.row().first_status)
            {
                assert!(text.is_object(), "{resource:?}");
            }
        }
        assert_eq!(Resource::ReplicaSets.qualified_plural(), "replicasets.apps");
        assert_eq!(Resource::Pods.qualified_kind(), "Pod");
    }
}
