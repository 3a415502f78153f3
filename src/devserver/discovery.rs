//! The paths outside the resources: health, version, and discovery, plain and aggregated, with
//! kube-apiserver 1.37's responses for the resources served here.

use serde_json::{Value, json};

use super::exchange::{ApiRequest, Response};
use super::openapi;
use super::resource::Resource;

/// The emulated Kubernetes release.
const GIT_VERSION: &str = "v1.37.2";

/// The API groups besides the core group.
const GROUPS: [&str; 2] = ["apps", "coordination.k8s.io"];

/// Versions of aggregated discovery; clients before 1.30 know only the second.
const AGGREGATED: [&str; 2] = ["v2", "v2beta1"];

/// The response to a path without a resource; `None` for an unknown path.
pub(super) fn response(request: &ApiRequest) -> Option<Response> {
    let path = request.path.trim_end_matches('/');
    if matches!(path, "/healthz" | "/livez" | "/readyz") {
        return Some(Response::text(200, "ok"));
    }
    if let Some(rest) = path.strip_prefix("/openapi/") {
        return openapi::response(rest, request);
    }
    if matches!(path, "/api" | "/apis")
        && let Some(version) = aggregated_version(request.header("accept"))
    {
        return Some(aggregated(path == "/apis", version));
    }
    let value = match path {
        "" => json!({"paths": paths()}),
        "/version" => version(),
        "/api" => {
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
        }
        "/apis" => json!({
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": GROUPS.map(group),
        }),
        "/api/v1" => resources(""),
        path => {
            let rest = path.strip_prefix("/apis/")?;
            let (name, version) = rest.split_once('/').unwrap_or((rest, ""));
            let name = GROUPS.into_iter().find(|known| *known == name)?;
            match version {
                "" => {
                    let mut group = group(name);
                    group["kind"] = json!("APIGroup");
                    group["apiVersion"] = json!("v1");
                    group
                }
                "v1" => resources(name),
                _ => return None,
            }
        }
    };
    Some(Response::object(200, &value))
}

/// True if the server has the group, in any version.
pub(super) fn is_served(group: &str) -> bool {
    group.is_empty() || GROUPS.contains(&group)
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": "37",
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    })
}

fn paths() -> Vec<String> {
    let fixed = [
        "/api",
        "/api/v1",
        "/apis",
        "/healthz",
        "/livez",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
    ];
    let groups = GROUPS.iter();
    let groups = groups.flat_map(|group| [format!("/apis/{group}"), format!("/apis/{group}/v1")]);
    fixed.into_iter().map(str::to_owned).chain(groups).collect()
}

fn group(name: &str) -> Value {
    let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
    json!({"name": name, "versions": [version], "preferredVersion": version})
}

fn resources(group: &str) -> Value {
    let entries: Vec<Value> = of_group(group).flat_map(entries).collect();
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

fn of_group(group: &str) -> impl Iterator<Item = Resource> {
    let all = Resource::ALL.into_iter();
    all.filter(move |resource| resource.group() == group)
}

fn verbs(resource: Resource) -> Vec<&'static str> {
    let mut verbs = vec![
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ];
    verbs.retain(|verb| *verb != "deletecollection" || resource.has_delete_collection());
    verbs
}

/// Group, version and kind of a subresource, and its verbs. Group and version are empty if they are
/// the resource's own.
fn subresource_facts(
    resource: Resource,
    subresource: &str,
) -> ([&'static str; 3], &'static [&'static str]) {
    match subresource {
        "scale" => (["autoscaling", "v1", "Scale"], &["get", "patch", "update"]),
        "binding" => (["", "", "Binding"], &["create"]),
        "finalize" => (["", "", resource.kind()], &["update"]),
        _ => (["", "", resource.kind()], &["get", "patch", "update"]),
    }
}

fn entries(resource: Resource) -> Vec<Value> {
    let mut main = json!({
        "name": resource.plural(), "singularName": resource.kind().to_lowercase(),
        "namespaced": resource.is_namespaced(), "kind": resource.kind(),
        "verbs": verbs(resource),
    });
    add_nicknames(resource, &mut main);
    let mut entries = vec![main];
    for subresource in resource.subresources() {
        let ([group, version, kind], verbs) = subresource_facts(resource, subresource);
        let mut entry = json!({
            "name": format!("{}/{subresource}", resource.plural()), "singularName": "",
            "namespaced": resource.is_namespaced(), "kind": kind, "verbs": verbs,
        });
        if !group.is_empty() {
            entry["group"] = json!(group);
            entry["version"] = json!(version);
        }
        entries.push(entry);
    }
    entries
}

fn add_nicknames(resource: Resource, entry: &mut Value) {
    if !resource.short_names().is_empty() {
        entry["shortNames"] = json!(resource.short_names());
    }
    if resource.is_of_all() {
        entry["categories"] = json!(["all"]);
    }
}

/// The newest version of aggregated discovery that the client accepts.
fn aggregated_version(accept: &str) -> Option<&'static str> {
    let mut versions = AGGREGATED.into_iter();
    versions.find(|version| {
        let mut types = accept.split(',');
        types.any(|kind| {
            let has = |parameter: &str| kind.split(';').any(|part| part.trim() == parameter);
            has("g=apidiscovery.k8s.io")
                && has("as=APIGroupDiscoveryList")
                && has(&format!("v={version}"))
        })
    })
}

/// All groups (or, for `/api`, the core group) with their resources in one response.
fn aggregated(is_groups: bool, version: &str) -> Response {
    let groups: &[&str] = if is_groups { &GROUPS } else { &[""] };
    let items: Vec<Value> = groups.iter().map(|group| aggregated_group(group)).collect();
    let list = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    });
    let mut response = Response::object(200, &list);
    response.content_type =
        format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
    response
}

fn aggregated_group(group: &str) -> Value {
    let resources: Vec<Value> = of_group(group).map(aggregated_resource).collect();
    let version = json!({"version": "v1", "resources": resources, "freshness": "Current"});
    let metadata = if group.is_empty() {
        json!({})
    } else {
        json!({"name": group})
    };
    json!({"metadata": metadata, "versions": [version]})
}

fn aggregated_resource(resource: Resource) -> Value {
    let kind = |names: [&str; 3]| {
        let [group, version, kind] = names;
        json!({"group": group, "version": version, "kind": kind})
    };
    let scope = if resource.is_namespaced() {
        "Namespaced"
    } else {
        "Cluster"
    };
    let mut entry = json!({
        "resource": resource.plural(),
        "responseKind": kind(["", "", resource.kind()]),
        "scope": scope,
        "singularResource": resource.kind().to_lowercase(),
        "verbs": verbs(resource),
    });
    add_nicknames(resource, &mut entry);
    let subresources: Vec<Value> = resource
        .subresources()
        .iter()
        .map(|subresource| {
            let (names, verbs) = subresource_facts(resource, subresource);
            json!({
                "subresource": subresource, "responseKind": kind(names), "verbs": verbs,
            })
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = json!(subresources);
    }
    entry
}
