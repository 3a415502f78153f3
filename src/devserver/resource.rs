//! The table of served resources: their names and the content of an empty object.

/// A served resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Resource {
    Pods,
    ReplicaSets,
    ReplicationControllers,
    Namespaces,
    Events,
    Leases,
    ServiceAccounts,
    Quotas,
    Nodes,
}

/// The number of resources.
pub(super) const N_RESOURCES: usize = 9;

struct Facts {
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    short_names: &'static [&'static str],
    namespaced: bool,
    subresources: &'static [&'static str],
    /// The fields after the metadata of an empty object, for bookmarks.
    empty: &'static str,
}

static FACTS: [Facts; N_RESOURCES] = [
    Facts {
        group: "",
        plural: "pods",
        kind: "Pod",
        short_names: &["po"],
        namespaced: true,
        subresources: &["status", "binding"],
        empty: r#","spec":{"containers":null},"status":{}"#,
    },
    Facts {
        group: "apps",
        plural: "replicasets",
        kind: "ReplicaSet",
        short_names: &["rs"],
        namespaced: true,
        subresources: &["status", "scale"],
        empty: concat!(
            r#","spec":{"replicas":0,"selector":null,"template":{"metadata":{},"#,
            r#""spec":{"containers":null}}},"status":{"replicas":0}"#
        ),
    },
    Facts {
        group: "",
        plural: "replicationcontrollers",
        kind: "ReplicationController",
        short_names: &["rc"],
        namespaced: true,
        subresources: &["status", "scale"],
        empty: r#","spec":{},"status":{"replicas":0}"#,
    },
    Facts {
        group: "",
        plural: "namespaces",
        kind: "Namespace",
        short_names: &["ns"],
        namespaced: false,
        subresources: &["status", "finalize"],
        empty: r#","spec":{},"status":{}"#,
    },
    Facts {
        group: "",
        plural: "events",
        kind: "Event",
        short_names: &["ev"],
        namespaced: true,
        subresources: &[],
        empty: concat!(
            r#","involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"#,
            r#""eventTime":null,"reportingComponent":"","reportingInstance":"""#
        ),
    },
    Facts {
        group: "coordination.k8s.io",
        plural: "leases",
        kind: "Lease",
        short_names: &[],
        namespaced: true,
        subresources: &[],
        empty: r#","spec":{}"#,
    },
    Facts {
        group: "",
        plural: "serviceaccounts",
        kind: "ServiceAccount",
        short_names: &["sa"],
        namespaced: true,
        subresources: &[],
        empty: "",
    },
    Facts {
        group: "",
        plural: "resourcequotas",
        kind: "ResourceQuota",
        short_names: &["quota"],
        namespaced: true,
        subresources: &["status"],
        empty: r#","spec":{},"status":{}"#,
    },
    Facts {
        group: "",
        plural: "nodes",
        kind: "Node",
        short_names: &["no"],
        namespaced: false,
        subresources: &["status"],
        empty: r#","spec":{},"status":{}"#,
    },
];

impl Resource {
    /// All resources, in the order of the table.
    pub(super) const ALL: [Self; N_RESOURCES] = [
        Self::Pods,
        Self::ReplicaSets,
        Self::ReplicationControllers,
        Self::Namespaces,
        Self::Events,
        Self::Leases,
        Self::ServiceAccounts,
        Self::Quotas,
        Self::Nodes,
    ];

    /// The served resource with these names. All are in version `v1`.
    pub(super) fn find(group: &str, version: &str, plural: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|resource| {
            version == "v1" && resource.group() == group && resource.plural() == plural
        })
    }

    pub(super) fn index(self) -> usize {
        self as usize
    }

    pub(super) fn group(self) -> &'static str {
        self.facts().group
    }

    pub(super) fn plural(self) -> &'static str {
        self.facts().plural
    }

    pub(super) fn kind(self) -> &'static str {
        self.facts().kind
    }

    /// Short names for kubectl, such as `rs`.
    pub(super) fn short_names(self) -> &'static [&'static str] {
        self.facts().short_names
    }

    /// True for the resources in `kubectl get all`.
    pub(super) fn is_of_all(self) -> bool {
        matches!(
            self,
            Self::Pods | Self::ReplicaSets | Self::ReplicationControllers
        )
    }

    pub(super) fn is_namespaced(self) -> bool {
        self.facts().namespaced
    }

    pub(super) fn subresources(self) -> &'static [&'static str] {
        self.facts().subresources
    }

    pub(super) fn empty(self) -> &'static str {
        self.facts().empty
    }

    /// True if the resource has the subresource `scale`.
    pub(super) fn has_scale(self) -> bool {
        self.subresources().contains(&"scale")
    }

    /// True if a delete returns the last object; for other kinds it returns a `Success` status.
    pub(super) fn delete_returns_object(self) -> bool {
        matches!(self, Self::Pods | Self::ServiceAccounts | Self::Quotas)
    }

    /// True if the resource supports `deletecollection`.
    pub(super) fn has_delete_collection(self) -> bool {
        self != Self::Namespaces
    }

    /// True if only the subresource `status` writes the status.
    pub(super) fn has_status(self) -> bool {
        self.subresources().contains(&"status")
    }

    /// `apps/v1`, or `v1` for the core group.
    pub(super) fn api_version(self) -> String {
        match self.group() {
            "" => "v1".to_owned(),
            group => format!("{group}/v1"),
        }
    }

    /// `replicasets.apps`, or `pods` for the core group: how messages name the resource.
    pub(super) fn qualified_plural(self) -> String {
        qualified(self.plural(), self.group())
    }

    /// `ReplicaSet.apps`, or `Pod` for the core group: how messages name the kind.
    pub(super) fn qualified_kind(self) -> String {
        qualified(self.kind(), self.group())
    }

    fn facts(self) -> &'static Facts {
        &FACTS[self.index()]
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
    fn the_table_has_the_order_of_the_enum() {
        for (index, resource) in Resource::ALL.into_iter().enumerate() {
            assert_eq!(resource.index(), index);
            let (group, plural) = (resource.group(), resource.plural());
            assert_eq!(Resource::find(group, "v1", plural), Some(resource));
            let stem = resource.kind().to_lowercase();
            assert!(plural.starts_with(&stem), "{plural} is not {stem}");
        }
        assert_eq!(Resource::ReplicaSets.qualified_plural(), "replicasets.apps");
        assert_eq!(Resource::Pods.qualified_kind(), "Pod");
    }
}
