//! The served resources: the table of those with a behaviour of their own, and what the server
//! tells clients about each resource.

use crate::plain::{PLAIN, Plain};

/// A served resource.
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
    /// CustomResourceDefinitions.
    Definitions,
    /// A resource that the server only stores.
    Plain(&'static Plain),
}

/// The number of resources with a behaviour of their own.
pub(crate) const N_KNOWN: usize = 10;

/// The names of a resource, its scope and its subresources.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    /// Empty for the kind in lower case.
    pub(crate) singular: &'static str,
    pub(crate) kind: &'static str,
    /// Empty for the kind followed by `List`.
    pub(crate) list_kind: &'static str,
    pub(crate) short_names: &'static [&'static str],
    /// The groups of resources that kubectl gets by one name, such as `all`.
    pub(crate) categories: &'static [&'static str],
    pub(crate) namespaced: bool,
    pub(crate) subresources: &'static [&'static str],
    /// The fields after the metadata of an empty object, for bookmarks.
    pub(crate) empty: &'static str,
}

impl Facts {
    /// A namespaced resource of the core group without further names and subresources.
    pub(crate) const EMPTY: Self = Self {
        group: "",
        version: "v1",
        plural: "",
        singular: "",
        kind: "",
        list_kind: "",
        short_names: &[],
        categories: &[],
        namespaced: true,
        subresources: &[],
        empty: "",
    };
}

static FACTS: [Facts; N_KNOWN] = [
    Facts {
        plural: "pods",
        categories: &["all"],
        kind: "Pod",
        short_names: &["po"],
        subresources: &["status", "binding"],
        empty: r#","spec":{"containers":null},"status":{}"#,
        ..Facts::EMPTY
    },
    Facts {
        group: "apps",
        plural: "replicasets",
        categories: &["all"],
        kind: "ReplicaSet",
        short_names: &["rs"],
        subresources: &["status", "scale"],
        empty: concat!(
            r#","spec":{"replicas":0,"selector":null,"template":{"metadata":{},"#,
            r#""spec":{"containers":null}}},"status":{"replicas":0}"#
        ),
        ..Facts::EMPTY
    },
    Facts {
        plural: "replicationcontrollers",
        categories: &["all"],
        kind: "ReplicationController",
        short_names: &["rc"],
        subresources: &["status", "scale"],
        empty: r#","spec":{},"status":{"replicas":0}"#,
        ..Facts::EMPTY
    },
    Facts {
        plural: "namespaces",
        kind: "Namespace",
        short_names: &["ns"],
        namespaced: false,
        subresources: &["status", "finalize"],
        empty: r#","spec":{},"status":{}"#,
        ..Facts::EMPTY
    },
    Facts {
        plural: "events",
        kind: "Event",
        short_names: &["ev"],
        empty: concat!(
            r#","involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"#,
            r#""eventTime":null,"reportingComponent":"","reportingInstance":"""#
        ),
        ..Facts::EMPTY
    },
    Facts {
        group: "coordination.k8s.io",
        plural: "leases",
        kind: "Lease",
        empty: r#","spec":{}"#,
        ..Facts::EMPTY
    },
    Facts {
        plural: "serviceaccounts",
        kind: "ServiceAccount",
        short_names: &["sa"],
        ..Facts::EMPTY
    },
    Facts {
        plural: "resourcequotas",
        kind: "ResourceQuota",
        short_names: &["quota"],
        subresources: &["status"],
        empty: r#","spec":{},"status":{}"#,
        ..Facts::EMPTY
    },
    Facts {
        plural: "nodes",
        kind: "Node",
        short_names: &["no"],
        namespaced: false,
        subresources: &["status"],
        empty: r#","spec":{},"status":{}"#,
        ..Facts::EMPTY
    },
    Facts {
        group: "apiextensions.k8s.io",
        plural: "customresourcedefinitions",
        kind: "CustomResourceDefinition",
        short_names: &["crd", "crds"],
        namespaced: false,
        subresources: &["status"],
        categories: &["api-extensions"],
        empty: concat!(
            r#","spec":{"group":"","names":{"plural":"","kind":""},"scope":"","versions":null},"#,
            r#""status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"#,
            r#""storedVersions":null}"#
        ),
        ..Facts::EMPTY
    },
];

