//! Renders the permissions as YAML for `kubectl apply -f -`. Pure; called by the command `rbac`.

use serde_json::{Value, json};

use super::{Grant, Right, Role};
use crate::stdx::escape::shell_word;

/// Name of the daemon's own roles and bindings, or the prefix of their names.
const NAME: &str = "replicaset-controller";

/// Only administrators of the cluster can create pods there.
pub const SYSTEM_NAMESPACE: &str = "kube-system";

const GROUP: &str = "rbac.authorization.k8s.io";

/// The account that receives the permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// A ServiceAccount; the manifests create it.
    ServiceAccount { namespace: String, name: String },
    /// A user, such as the common name of a client certificate.
    User(String),
}

impl Account {
    /// The account with this `username` at the API server.
    pub fn of_username(username: &str) -> Self {
        let service_account = username.strip_prefix("system:serviceaccount:");
        match service_account.and_then(|account| account.split_once(':')) {
            Some((namespace, name)) => Self::ServiceAccount {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
            None => Self::User(username.to_owned()),
        }
    }

    /// The flag of `rbac` that names this account, quoted for a shell.
    pub fn flag(&self) -> String {
        match self {
            Self::ServiceAccount { namespace, name } => {
                let account = format!("{namespace}/{name}");
                format!("--service-account={}", shell_word(&account))
            }
            Self::User(name) => format!("--user={}", shell_word(name)),
        }
    }

    /// Ends the names of this account's objects, so that no other account's `kubectl apply` takes
    /// its rights away. Empty for the default account of the whole cluster.
    fn suffix(&self) -> String {
        match self {
            Self::ServiceAccount { namespace, name } if name == NAME => match namespace.as_str() {
                SYSTEM_NAMESPACE => String::new(),
                namespace => format!(":{namespace}"),
            },
            Self::ServiceAccount { namespace, name } => format!(":{namespace}:{name}"),
            // No namespace begins with a capital letter. The name of an RBAC object may have
            // neither '/' nor '%'.
            Self::User(name) => {
                let name = name.replace('~', "~0").replace('/', "~1");
                format!(":User:{}", name.replace('%', "~2"))
            }
        }
    }

    fn subject(&self) -> Value {
        match self {
            Self::ServiceAccount { namespace, name } => {
                json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
            }
            Self::User(name) => json!({"kind": "User", "apiGroup": GROUP, "name": name}),
        }
    }
}

/// Renders all manifests in the order in which they can be applied.
pub fn manifests(grants: &[Grant], account: &Account) -> String {
    let mut documents = Vec::new();
    if let Account::ServiceAccount { namespace, name } = account {
        documents.push(json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata(name, Some(namespace)),
        }));
    }
    documents.extend(grants.iter().flat_map(|grant| documents_of(grant, account)));
    let texts = documents.iter().map(serde_saphyr::to_string);
    let texts: Result<Vec<String>, _> = texts.collect();
    texts.expect("YAML has all values of JSON").join("---\n")
}

/// A comment that warns of an account that others can use to act in the whole cluster; empty if
/// there is none. Anyone who can create a pod in a namespace can run it as any ServiceAccount
/// there.
pub fn warning(grants: &[Grant], account: &Account) -> String {
    let cluster_wide = grants.iter().filter(|grant| grant.namespace.is_none());
    let purposes: Vec<&str> = cluster_wide.map(|grant| grant.purpose.as_str()).collect();
    match account {
        Account::ServiceAccount { namespace, name }
            if namespace != SYSTEM_NAMESPACE && !purposes.is_empty() =>
        {
            format!(
                "# WARNING: anyone who can create pods in {namespace} can use the account {name} \
                 and with it {} in the whole cluster.\n",
                purposes.join(", ")
            )
        }
        _ => String::new(),
    }
}

/// The role of a grant, unless it exists, and its binding.
fn documents_of(grant: &Grant, account: &Account) -> Vec<Value> {
    let mut documents = Vec::new();
    let (name, kind) = match grant.role {
        Role::Stock(role) => (binding_name(role), "ClusterRole"),
        Role::Own(suffix) if grant.namespace.is_some() => (format!("{NAME}:{suffix}"), "Role"),
        Role::Own(suffix) => (format!("{NAME}:{suffix}"), "ClusterRole"),
    };
    let name = name + &account.suffix();
    let namespace = grant.namespace.as_deref();
    let role = match grant.role {
        Role::Stock(role) => role,
        Role::Own(_) => {
            documents.push(json!({
                "apiVersion": format!("{GROUP}/v1"),
                "kind": kind,
                "metadata": metadata(&name, namespace),
                "rules": grant.rights.iter().map(rule).collect::<Vec<_>>(),
            }));
            &name
        }
    };
    let binding = if namespace.is_some() {
        "RoleBinding"
    } else {
        "ClusterRoleBinding"
    };
    documents.push(json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": binding,
        "metadata": metadata(&name, namespace),
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": [account.subject()],
    }));
    documents
}

/// The name of a binding, derived from its role: `replicaset-controller:auth-delegator` binds
/// `system:auth-delegator`.
fn binding_name(role: &str) -> String {
    let suffix = role.rsplit(':').next().unwrap_or(role);
    match suffix {
        NAME => NAME.to_owned(),
        suffix => format!("{NAME}:{suffix}"),
    }
}

