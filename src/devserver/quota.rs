//! ResourceQuotas: what an object uses, what a namespace uses, and which new object is too much
//! (apiserver `pkg/admission/plugin/resourcequota`, kubernetes `pkg/quota/v1`).
//!
//! DIFFERS: the server counts objects of every kind, and what pods and claims request, but not
//! device requests, and nothing for a quota with scopes. An update is not checked.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::api::Quantity;
use crate::json::{entries, members, text};
use crate::resource::Resource;
use crate::status_error::{FieldError, StatusError};
use crate::store::{Object, State};
use crate::workload::is_terminal;

type Amounts = BTreeMap<String, Quantity>;

fn text_of(amounts: &Amounts) -> String {
    let pairs = amounts
        .iter()
        .map(|(name, amount)| format!("{name}={amount}"));
    pairs.collect::<Vec<_>>().join(",")
}

fn amounts_at(object: &Value, pointer: &str) -> Amounts {
    let named = members(object, pointer);
    let read = named.filter_map(|(name, value)| Some((name.clone(), Quantity::read(value)?)));
    read.collect()
}

/// Validates only that amounts are not negative, and that counts are whole.
pub(crate) fn validate(quota: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (resource, amount) in members(quota, "/spec/hard") {
        let field = format!("spec.hard[{resource}]");
        let is_count = resource == "pods" || resource.starts_with("count/");
        match Quantity::read(amount) {
            Some(read) if read.milli < 0 => errors.push(FieldError::negative(&field, amount)),
            Some(read) if read.is_whole() || !is_count => {}
            _ => errors.push(FieldError::invalid(&field, amount, "must be an integer")),
        }
    }
    errors
}

/// What an object counts as in quotas, besides what a pod requests.
fn names_of(resource: Resource) -> [String; 2] {
    let plural = resource.plural();
    let own = match resource {
        Resource::Pods | Resource::ReplicationControllers | Resource::Quotas => plural,
        resource if resource.group().is_empty() => match plural {
            "configmaps" | "secrets" | "services" | "persistentvolumeclaims" => plural,
            _ => "",
        },
        _ => "",
    };
    [
        format!("count/{}", resource.qualified_plural()),
        own.to_owned(),
    ]
}

fn usage_of(resource: Resource, object: &Value) -> Amounts {
    let mut usage = Amounts::new();
    let [counted, own] = names_of(resource);
    usage.insert(counted, Quantity::count(1));
    // A pod that has ended counts only as an object.
    if resource == Resource::Pods && is_terminal(object) {
        return usage;
    }
    if !own.is_empty() {
        usage.insert(own, Quantity::count(1));
    }
    match resource.plural() {
        "pods" if resource == Resource::Pods => usage.extend(compute_of(object)),
        "persistentvolumeclaims" => {
            let storage = amounts_at(object, "/spec/resources/requests").remove("storage");
            usage.extend(storage.map(|storage| ("requests.storage".to_owned(), storage)));
        }
        "services" if resource.group().is_empty() => {
            let kind = text(object, "/spec/type");
            let has_ports = matches!(kind, "NodePort" | "LoadBalancer");
            let n_ports = if has_ports {
                entries(object, "/spec/ports").len()
            } else {
                0
            };
            usage.insert("services.nodeports".to_owned(), Quantity::count(n_ports));
            let n_balancers = usize::from(kind == "LoadBalancer");
            usage.insert(
                "services.loadbalancers".to_owned(),
                Quantity::count(n_balancers),
            );
        }
        _ => {}
    }
    usage
}

/// The requests and limits of a pod: those of all containers, or of one that runs before them.
fn compute_of(pod: &Value) -> Amounts {
    let mut usage = Amounts::new();
    for side in ["requests", "limits"] {
        let of = |container: &Value| amounts_at(container, &format!("/resources/{side}"));
        let mut sum = Amounts::new();
        for (name, amount) in entries(pod, "/spec/containers").iter().flat_map(of) {
            let all = sum.entry(name).or_default();
            *all = all.plus(amount);
        }
        for (name, amount) in entries(pod, "/spec/initContainers").iter().flat_map(of) {
            let most = sum.entry(name).or_default();
            *most = if amount.milli > most.milli {
                amount
            } else {
                *most
            };
        }
        for (name, amount) in sum {
            let is_common = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage");
            if side == "requests" && is_common {
                usage.insert(name.clone(), amount);
            }
            usage.insert(format!("{side}.{name}"), amount);
        }
    }
    usage
}

pub(crate) fn has_scopes(quota: &Value) -> bool {
    let names = ["/spec/scopes", "/spec/scopeSelector/matchExpressions"];
    names.iter().any(|it| !entries(quota, it).is_empty())
}

