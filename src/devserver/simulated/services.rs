//! The EndpointSlices of Services, and the status of PodDisruptionBudgets.

use serde_json::{Value, json};

use super::{Served, count, is_ready};
use crate::api::Labels;
use crate::json::{condition, entries, is_deleting, members, number, text};
use crate::metadata::now;
use crate::resource::Resource;
use crate::selector::label_selector;
use crate::store::{State, key_of};
use crate::workload::is_terminal;
use crate::write;

/// Distinguishes this server's slices from those of kube-controller-manager.
const MANAGER: &str = "dev.replicaset-controller";

/// Maximum endpoints of a slice (kubernetes `pkg/controller/endpointslice/config:v1alpha1`).
const ENDPOINTS_MAX: usize = 100;

/// Writes the slice of a Service that selects pods.
///
/// DIFFERS: a Service has one slice, of IPv4 addresses.
pub(super) fn sync_endpoint_slice(state: &mut State, service: &Served) {
    let selector: Labels = members(&service.value, "/spec/selector")
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
        .collect();
    let is_external = text(&service.value, "/spec/type") == "ExternalName";
    if selector.is_empty() || is_external || is_deleting(&service.value) {
        return;
    }
    let pods = matching(state, service.object.namespace(), |labels| {
        labels.is_superset_of(&selector)
    });
    let with_address = |pod: &&Value| !text(pod, "/status/podIP").is_empty() && !is_terminal(pod);
    let pods: Vec<&Value> = pods
        .iter()
        .filter(with_address)
        .take(ENDPOINTS_MAX)
        .collect();
    let endpoints: Vec<Value> = pods.iter().copied().map(endpoint).collect();
    let ports = entries(&service.value, "/spec/ports").iter();
    let ports: Vec<Value> = ports.filter_map(|port| slice_port(port, &pods)).collect();
    let name = service.object.name();
    let slice = json!({
        "metadata": {
            "name": format!("{name}-simulated"), "ownerReferences": service.reference(),
            "labels": {
                "kubernetes.io/service-name": name,
                "endpointslice.kubernetes.io/managed-by": MANAGER,
            },
        },
        "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
    });
    let resource = Resource::of("discovery.k8s.io", "endpointslices");
    let key = key_of(
        Some(service.object.namespace()),
        text(&slice, "/metadata/name"),
    );
    let Some(old) = state.get(resource, &key).cloned() else {
        return service.create(state, resource, slice);
    };
    if let Err(error) = write::replace(state, resource, &old, write::Part::Main, slice) {
        log::debug!("endpoint slice {key}: {error:?}");
    }
}

fn matching(state: &State, namespace: &str, is: impl Fn(&Labels) -> bool) -> Vec<Value> {
    let pods = state.of_namespace(Resource::Pods, Some(namespace));
    let pods = pods.filter(|pod| is(&pod.labels));
    pods.map(|pod| pod.value()).collect()
}

fn endpoint(pod: &Value) -> Value {
    let serves = condition(pod, "Ready") == "True";
    let metadata = &pod["metadata"];
    json!({
        "addresses": [pod["status"]["podIP"]], "nodeName": pod["spec"]["nodeName"],
        "conditions": {
            "ready": is_ready(pod), "serving": serves, "terminating": is_deleting(pod),
        },
        "targetRef": {
            "kind": "Pod", "namespace": metadata["namespace"], "name": metadata["name"],
            "uid": metadata["uid"],
        },
    })
}

/// A port of a Service as its pods have it. A named target has the number of the first pod.
fn slice_port(port: &Value, pods: &[&Value]) -> Option<Value> {
    let target = port.get("targetPort").unwrap_or(&port["port"]);
    let number = match target.as_str() {
        None => target.clone(),
        Some(name) => {
            let containers = pods.iter().flat_map(|pod| entries(pod, "/spec/containers"));
            let mut ports = containers.flat_map(|container| entries(container, "/ports"));
            let named = ports.find(|port| text(port, "/name") == name)?;
            named["containerPort"].clone()
        }
    };
    let name = text(port, "/name");
    Some(json!({"name": name, "port": number, "protocol": text(port, "/protocol")}))
}

/// Counts the pods of a budget (kubernetes `pkg/controller/disruption/disruption.go`).
///
/// DIFFERS: pods of a Deployment count as those of its ReplicaSets.
pub(super) fn sync_disruption_budget(state: &mut State, budget: &Served) {
    let selector = label_selector(&budget.value);
    let pods = matching(state, budget.object.namespace(), |labels| {
        selector.as_ref().is_some_and(|it| it.matches(labels))
    });
    let pods: Vec<Value> = pods.into_iter().filter(|pod| !is_terminal(pod)).collect();
    let n_pods = count(&pods, |_| true);
    let of_spec = |name: &str, of: i64| {
        let value = budget.value["spec"].get(name)?;
        let percent = value
            .as_str()
            .and_then(|it| it.strip_suffix('%')?.parse::<i64>().ok());
        let rounded_up = percent.map(|percent| (percent * of + 99) / 100);
        rounded_up.or(value.as_i64())
    };
    let is_text = |name: &str| budget.value["spec"][name].is_string();
    let expected = if is_text("minAvailable") || !budget.value["spec"]["maxUnavailable"].is_null() {
        expected_pods(state, &pods)
    } else {
        n_pods
    };
    let desired = match of_spec("maxUnavailable", expected) {
        Some(unavailable) => (expected - unavailable).max(0),
        None => of_spec("minAvailable", expected).unwrap_or(1),
    };
    let healthy = count(&pods, is_ready);
    let allowed = match expected {
        0 => 0,
        _ => (healthy - desired).max(0),
    };
    let (status, reason) = match allowed {
        0 => ("False", "InsufficientPods"),
        _ => ("True", "SufficientPods"),
    };
    let mut condition = json!({
        "type": "DisruptionAllowed", "status": status, "reason": reason, "message": "",
        "observedGeneration": budget.value["metadata"]["generation"], "lastTransitionTime": now(),
    });
    let known = entries(&budget.value, "/status/conditions").first();
    if let Some(known) = known.filter(|known| known["status"] == status) {
        condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
    }
    budget.set_status(
        state,
        json!({
            "disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": desired,
            "expectedPods": expected, "conditions": [condition],
        }),
    );
}

/// The desired replicas of the controllers of these pods; a pod without one counts once.
fn expected_pods(state: &State, pods: &[Value]) -> i64 {
    let mut counted: Vec<&str> = Vec::new();
    let mut expected = 0;
    for pod in pods {
        let owners = entries(pod, "/metadata/ownerReferences");
        let owner = owners.iter().find(|owner| owner["controller"] == true);
        let Some(owner) = owner else {
            expected += 1;
            continue;
        };
        if counted.contains(&text(owner, "/uid")) {
            continue;
        }
        counted.push(text(owner, "/uid"));
        let resource = state.resource_of(text(owner, "/kind"), text(owner, "/apiVersion"));
        let key = key_of(Some(text(pod, "/metadata/namespace")), text(owner, "/name"));
        let owner = resource.and_then(|resource| state.get(resource, &key));
        let replicas = owner.and_then(|owner| number(&owner.value(), "/spec/replicas"));
        expected += replicas.unwrap_or(1);
    }
    expected
}
