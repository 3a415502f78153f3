//! Messages about missing permissions. Pure.

use std::fmt::Write;

use super::{Grant, Right};
use crate::api::WorkloadKind;

/// The consequence if the account may not list or watch pods.
pub const PODS_FORBIDDEN: &str = "the controllers wait until this account may list and watch pods";

/// The consequence if the account may not watch quotas, and the remedy.
pub const QUOTAS_FORBIDDEN: &str = "quotas are not watched, so a raised quota is found by the next \
     try, 30 s later at most. To grant this optional right to the account that the error names: \
     replicaset-controller rbac --watch-quotas --user=NAME | kubectl apply -f -. It counts \
     within ten minutes, or from a restart on";

/// The consequence if the account may not list or watch objects of this kind.
pub fn forbidden_workload(workload: &WorkloadKind) -> String {
    let WorkloadKind {
        kind,
        resource,
        cluster_role,
        controller,
        ..
    } = workload;
    format!(
        "no {kind} is controlled until this account may list and watch {resource}: bind it to \
         the role {cluster_role}, or remove {controller} from --controllers"
    )
}

/// Describes each missing permission with its purpose and scope. `missing` holds the denied verbs,
/// grouped by grant.
pub fn missing_rights<'a>(
    missing: impl IntoIterator<Item = (&'a Grant, &'a Right, &'a str)>,
) -> String {
    let mut text = String::new();
    let mut last: Option<(&Grant, &Right)> = None;
    for (grant, right, verb) in missing {
        match last {
            Some((of, on)) if std::ptr::eq(of, grant) && is_same_object(on, right) => {
                text.push_str(", ");
            }
            Some((of, on)) => {
                text.push(' ');
                text.push_str(&object(on));
                if std::ptr::eq(of, grant) {
                    text.push_str(", ");
                } else {
                    text.push_str(&place(of));
                    text.push_str("; ");
                }
            }
            None => {}
        }
        if !last.is_some_and(|(of, _)| std::ptr::eq(of, grant)) {
            // Writing to a string cannot fail.
            write!(text, "cannot {} without: ", grant.purpose).unwrap_or_default();
        }
        text.push_str(verb);
        last = Some((grant, right));
    }
    if let Some((of, on)) = last {
        text.push(' ');
        text.push_str(&object(on));
        text.push_str(&place(of));
    }
    text
}

fn is_same_object(one: &Right, other: &Right) -> bool {
    (one.group, &one.resource, &one.name) == (other.group, &other.resource, &other.name)
}

/// The form of `kubectl auth can-i`: `replicasets.apps/status`, `leases.coordination.k8s.io/name`.
fn object(right: &Right) -> String {
    let (resource, subresource) = right.resource_and_subresource();
    let mut text = resource.to_owned();
    for (before, part) in [
        ('.', right.group),
        ('/', subresource),
        ('/', right.name.as_deref().unwrap_or_default()),
    ] {
        if !part.is_empty() {
            text.push(before);
            text.push_str(part);
        }
    }
    text
}

fn place(grant: &Grant) -> String {
    match &grant.namespace {
        Some(namespace) => format!(" in namespace {namespace}"),
        None => " in the whole cluster".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{grants, table::tests::all_enabled};
    use super::missing_rights;

    #[test]
    fn each_missing_permission_has_its_purpose_and_scope() {
        let grants = grants(&all_enabled());
        let is_missing = |resource: &str, verb: &str| {
            matches!(
                (resource, verb),
                ("pods", "create" | "delete") | ("leases", "update") | ("replicasets/status", _)
            )
        };
        let mut missing = Vec::new();
        for grant in [&grants[0], &grants[2]] {
            for right in &grant.rights {
                for verb in right.verbs {
                    if is_missing(&right.resource, verb) {
                        missing.push((grant, right, *verb));
                    }
                }
            }
        }
        assert_eq!(
            missing_rights(missing),
            "cannot control ReplicaSets without: update replicasets.apps/status, create, delete \
             pods in the whole cluster; cannot take part in the leader election without: update \
             leases.coordination.k8s.io/kube-controller-manager in namespace kube-system"
        );
        assert_eq!(missing_rights([]), "");
    }
}
