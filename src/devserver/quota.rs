//! ResourceQuotas: what an object uses, what a namespace uses, and which new object is too much
//! (apiserver `pkg/admission/plugin/resourcequota`, kubernetes `pkg/quota/v1`).
//!
//! DIFFERS: the server counts objects of every kind, and what pods and claims request, but not
//! device requests, and nothing for a quota with scopes. An update is not checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Value, json};

use crate::json::{entries, members, text};
use crate::resource::Resource;
use crate::status_error::{FieldError, StatusError};
use crate::store::{Object, State};
use crate::workload::is_terminal;

/// An amount such as `1500m` or `2Gi`, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quantity {
    milli: i128,
    is_binary: bool,
}

const UNITS: [(&str, i128); 6] = [
    ("E", 1_000_000_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1000),
];

const BINARY_UNITS: [(&str, i128); 6] = [
    ("Ei", 1 << 60),
    ("Pi", 1 << 50),
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
];

impl Quantity {
    /// Reads a text or a number; rounds up to a thousandth.
    pub(crate) fn read(value: &Value) -> Option<Self> {
        let text = match value {
            Value::String(text) => text.clone(),
            number => number.as_number()?.to_string(),
        };
        let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-');
        let end = text.find(|c| !is_number(c)).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let all = UNITS.iter().chain(&BINARY_UNITS);
        let (scale, per) = match unit {
            "" => (1, 1),
            "m" => (1, 1000),
            "u" => (1, 1_000_000),
            "n" => (1, 1_000_000_000),
            unit if unit.starts_with(['e', 'E']) && unit.len() > 1 && !unit.ends_with('i') => {
                let power: i32 = unit[1..].parse().ok()?;
                let ten = 10_i128.checked_pow(power.unsigned_abs())?;
                if power < 0 { (1, ten) } else { (ten, 1) }
            }
            unit => (all.into_iter().find(|(name, _)| *name == unit)?.1, 1),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
        let below = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)? * per;
        let thousandths = digits.checked_mul(1000)?.checked_mul(scale)?;
        Some(Self {
            milli: thousandths.div_euclid(below) + i128::from(thousandths.rem_euclid(below) > 0),
            is_binary: unit.ends_with('i'),
        })
    }

    fn count(n: usize) -> Self {
        Self {
            milli: i128::try_from(n).unwrap_or(i128::MAX) * 1000,
            is_binary: false,
        }
    }

    /// True for a whole number, which counts objects.
    fn is_whole(self) -> bool {
        self.milli % 1000 == 0
    }

    fn plus(self, other: Self) -> Self {
        Self {
            milli: self.milli + other.milli,
            is_binary: if self.milli == 0 {
                other.is_binary
            } else {
                self.is_binary
            },
        }
    }
}

/// Go's canonical form: the largest unit without a fraction.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_whole() {
            return write!(f, "{}m", self.milli);
        }
        let number = self.milli / 1000;
        let units = if self.is_binary && number.abs() >= 1024 {
            BINARY_UNITS
        } else {
            UNITS
        };
        let mut units = units.iter();
        match units.find(|(_, scale)| number != 0 && number % scale == 0) {
            Some((unit, scale)) => write!(f, "{}{unit}", number / scale),
            None => write!(f, "{number}"),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Quantity;

    #[test]
    fn amounts_have_the_text_of_go() {
        for (text, expected) in [
            ("1000", "1k"),
            ("1.5", "1500m"),
            ("100m", "100m"),
            ("1024Mi", "1Gi"),
            ("0", "0"),
            ("1500Mi", "1500Mi"),
            ("2e3", "2k"),
            ("1u", "1m"),
            ("0.5Gi", "512Mi"),
            ("-1", "-1"),
        ] {
            let read = Quantity::read(&json!(text)).expect("an amount");
            assert_eq!(read.to_string(), expected, "{text}");
        }
        for text in ["", "x", "1X", "1e", "--1"] {
            assert_eq!(Quantity::read(&json!(text)), None, "{text}");
        }
    }
}