fn metadata(name: &str, namespace: Option<&str>) -> Value {
    let mut metadata = json!({"name": name});
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    metadata
}

fn rule(right: &Right) -> Value {
    let mut rule = json!({
        "apiGroups": [right.group],
        "resources": [right.resource],
        "verbs": right.verbs,
    });
    if let Some(name) = &right.name {
        rule["resourceNames"] = json!([name]);
    }
    rule
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::all_enabled;
    use super::super::{RightsOptions, grants};
    use super::{Account, manifests, warning};
    use crate::api::workload_kind::REPLICA_SET;

    fn documents(options: &RightsOptions, account: &Account) -> Vec<Value> {
        let text = manifests(&grants(options), account);
        let documents = text.split("---\n");
        documents
            .map(|document| serde_saphyr::from_str(document).expect("YAML"))
            .collect()
    }

    #[test]
    fn a_single_namespace_gets_role_bindings_and_a_lease_role() {
        let options = RightsOptions {
            namespace: Some("shop".to_owned()),
            delegated_auth: false,
            workloads: vec![&REPLICA_SET],
            deployments: false,
            ..all_enabled()
        };
        let account = Account::of_username("system:serviceaccount:shop:daemon");
        let documents = documents(&options, &account);
        let names = |document: &Value| {
            let text = |path| document.pointer(path).and_then(Value::as_str).unwrap_or("");
            ["/kind", "/metadata/namespace", "/metadata/name"]
                .map(text)
                .join(" ")
        };
        assert_eq!(
            documents.iter().map(names).collect::<Vec<_>>(),
            [
                "ServiceAccount shop daemon",
                "RoleBinding shop replicaset-controller:shop:daemon",
                "Role kube-system replicaset-controller:leader-election:shop:daemon",
                "RoleBinding kube-system replicaset-controller:leader-election:shop:daemon",
            ]
        );
        assert_eq!(
            documents[2]["rules"],
            json!([
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
                 "verbs": ["create"]},
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
                 "resourceNames": ["kube-controller-manager"], "verbs": ["get", "update"]},
                {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
            ])
        );
        assert_eq!(
            documents[3]["subjects"],
            json!([{"kind": "ServiceAccount", "name": "daemon", "namespace": "shop"}])
        );
    }

    #[test]
    fn an_account_with_rights_outside_its_namespace_has_a_warning() {
        let in_shop = |delegated_auth| RightsOptions {
            namespace: Some("shop".to_owned()),
            delegated_auth,
            ..all_enabled()
        };
        let account = Account::of_username;
        let daemon = account("system:serviceaccount:shop:daemon");
        assert_eq!(
            warning(&grants(&in_shop(true)), &daemon),
            "# WARNING: anyone who can create pods in shop can use the account daemon and with it \
             authorize readers of metrics and debug pages in the whole cluster.\n"
        );
        assert_eq!(warning(&grants(&in_shop(false)), &daemon), "");
        for safe in ["system:serviceaccount:kube-system:daemon", "jane"] {
            assert_eq!(warning(&grants(&all_enabled()), &account(safe)), "");
        }
    }

    #[test]
    fn a_user_is_bound_but_not_created() {
        let documents = documents(&all_enabled(), &Account::of_username("O'Brien: admin"));
        assert!(documents.iter().all(|d| d["kind"] != "ServiceAccount"));
        assert_eq!(documents[0]["subjects"][0]["name"], "O'Brien: admin");
    }

    #[test]
    fn no_account_takes_the_names_of_another_one() {
        let names = |username: &str| -> Vec<String> {
            let documents = documents(&all_enabled(), &Account::of_username(username));
            let bindings = documents.iter().filter(|d| d["subjects"].is_array());
            let name = |d: &Value| d["metadata"]["name"].to_string();
            bindings.map(name).collect()
        };
        let all = [
            "system:serviceaccount:kube-system:replicaset-controller",
            "system:serviceaccount:shop:replicaset-controller",
            "system:serviceaccount:shop:other",
            "system:kube-controller-manager",
            "shop",
            "shop:other",
            "a/b",
            "a-b",
            "a%b",
            "a~1b",
        ];
        let mut names: Vec<String> = all.iter().flat_map(|username| names(username)).collect();
        let count = names.len();
        assert!(
            names.iter().all(|name| !name.contains(['/', '%'])),
            "{names:?}"
        );
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn account_flags_are_quoted_for_a_shell() {
        for (username, expected) in [
            ("system:serviceaccount:shop:rs", "--service-account=shop/rs"),
            (
                "system:kube-controller-manager",
                "--user=system:kube-controller-manager",
            ),
            ("O'Brien", r"--user='O'\''Brien'"),
        ] {
            assert_eq!(Account::of_username(username).flag(), expected);
        }
    }

    #[test]
    fn strings_stay_strings() {
        for text in [
            "system:auth-delegator",
            "jane@example.com",
            "true",
            "12",
            "a: b",
            "a:",
            "~",
        ] {
            let account = Account::User(text.to_owned());
            let documents = documents(&all_enabled(), &account);
            assert_eq!(documents[0]["subjects"][0]["name"], text);
        }
    }
}