/// The limits that the server enforces.
fn counted(quota: &Value) -> Amounts {
    if has_scopes(quota) {
        return Amounts::new();
    }
    amounts_at(quota, "/spec/hard")
}

/// Rejects a new object for which a quota of its namespace has not enough left.
pub(crate) fn check(
    state: &State,
    resource: Resource,
    namespace: &str,
    object: &Value,
) -> Result<(), StatusError> {
    let name = text(object, "/metadata/name");
    for quota in state.of_namespace(Resource::Quotas, Some(namespace)) {
        let value = quota.value();
        let hard = counted(&value);
        if resource == Resource::Pods
            && let Some(missing) = missing_in(object, &hard)
        {
            let why = format!("failed quota: {}: must specify {missing}", quota.name());
            return Err(StatusError::forbidden(resource, name, &why));
        }
        let mut requested = usage_of(resource, object);
        requested.retain(|name, amount| hard.contains_key(name) && amount.milli > 0);
        if requested.is_empty() {
            continue;
        }
        let mut used = used(state, namespace, &hard);
        requested.retain(|name, amount| amount.milli + used[name].milli > hard[name].milli);
        if !requested.is_empty() {
            let limited: Amounts = requested.keys().map(|it| (it.clone(), hard[it])).collect();
            used.retain(|name, _| requested.contains_key(name));
            let why = format!(
                "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                quota.name(),
                text_of(&requested),
                text_of(&used),
                text_of(&limited)
            );
            return Err(StatusError::forbidden(resource, name, &why));
        }
    }
    Ok(())
}

/// The compute resources of `hard` that containers do not name, such as `limits.cpu for: a,b`.
fn missing_in(pod: &Value, hard: &Amounts) -> Option<String> {
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let lists = ["/spec/containers", "/spec/initContainers"];
    for container in lists.into_iter().flat_map(|list| entries(pod, list)) {
        for name in hard.keys() {
            let (side, amount) = name.split_once('.').unwrap_or(("requests", name));
            let is_checked = matches!(amount, "cpu" | "memory");
            if is_checked && container["resources"][side][amount].is_null() {
                let containers = missing.entry(name).or_default();
                containers.insert(text(container, "/name"));
            }
        }
    }
    let texts = missing.into_iter().map(|(name, containers)| {
        let containers: Vec<&str> = containers.into_iter().collect();
        format!("{name} for: {}", containers.join(","))
    });
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// What the objects of a namespace use of the resources in `hard`.
fn used(state: &State, namespace: &str, hard: &Amounts) -> Amounts {
    let mut used: Amounts = hard
        .keys()
        .map(|it| (it.clone(), Quantity::default()))
        .collect();
    for resource in state.stored() {
        let names = names_of(resource);
        let is_read = matches!(
            resource.plural(),
            "pods" | "persistentvolumeclaims" | "services"
        );
        let counts = |name: &String| names.contains(name);
        // A count does not need the objects, of which there may be thousands.
        for name in hard.keys().filter(|name| counts(name)) {
            let all = state.of_namespace(resource, Some(namespace));
            let all = all.filter(|object| *name != "pods" || !object.is_terminal);
            used.insert(name.clone(), Quantity::count(all.count()));
        }
        if is_read
            && !hard
                .keys()
                .all(|name| name.starts_with("count/") || counts(name))
        {
            for object in state.of_namespace(resource, Some(namespace)) {
                for (name, amount) in usage_of(resource, &object.value()) {
                    if let Some(all) = used.get_mut(&name).filter(|_| !counts(&name)) {
                        *all = all.plus(amount);
                    }
                }
            }
        }
    }
    used
}

/// The current status of a quota. What the server does not count is not among the used.
pub(crate) fn status(state: &State, namespace: &str, quota: &Value) -> Value {
    let hard = quota.pointer("/spec/hard").cloned();
    let used = used(state, namespace, &counted(quota));
    let used = used
        .iter()
        .map(|(name, amount)| (name.clone(), amount.to_string()));
    json!({
        "hard": hard.unwrap_or_else(|| json!({})),
        "used": used.collect::<BTreeMap<_, _>>(),
    })
}

/// Updates the status of the namespace's quotas if it changed.
pub(crate) fn refresh(state: &mut State, namespace: &str) {
    let quotas = state.of_namespace(Resource::Quotas, Some(namespace));
    let quotas: Vec<Object> = quotas.cloned().collect();
    for quota in quotas {
        let mut value = quota.value();
        let status = status(state, namespace, &value);
        if value["status"] != status {
            value["status"] = status;
            state.put(Resource::Quotas, &quota.key, value);
        }
    }
}
