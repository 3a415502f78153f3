//! The subresources of pods that are not part of the object: `eviction` and `log`.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::body::DeleteOptions;
use crate::delete::delete;
use crate::exchange::{ApiRequest, Response};
use crate::json::{condition, drop_nulls, entries, is_deleting, number, text};
use crate::kubelet::behaviour;
use crate::resource::Resource;
use crate::selector::label_selector;
use crate::status_error::StatusError;
use crate::store::{Object, State};
use crate::workload::is_terminal;
use crate::write::set_condition;

/// Deletes a pod unless its PodDisruptionBudget forbids that (kubernetes
/// `pkg/registry/core/pod/storage/eviction.go`). A simulated controller keeps the budget's status.
pub(crate) fn evict(state: &mut State, key: &str, eviction: &Value) -> Result<(), StatusError> {
    let object = state.current(Resource::Pods, key)?;
    if text(eviction, "/metadata/name") != object.name() {
        return Err(StatusError::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let mut pod = object.value();
    let options = eviction.get("deleteOptions").filter(|it| !it.is_null());
    let mut options = options.cloned().unwrap_or_else(|| json!({}));
    drop_nulls(&mut options);
    let options: DeleteOptions = serde_json::from_value(options)
        .map_err(|error| StatusError::bad_request(error.to_string()))?;
    let is_pending = text(&pod, "/status/phase") == "Pending";
    if !is_pending && !is_terminal(&pod) && !is_deleting(&pod) {
        check_budgets(state, &object, &pod)?;
    }
    set_condition(&mut pod, "DisruptionTarget", "True");
    let conditions = pod["status"]["conditions"].as_array_mut();
    if let Some(target) = conditions.and_then(|all| all.last_mut()) {
        target["reason"] = json!("EvictionByEvictionAPI");
        target["message"] = json!("Eviction API: evicting");
    }
    state.put(Resource::Pods, key, pod);
    delete(state, Resource::Pods, key, &options).map(drop)
}

/// Takes one disruption of the pod's budget.
fn check_budgets(state: &mut State, pod: &Object, value: &Value) -> Result<(), StatusError> {
    let resource = Resource::of("policy", "poddisruptionbudgets");
    let covers = |budget: &Value| label_selector(budget).is_some_and(|it| it.matches(&pod.labels));
    let budgets = state.of_namespace(resource, Some(pod.namespace()));
    let budgets = budgets.map(|budget| (Arc::clone(budget), budget.value()));
    let budgets: Vec<(Object, Value)> = budgets.filter(|(_, it)| covers(it)).collect();
    let (budget, mut it) = match budgets.as_slice() {
        [] => return Ok(()),
        [(budget, it)] => (budget, it.clone()),
        _ => {
            return Err(StatusError::internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource \
                 does not support.",
            ));
        }
    };
    let of_status = |name: &str| number(&it, &format!("/status/{name}")).unwrap_or(0);
    let (healthy, desired) = (of_status("currentHealthy"), of_status("desiredHealthy"));
    let policy = text(&it, "/spec/unhealthyPodEvictionPolicy");
    let is_free = policy == "AlwaysAllow" || healthy >= desired && desired > 0;
    if condition(value, "Ready") != "True" && is_free {
        return Ok(());
    }
    let name = budget.name();
    if of_status("observedGeneration") < number(&it, "/metadata/generation").unwrap_or(0) {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(StatusError::budget_exceeded(why, 10));
    }
    let allowed = of_status("disruptionsAllowed");
    if allowed <= 0 {
        let why = if healthy <= desired {
            format!(
                "The disruption budget {name} needs {desired} healthy pods and has {healthy} \
                 currently"
            )
        } else {
            format!("The disruption budget {name} does not allow evicting pods currently")
        };
        return Err(StatusError::budget_exceeded(why, 0));
    }
    it["status"]["disruptionsAllowed"] = json!(allowed - 1);
    state.put(resource, &budget.key, it);
    Ok(())
}

/// The log of a container: the text of the pod's annotation, or a sentence.
pub(crate) fn log(pod: &Object, request: &ApiRequest) -> Result<Response, StatusError> {
    let value = pod.value();
    let lists = ["/spec/initContainers", "/spec/containers"];
    let of_list = |list| {
        entries(&value, list)
            .iter()
            .map(|container| text(container, "/name"))
    };
    let names: Vec<&str> = lists.into_iter().flat_map(of_list).collect();
    let n_init = entries(&value, lists[0]).len();
    let wanted = request.query_value("container");
    let name = pod.name();
    let container = match (wanted, &names[n_init..]) {
        ("", [only]) => only,
        ("", _) => {
            return Err(StatusError::bad_request(format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                names.join(" ")
            )));
        }
        (wanted, _) if names.contains(&wanted) => wanted,
        (wanted, _) => {
            return Err(StatusError::bad_request(format!(
                "container {wanted} is not valid for pod {name}"
            )));
        }
    };
    if text(&value, "/status/phase") == "Pending" {
        return Err(StatusError::bad_request(format!(
            "container \"{container}\" in pod \"{name}\" is waiting to start: ContainerCreating"
        )));
    }
    let canned = behaviour::log_of(&value).map(str::to_owned);
    let canned = canned.unwrap_or_else(|| {
        format!(
            "the dev server simulates pods, without containers: this is the log of {container} in \
             {name}"
        )
    });
    let lines: Vec<&str> = canned.lines().collect();
    let n_lines = request
        .query_value("tailLines")
        .parse()
        .unwrap_or(lines.len());
    let last = &lines[lines.len().saturating_sub(n_lines)..];
    let end = if last.is_empty() { "" } else { "\n" };
    let text = last.join("\n") + end;
    Ok(Response::text(200, &text))
}
