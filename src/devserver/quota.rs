//! ResourceQuotas on pods (`hard: {pods: "2"}`). The server stores other resources of a quota and
//! never counts them.

use serde_json::{Value, json};

use super::objects::text;
use super::resource::Resource;
use super::status_error::StatusError;
use super::store::{Object, State};

/// Rejects a new pod called `name` if a quota of the namespace is used up.
pub(super) fn check(state: &State, namespace: &str, name: &str) -> Result<(), StatusError> {
    let quotas = state.of_namespace(Resource::Quotas, Some(namespace));
    for quota in quotas {
        let value = quota.value();
        let Some(limit) = pods_limit(&value) else {
            continue;
        };
        let used = n_pods(state, namespace);
        if used + 1 > limit {
            let why = format!(
                "exceeded quota: {}, requested: pods=1, used: pods={used}, limited: pods={limit}",
                quota.name()
            );
            return Err(StatusError::forbidden(Resource::Pods, name, &why));
        }
    }
    Ok(())
}

/// The current status of a quota.
pub(super) fn status(state: &State, namespace: &str, quota: &Value) -> Value {
    let hard = quota.pointer("/spec/hard").cloned();
    let hard = hard.unwrap_or_else(|| json!({}));
    let mut used = json!({});
    if hard.get("pods").is_some() {
        used["pods"] = json!(n_pods(state, namespace).to_string());
    }
    json!({"hard": hard, "used": used})
}

/// Updates the status of the namespace's quotas if it changed.
pub(super) fn refresh(state: &mut State, namespace: &str) {
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

fn pods_limit(quota: &Value) -> Option<usize> {
    let limit = text(quota, "/spec/hard/pods");
    limit.parse().ok()
}

fn n_pods(state: &State, namespace: &str) -> usize {
    let pods = state.of_namespace(Resource::Pods, Some(namespace));
    pods.filter(|pod| !pod.is_terminal).count()
}