impl Resource {
    /// The resources with a behaviour of their own, in the order of the table.
    pub(crate) const KNOWN: [Self; N_KNOWN] = [
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
        Self::KNOWN.into_iter().chain(PLAIN.iter().map(Self::Plain))
    }

    /// The built-in resource with these names.
    pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<Self> {
        Self::built_in().find(|resource| resource.is_at(group, version, plural))
    }

    /// True for the resource with these names.
    pub(crate) fn is_at(self, group: &str, version: &str, plural: &str) -> bool {
        self.plural() == plural && self.version() == version && self.group() == group
    }

    /// The index of the resource's collection. Versions of one resource share it.
    pub(crate) fn place(self) -> usize {
        match self {
            Self::Pods => 0,
            Self::ReplicaSets => 1,
            Self::ReplicationControllers => 2,
            Self::Namespaces => 3,
            Self::Events => 4,
            Self::Leases => 5,
            Self::ServiceAccounts => 6,
            Self::Quotas => 7,
            Self::Nodes => 8,
            Self::Definitions => 9,
            Self::Plain(plain) => plain.place,
        }
    }

    pub(crate) fn group(self) -> &'static str {
        self.facts().group
    }

    pub(crate) fn version(self) -> &'static str {
        self.facts().version
    }

    pub(crate) fn plural(self) -> &'static str {
        self.facts().plural
    }

    pub(crate) fn singular(self) -> String {
        match self.facts().singular {
            "" => self.kind().to_lowercase(),
            singular => singular.to_owned(),
        }
    }

    pub(crate) fn kind(self) -> &'static str {
        self.facts().kind
    }

    pub(crate) fn list_kind(self) -> String {
        match self.facts().list_kind {
            "" => format!("{}List", self.kind()),
            list_kind => list_kind.to_owned(),
        }
    }

    /// Short names for kubectl, such as `rs`.
    pub(crate) fn short_names(self) -> &'static [&'static str] {
        self.facts().short_names
    }

    /// The categories for kubectl, such as `all`.
    pub(crate) fn categories(self) -> &'static [&'static str] {
        self.facts().categories
    }

    pub(crate) fn is_namespaced(self) -> bool {
        self.facts().namespaced
    }

    pub(crate) fn subresources(self) -> &'static [&'static str] {
        self.facts().subresources
    }

    pub(crate) fn empty(self) -> &'static str {
        self.facts().empty
    }

    /// True if the resource has the subresource `scale`.
    pub(crate) fn has_scale(self) -> bool {
        self.subresources().contains(&"scale")
    }

    /// True if a delete returns the last object; for other kinds it returns a `Success` status.
    pub(crate) fn delete_returns_object(self) -> bool {
        matches!(self, Self::Pods | Self::ServiceAccounts | Self::Quotas)
    }

    /// True if the resource supports `deletecollection`.
    pub(crate) fn has_delete_collection(self) -> bool {
        self != Self::Namespaces
    }

    /// True if only the subresource `status` writes the status.
    pub(crate) fn has_status(self) -> bool {
        self.subresources().contains(&"status")
    }

    /// True for a resource that an object defines.
    pub(crate) fn is_custom(self) -> bool {
        matches!(self, Self::Plain(plain) if plain.is_custom)
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
        qualified(self.plural(), self.group())
    }

    /// `ReplicaSet.apps`, or `Pod` for the core group: how messages name the kind.
    pub(crate) fn qualified_kind(self) -> String {
        qualified(self.kind(), self.group())
    }

    fn facts(self) -> &'static Facts {
        match self {
            Self::Plain(plain) => &plain.facts,
            known => &FACTS[known.place()],
        }
    }
}

fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() {
        name.to_owned()
    } else {
        format!("{name}.{group}")
    }
}

#[cfg(test)]
mod tests {
    use super::Resource;

    #[test]
    fn the_tables_have_the_order_of_their_places() {
        for (place, resource) in Resource::built_in().enumerate() {
            assert_eq!(resource.place(), place);
            let (group, version) = (resource.group(), resource.version());
            let plural = resource.plural();
            assert_eq!(Resource::find(group, version, plural), Some(resource));
            let stem = resource.singular();
            let stem = stem.trim_end_matches(['y', 's']);
            assert!(plural.starts_with(stem), "{plural} is not {stem}");
        }
        assert_eq!(Resource::ReplicaSets.qualified_plural(), "replicasets.apps");
        assert_eq!(Resource::Pods.qualified_kind(), "Pod");
    }
}
