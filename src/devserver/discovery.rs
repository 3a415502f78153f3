//! The paths outside the API proper: health, version, and enough of discovery for `kubectl`.

use serde_json::{Value, json};

use super::exchange::Answer;
use super::resource::Resource;

/// The Kubernetes release that this server behaves like.
const GIT_VERSION: &str = "v1.36.3";

const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// The answer to a path that names no resource; `None` if there is nothing.
pub(super) fn answer(path: &str) -> Option<Answer> {
    let value = match path.trim_end_matches('/') {
        "/healthz" | "/livez" | "/readyz" => return Some(Answer::text(200, "ok")),
        "/version" => json!({
            "major": "1",
            "minor": "36",
            "gitVersion": GIT_VERSION,
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": "",
            "platform": "linux/amd64",
        }),
        "/api" => {
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
        }
        "/apis" => json!({
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [group("apps"), group("coordination.k8s.io")],
        }),
        "/api/v1" => resources(""),
        "/apis/apps/v1" => resources("apps"),
        "/apis/coordination.k8s.io/v1" => resources("coordination.k8s.io"),
        "/apis/apps" => group("apps"),
        "/apis/coordination.k8s.io" => group("coordination.k8s.io"),
        _ => return None,
    };
    Some(Answer::object(200, &value))
}

fn group(name: &str) -> Value {
    let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
    json!({"name": name, "versions": [version], "preferredVersion": version})
}

fn resources(group: &str) -> Value {
    let of_group = Resource::ALL.into_iter().filter(|r| r.group() == group);
    let entries: Vec<Value> = of_group.flat_map(entries).collect();
    let group_version = if group.is_empty() {
        "v1".to_owned()
    } else {
        format!("{group}/v1")
    };
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": entries,
    })
}

fn entries(resource: Resource) -> Vec<Value> {
    let short_names = match resource {
        Resource::Pods => json!(["po"]),
        Resource::ReplicaSets => json!(["rs"]),
        Resource::ReplicationControllers => json!(["rc"]),
        Resource::Namespaces => json!(["ns"]),
        Resource::Events => json!(["ev"]),
        Resource::ServiceAccounts => json!(["sa"]),
        Resource::Quotas => json!(["quota"]),
        Resource::Leases => json!([]),
    };
    let singular = resource.kind().to_lowercase();
    let mut entries = vec![json!({
        "name": resource.plural(), "singularName": singular, "kind": resource.kind(),
        "namespaced": resource.is_namespaced(), "verbs": VERBS, "shortNames": short_names,
    })];
    for subresource in resource.subresources() {
        let (kind, verbs) = match *subresource {
            "scale" => ("Scale", json!(["get", "patch", "update"])),
            "binding" => ("Binding", json!(["create"])),
            _ => (resource.kind(), json!(["get", "patch", "update"])),
        };
        entries.push(json!({
            "name": format!("{}/{subresource}", resource.plural()), "singularName": "",
            "kind": kind, "namespaced": resource.is_namespaced(), "verbs": verbs,
        }));
    }
    entries
}
