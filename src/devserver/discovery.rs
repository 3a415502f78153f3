//! The paths outside the resources: health, version, and discovery, plain and aggregated, with
//! kube-apiserver 1.37's responses for the resources served here.

use serde_json::{Value, json};

use crate::exchange::{ApiRequest, Response};
use crate::openapi;
use crate::resource::Resource;
use crate::reviews;

/// The emulated Kubernetes release.
const GIT_VERSION: &str = "v1.37.2";

/// Versions of aggregated discovery; clients before 1.30 know only the second.
const AGGREGATED: [&str; 2] = ["v2", "v2beta1"];

/// The response to a path without a resource, on a server with these resources; `None` for an
/// unknown path.
pub(crate) fn response(request: &ApiRequest, all: &[Resource]) -> Option<Response> {
    let path = request.path.trim_end_matches('/');
    if matches!(path, "/healthz" | "/livez" | "/readyz") {
        return Some(Response::text(200, "ok"));
    }
    if let Some(rest) = path.strip_prefix("/openapi/") {
        return openapi::response(rest, request, all);
    }
    if matches!(path, "/api" | "/apis")
        && let Some(version) = aggregated_version(request.header("accept"))
    {
        return Some(aggregated(all, path == "/apis", version));
    }
    let value = match path {
        "" => json!({"paths": paths(all)}),
        "/version" => version(),
        "/api" => {
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
        }
        "/apis" => json!({
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": groups(all).into_iter().map(|name| group(all, name)).collect::<Vec<_>>(),
        }),
        "/api/v1" => resources(all, "", "v1"),
        path => {
            let rest = path.strip_prefix("/apis/")?;
            let (name, version) = rest.split_once('/').unwrap_or((rest, ""));
            let name = groups(all).into_iter().find(|known| *known == name)?;
            if version.is_empty() {
                let mut group = group(all, name);
                group["kind"] = json!("APIGroup");
                group["apiVersion"] = json!("v1");
                group
            } else {
                let mut known = versions(all, name).into_iter();
                resources(all, name, known.find(|known| *known == version)?)
            }
        }
    };
    Some(Response::object(200, &value))
}

/// The API groups besides the core group, in the order of their first resource.
pub(crate) fn groups(all: &[Resource]) -> Vec<&'static str> {
    let of_resources = all.iter().map(|resource| resource.group());
    let mut groups: Vec<&'static str> = Vec::new();
    for group in of_resources.chain(reviews::GROUPS) {
        if !group.is_empty() && !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

/// The versions of a group, the preferred one first.
fn versions(all: &[Resource], group: &str) -> Vec<&'static str> {
    let mut versions: Vec<&'static str> = Vec::new();
    for resource in all.iter().filter(|resource| resource.group() == group) {
        if !versions.contains(&resource.version()) {
            versions.push(resource.version());
        }
    }
    if versions.is_empty() {
        versions.push("v1");
    }
    versions
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

fn paths(all: &[Resource]) -> Vec<String> {
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
    let mut paths = fixed.map(str::to_owned).to_vec();
    for group in groups(all) {
        paths.push(format!("/apis/{group}"));
        let versions = versions(all, group).into_iter();
        paths.extend(versions.map(|version| format!("/apis/{group}/{version}")));
    }
    paths
}

fn group(all: &[Resource], name: &str) -> Value {
    let versions = versions(all, name).into_iter();
    let versions: Vec<Value> = versions
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "preferredVersion": versions[0], "versions": versions})
}

fn resources(all: &[Resource], group: &str, version: &str) -> Value {
    let mut entries: Vec<Value> = of_version(all, group, version).flat_map(entries).collect();
    entries.extend(reviews::entries(group));
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": entries,
    })
}

fn of_version(all: &[Resource], group: &str, version: &str) -> impl Iterator<Item = Resource> {
    let all = all.iter().copied();
    all.filter(move |resource| resource.group() == group && resource.version() == version)
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
        "name": resource.plural(), "singularName": resource.singular(),
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
    if !resource.categories().is_empty() {
        entry["categories"] = json!(resource.categories());
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
fn aggregated(all: &[Resource], is_groups: bool, version: &str) -> Response {
    let groups = if is_groups { groups(all) } else { vec![""] };
    let groups = groups.into_iter();
    let items: Vec<Value> = groups.map(|group| aggregated_group(all, group)).collect();
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

fn aggregated_group(all: &[Resource], group: &str) -> Value {
    let versions = versions(all, group).into_iter();
    let versions: Vec<Value> = versions
        .map(|version| {
            let resources = of_version(all, group, version).map(aggregated_resource);
            let resources: Vec<Value> = resources
                .chain(reviews::aggregated_entries(group))
                .collect();
            json!({"version": version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    let metadata = if group.is_empty() {
        json!({})
    } else {
        json!({"name": group})
    };
    json!({"metadata": metadata, "versions": versions})
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
        "singularResource": resource.singular(),
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
