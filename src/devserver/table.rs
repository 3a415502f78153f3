//! Objects as tables, which is what `kubectl get` asks for and prints.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::exchange::{Answer, AnswerBody, ApiRequest};
use super::objects::{entries, number, text};
use super::resource::Resource;

/// The answer (an object or a list) as a table, if the request prefers that.
pub(super) fn for_people(resource: Resource, request: &ApiRequest, mut answer: Answer) -> Answer {
    if !request.header("accept").contains(";as=Table") {
        return answer;
    }
    let Some(body) = std::mem::replace(&mut answer.body, AnswerBody::Cut).read() else {
        return answer;
    };
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    let objects = match value.get("items").and_then(Value::as_array) {
        Some(items) => items.clone(),
        None => vec![value.clone()],
    };
    let version = &value["metadata"]["resourceVersion"];
    let rows: Vec<Value> = objects.iter().map(|object| row(resource, object)).collect();
    let table = json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": columns(resource),
        "rows": rows,
    });
    Answer::object(answer.code, &table)
}

fn columns(resource: Resource) -> Vec<Value> {
    let names: &[&str] = match resource {
        Resource::Pods => &["Name", "Ready", "Status", "Restarts", "Age", "Node"],
        Resource::ReplicaSets | Resource::ReplicationControllers => {
            &["Name", "Desired", "Current", "Ready", "Age"]
        }
        Resource::Namespaces => &["Name", "Status", "Age"],
        Resource::Events => &["Last Seen", "Type", "Reason", "Object", "Message"],
        Resource::Leases => &["Name", "Holder", "Age"],
        Resource::ServiceAccounts | Resource::Quotas => &["Name", "Age"],
    };
    let column = |name: &&str| {
        // Columns of a priority above 0 are for `-o wide`.
        let priority = i32::from(*name == "Node");
        let format = if *name == "Name" { "name" } else { "" };
        json!({
            "name": name, "type": "string", "format": format, "description": "",
            "priority": priority,
        })
    };
    names.iter().map(column).collect()
}

fn row(resource: Resource, object: &Value) -> Value {
    let name = text(object, "/metadata/name");
    let age = age(text(object, "/metadata/creationTimestamp"));
    let count = |pointer: &str| number(object, pointer).unwrap_or(0).to_string();
    let cells = match resource {
        Resource::Pods => pod_cells(object, name, &age),
        Resource::ReplicaSets | Resource::ReplicationControllers => json!([
            name,
            count("/spec/replicas"),
            count("/status/replicas"),
            count("/status/readyReplicas"),
            age
        ]),
        Resource::Namespaces => json!([name, text(object, "/status/phase"), age]),
        Resource::Events => {
            let kind = text(object, "/involvedObject/kind").to_lowercase();
            json!([
                self::age(text(object, "/lastTimestamp")),
                text(object, "/type"),
                text(object, "/reason"),
                format!("{kind}/{}", text(object, "/involvedObject/name")),
                text(object, "/message"),
            ])
        }
        Resource::Leases => json!([name, text(object, "/spec/holderIdentity"), age]),
        Resource::ServiceAccounts | Resource::Quotas => json!([name, age]),
    };
    json!({
        "cells": cells,
        "object": {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": object["metadata"],
        },
    })
}

fn pod_cells(pod: &Value, name: &str, age: &str) -> Value {
    let statuses = entries(pod, "/status/containerStatuses");
    let is_ready = |status: &&Value| status["ready"] == json!(true);
    let n_ready = statuses.iter().filter(is_ready).count();
    let n_containers = entries(pod, "/spec/containers").len();
    let restarts = statuses
        .iter()
        .filter_map(|status| status["restartCount"].as_i64());
    let state = if pod.pointer("/metadata/deletionTimestamp").is_some() {
        "Terminating"
    } else {
        text(pod, "/status/phase")
    };
    json!([
        name,
        format!("{n_ready}/{n_containers}"),
        state,
        restarts.sum::<i64>().to_string(),
        age,
        text(pod, "/spec/nodeName"),
    ])
}

/// How long ago `time` was, in its largest unit.
fn age(time: &str) -> String {
    let Ok(time) = time.parse::<Timestamp>() else {
        return "<unknown>".to_owned();
    };
    let seconds = Timestamp::now().duration_since(time).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
