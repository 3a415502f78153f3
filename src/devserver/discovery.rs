//! Discovery data: health, version, discovery, plain and aggregated, with kube-apiserver 1.37's
//! responses for the resources served here, and OpenAPI for kubectl. Errors about what it does not
//! serve give the reason and the alternative, because kubectl shows them.
//!
//! DIFFERS: kube-apiserver answers an unknown group with a text page, and an unknown resource with
//! "the server could not find the requested resource". The schemas have no descriptions, and
//! no list merge rules; kubectl has those of the built-in kinds.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value, json};

use crate::exchange::{ApiRequest, Response, ResponseBody, Target};
use crate::json::{map_of, members};
use crate::resource::Resource;
use crate::reviews::{self, REVIEWS};
use crate::schema::{self, Kind, Many};
use crate::status_error::StatusError;

/// The emulated Kubernetes release.
const GIT_VERSION: &str = "v1.37.2";

/// The same for OpenAPI.
const VERSION: &str = "1.37";

/// The media type that Go clients accept for `/openapi/v2`.
const PROTOBUF_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The type of aggregated discovery. Clients before 1.30 know only another version of it, and use
/// plain discovery here.
const AGGREGATED: [&str; 3] = ["g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"];

/// The response to a path without a resource, on a server with these resources; `None` for an
/// unknown path.
pub(crate) fn response(request: &ApiRequest, all: &[Resource]) -> Option<Response> {
    let path = request.path.trim_end_matches('/');
    if matches!(path, "/healthz" | "/livez" | "/readyz") {
        return Some(Response::text(200, "ok"));
    }
    if let Some(rest) = path.strip_prefix("/openapi/") {
        return openapi(rest, request, all);
    }
    let is_aggregated = |kind: &str| {
        let has = |parameter: &str| kind.split(';').any(|part| part.trim() == parameter);
        AGGREGATED.into_iter().all(has)
    };
    if matches!(path, "/api" | "/apis") && request.header("accept").split(',').any(is_aggregated) {
        return Some(aggregated(all, path == "/apis"));
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
        "major": "1", "minor": "37", "gitVersion": GIT_VERSION, "gitCommit": "",
        "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "",
        "compiler": "", "platform": "linux/amd64",
    })
}

fn paths(all: &[Resource]) -> Vec<String> {
    let fixed = "/api /api/v1 /apis /healthz /livez /openapi/v2 /openapi/v3 /readyz /version";
    let mut paths: Vec<String> = fixed.split(' ').map(str::to_owned).collect();
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

/// The entries of an `APIResourceList`: each resource before its subresources.
fn entries(all: &[Resource], group: &str, version: &str) -> Vec<Value> {
    let all = all.iter().copied();
    let of_version = all.filter(|it| it.group() == group && it.version() == version);
    let reviews = REVIEWS.iter().filter(|review| review.0 == group);
    let reviews = reviews.map(|(_, kind, _)| {
        json!({
            "name": reviews::plural_of(kind), "singularName": kind.to_lowercase(),
            "namespaced": reviews::is_namespaced(kind), "kind": kind, "verbs": ["create"],
        })
    });
    of_version.flat_map(entries_of).chain(reviews).collect()
}

fn entries_of(resource: Resource) -> Vec<Value> {
    let row = resource.row();
    let subresource = |name: &String| {
        let (kind, verbs) = match name.as_str() {
            "scale" => (["autoscaling", "v1", "Scale"], "get patch update"),
            "binding" => (["", "", "Binding"], "create"),
            "eviction" => (["policy", "v1", "Eviction"], "create"),
            "log" => (["", "", "Pod"], "get"),
            "token" => ([reviews::GROUPS[1], "v1", "TokenRequest"], "create"),
            "finalize" => (["", "", resource.kind()], "update"),
            _ => (["", "", resource.kind()], "get patch update"),
        };
        let [group, version, kind] = kind;
        let mut entry = json!({
            "name": format!("{}/{name}", row.plural), "singularName": "",
            "namespaced": row.is_namespaced, "kind": kind,
            "verbs": verbs.split(' ').collect::<Vec<_>>(),
        });
        if !group.is_empty() {
            entry["group"] = json!(group);
            entry["version"] = json!(version);
        }
        entry
    };
    let verbs = "create delete deletecollection get list patch update watch".split(' ');
    let verbs =
        verbs.filter(|verb| *verb != "deletecollection" || resource.has_delete_collection());
    let mut entry = json!({
        "name": row.plural, "singularName": row.singular, "namespaced": row.is_namespaced,
        "kind": row.kind, "verbs": verbs.collect::<Vec<_>>(),
    });
    for (what, names) in [
        ("shortNames", &row.short_names),
        ("categories", &row.categories),
    ] {
        if !names.is_empty() {
            entry[what] = json!(names);
        }
    }
    let subresources = row.subresources.iter().map(subresource);
    [entry].into_iter().chain(subresources).collect()
}

/// The entry in the form of aggregated discovery.
fn aggregated_entry(entry: &Value) -> Value {
    let of = |name: &str| entry[name].as_str().unwrap_or_default();
    let mut aggregated = json!({
        "verbs": entry["verbs"],
        "responseKind": {"group": of("group"), "version": of("version"), "kind": of("kind")},
    });
    if let Some((_, name)) = of("name").split_once('/') {
        aggregated["subresource"] = json!(name);
        return aggregated;
    }
    let is_namespaced = entry["namespaced"] == true;
    aggregated["resource"] = entry["name"].clone();
    aggregated["singularResource"] = entry["singularName"].clone();
    aggregated["scope"] = json!(if is_namespaced {
        "Namespaced"
    } else {
        "Cluster"
    });
    for names in ["shortNames", "categories"] {
        if let Some(found) = entry.get(names) {
            aggregated[names] = found.clone();
        }
    }
    aggregated
}

fn resources(all: &[Resource], group: &str, version: &str) -> Value {
    json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": group_version(group, version), "resources": entries(all, group, version),
    })
}

fn group_version(group: &str, version: &str) -> String {
    match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    }
}

/// All groups (or, for `/api`, the core group) with their resources in one response.
fn aggregated(all: &[Resource], is_groups: bool) -> Response {
    let groups = if is_groups { groups(all) } else { vec![""] };
    let groups = groups.into_iter();
    let items: Vec<Value> = groups.map(|group| aggregated_group(all, group)).collect();
    let list = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    });
    let mut response = Response::object(200, &list);
    response.content_type = format!("application/json;{}", AGGREGATED.join(";"));
    response
}

fn aggregated_group(all: &[Resource], group: &str) -> Value {
    let versions = versions(all, group).into_iter();
    let versions: Vec<Value> = versions
        .map(|version| {
            let mut resources: Vec<Value> = Vec::new();
            for entry in entries(all, group, version).iter().map(aggregated_entry) {
                match resources
                    .last_mut()
                    .filter(|_| entry.get("subresource").is_some())
                {
                    Some(resource) => match &mut resource["subresources"] {
                        Value::Array(list) => list.push(entry),
                        none => *none = json!([entry]),
                    },
                    None => resources.push(entry),
                }
            }
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

/// The response to `/openapi/` followed by `rest`.
fn openapi(rest: &str, request: &ApiRequest, all: &[Resource]) -> Option<Response> {
    match rest {
        "v2" if request.header("accept").contains("spec.v2") => {
            let mut response = Response::text(200, "");
            PROTOBUF_V2.clone_into(&mut response.content_type);
            response.body = ResponseBody::Whole(empty_document());
            Some(response)
        }
        "v2" => Some(Response::object(
            200,
            &json!({
                "swagger": "2.0", "info": {"title": "Kubernetes", "version": VERSION},
                "paths": {}, "definitions": {},
            }),
        )),
        "v3" => Some(Response::object(200, &root(all))),
        rest => {
            let group_version = rest.strip_prefix("v3/")?;
            let document = document(group_version, all)?;
            Some(Response::object(200, &document))
        }
    }
}

/// An `openapi.v2.Document` without definitions, as protobuf: `swagger = 1`, `info = 2` with
/// `title = 1` and `version = 2`, and an empty `paths = 8`.
fn empty_document() -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| {
        let length = u8::try_from(bytes.len()).expect("these are short");
        let mut field = vec![number << 3 | 2, length];
        field.extend_from_slice(bytes);
        field
    };
    let mut info = field(1, b"Kubernetes");
    info.extend(field(2, VERSION.as_bytes()));
    [field(1, b"2.0"), field(2, &info), field(8, b"")].concat()
}

fn root(all: &[Resource]) -> Value {
    let mut paths = json!({});
    for resource in all {
        let path = path_of(*resource);
        // Clients cache a document until its hash changes.
        let mut hash = DefaultHasher::new();
        env!("CARGO_PKG_VERSION").hash(&mut hash);
        let of_path = all.iter().filter(|resource| path_of(**resource) == path);
        of_path.for_each(|it| (it.kind(), it.row().schema.to_string()).hash(&mut hash));
        let url = format!("/openapi/v3/{path}?hash={:x}", hash.finish());
        paths[path] = json!({"serverRelativeURL": url});
    }
    json!({"paths": paths})
}

fn path_of(resource: Resource) -> String {
    let prefix = match resource.group() {
        "" => "api",
        _ => "apis",
    };
    format!("{prefix}/{}", resource.api_version())
}

fn document(group_version: &str, all: &[Resource]) -> Option<Value> {
    let mut paths = json!({});
    let mut schemas = json!({});
    for resource in all.iter().copied() {
        if path_of(resource) == group_version {
            add_paths(resource, &mut paths);
            let schema = schema(resource, &mut schemas);
            schemas[schema_name(resource)] = schema;
        }
    }
    let is_served = schemas != json!({});
    is_served.then(|| {
        json!({
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": VERSION},
            "paths": paths,
            "components": {"schemas": schemas},
        })
    })
}

fn schema_name(resource: Resource) -> String {
    let group = match resource.group() {
        "" => "core",
        group => group.split('.').next().unwrap_or(group),
    };
    let (version, kind) = (resource.version(), resource.kind());
    format!("io.k8s.api.{group}.{version}.{kind}")
}

/// The schema of a kind; those of its parts go into `schemas`.
fn schema(resource: Resource, schemas: &mut Value) -> Value {
    let kind = schema::type_named(&resource.api_version(), resource.kind());
    let mut own = if let Some(kind) = kind.filter(|_| !resource.is_custom()) {
        add_schema(kind, schemas);
        schemas[kind].clone()
    } else {
        add_schema("ObjectMeta", schemas);
        let mut own = resource.row().schema.clone();
        if !own.is_object() {
            own = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        }
        let properties = map_of(&mut own, "properties");
        for name in ["apiVersion", "kind"] {
            properties.insert(name.to_owned(), json!({"type": "string"}));
        }
        properties.insert("metadata".to_owned(), reference("ObjectMeta"));
        own
    };
    own["x-kubernetes-group-version-kind"] = json!([kind_of(resource)]);
    own
}

fn reference(kind: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{kind}")})
}

/// Adds the schemas of a type, and of the types of its fields.
fn add_schema(kind: &'static str, schemas: &mut Value) {
    if !schemas[kind].is_null() {
        return;
    }
    // A type may contain itself.
    schemas[kind] = json!({"type": "object"});
    let mut properties = Map::new();
    for member in schema::fields_of(kind) {
        let mut one = match member.kind {
            Kind::Message(inner) => {
                add_schema(inner, schemas);
                reference(inner)
            }
            Kind::Int32 | Kind::Int64 => json!({"type": "integer"}),
            Kind::Float => json!({"type": "number"}),
            Kind::Bool => json!({"type": "boolean"}),
            Kind::Raw | Kind::SchemaOrBool | Kind::SchemaOrArray | Kind::SchemaOrTexts => {
                json!({"type": "object"})
            }
            Kind::Texts => json!({"type": "array", "items": {"type": "string"}}),
            Kind::IntOrString => {
                schemas["IntOrString"] = json!({
                    "format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}],
                });
                reference("IntOrString")
            }
            Kind::Quantity => {
                schemas["Quantity"] = json!({"oneOf": [{"type": "string"}, {"type": "number"}]});
                reference("Quantity")
            }
            Kind::Time | Kind::MicroTime => json!({"type": "string", "format": "date-time"}),
            Kind::Text | Kind::Bytes => json!({"type": "string"}),
        };
        match (member.kind, member.many) {
            // Its fields are those of this type.
            (Kind::Message(inner), _) if member.name.is_empty() => {
                let fields = members(&schemas[inner], "/properties");
                properties.extend(fields.map(|(name, value)| (name.clone(), value.clone())));
                continue;
            }
            (_, Many::One) => {}
            (_, Many::List) => one = json!({"type": "array", "items": one}),
            (_, Many::Map) => one = json!({"type": "object", "additionalProperties": one}),
        }
        properties.insert(member.name.to_owned(), one);
    }
    schemas[kind]["properties"] = Value::Object(properties);
}

fn kind_of(resource: Resource) -> Value {
    json!({"group": resource.group(), "kind": resource.kind(), "version": resource.version()})
}

fn add_paths(resource: Resource, paths: &mut Value) {
    let namespace = if resource.is_namespaced() {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    let collection = format!("/{}{namespace}/{}", path_of(resource), resource.plural());
    let operation = |action: &str, writes: bool| {
        let mut operation = json!({
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind_of(resource),
            "responses": {"200": {"description": "OK"}},
        });
        if writes {
            let names = ["dryRun", "fieldManager", "fieldValidation"];
            let schema = json!({"type": "string", "uniqueItems": true});
            let parameter = |name| json!({"name": name, "in": "query", "schema": schema});
            operation["parameters"] = json!(names.map(parameter));
        }
        operation
    };
    paths[format!("{collection}/{{name}}")] = json!({
        "get": operation("get", false),
        "put": operation("put", true),
        "patch": operation("patch", true),
        "delete": operation("delete", false),
    });
    paths[collection] = json!({
        "get": operation("list", false),
        "post": operation("post", true),
    });
}

pub(crate) fn absent_resource(target: &Target, all: &[Resource]) -> StatusError {
    let Target { group, version, .. } = target;
    let is_of_group = |resource: &&Resource| resource.group() == group;
    let of_group: Vec<&Resource> = all.iter().filter(is_of_group).collect();
    if of_group.is_empty() {
        return absent_group(group, all);
    }
    let of_version = of_group.iter().filter(|known| known.version() == version);
    let known: Vec<&str> = of_version.map(|known| known.plural()).collect();
    let group_version = group_version(group, version);
    if known.is_empty() {
        let version = of_group[0].api_version();
        return StatusError::absent(format!(
            "the dev server does not serve {group_version}, but {version}"
        ));
    }
    StatusError::absent(format!(
        "the dev server has no {} in {group_version}; it has {}",
        target.resource,
        known.join(", ")
    ))
}

fn absent_group(name: &str, all: &[Resource]) -> StatusError {
    let groups = groups(all).join(", ");
    StatusError::absent(format!(
        "the dev server has no group {name}; it has the core group, {groups}, and those defined by \
         CustomResourceDefinitions"
    ))
}

/// The error for a path of the API that names no resource.
pub(crate) fn absent_path(path: &str, all: &[Resource]) -> StatusError {
    let mut segments = path.trim_matches('/').split('/');
    match (segments.next(), segments.next()) {
        (Some("apis"), Some(name)) if !groups(all).contains(&name) => absent_group(name, all),
        _ => StatusError::absent(format!("the dev server does not serve {path}")),
    }
}

pub(crate) fn absent_subresource(resource: Resource, name: &str) -> StatusError {
    let lack = match (resource, name) {
        (Resource::Pods, "exec") => "no command can run in one",
        (Resource::Pods, "attach") => "there is nothing to attach to",
        (Resource::Pods, "portforward" | "proxy") => "no port is open",
        _ => {
            let plural = resource.plural();
            return StatusError::absent(match resource.subresources() {
                [] => format!("the dev server has no subresources of {plural}"),
                known => format!(
                    "the dev server has no {plural}/{name}; the subresources of {plural} are {}",
                    known.join(", ")
                ),
            });
        }
    };
    StatusError::not_simulated(format!(
        "the dev server simulates pods, without containers: {lack}"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::to_value;

    use super::{Resource, StatusError, Target, absent_path, absent_resource, absent_subresource};

    #[track_caller]
    fn check(error: &StatusError, expected: &str) {
        let status = to_value(error).expect("a status");
        let message = status["message"].as_str().unwrap_or_default();
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn errors_name_the_alternatives() {
        let all: Vec<Resource> = Resource::KNOWN.to_vec();
        let of = |path: &str| absent_resource(&Target::parse(path).expect("a resource"), &all);
        check(
            &of("/apis/example.com/v1/widgets"),
            "no group example.com; it has the core group, apps, coordination.k8s.io, ",
        );
        check(&of("/apis/apps/v2/replicasets"), "apps/v2, but apps/v1");
        check(
            &of("/apis/apps/v1/foos"),
            "no foos in apps/v1; it has replicasets",
        );
        check(
            &absent_path("/apis/example.com", &all),
            "no group example.com; ",
        );
        check(
            &absent_path("/api/v1/a/b/c/d/e", &all),
            "does not serve /api/v1/a/b",
        );
        check(
            &absent_subresource(Resource::Nodes, "proxy"),
            "no nodes/proxy; the subresources of nodes are status",
        );
        check(
            &absent_subresource(Resource::Pods, "exec"),
            "no command can run in one",
        );
    }
}
