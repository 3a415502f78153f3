//! OpenAPI for kubectl: the operations and their parameters, so that `apply` leaves validation to
//! the server, and kinds without their fields.
//!
//! DIFFERS: the API server's schemas take 700 KB for `apps/v1` alone. Here each kind is an object
//! with any fields, so `kubectl explain` shows none. The schemas also have no list merge rules;
//! kubectl has those of the built-in kinds.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Value, json};

use crate::exchange::{ApiRequest, Response, ResponseBody};
use crate::resource::Resource;

const VERSION: &str = "1.37";

/// The media type that Go clients accept for `/openapi/v2`.
const PROTOBUF_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The response to `/openapi/` followed by `rest`.
pub(crate) fn response(rest: &str, request: &ApiRequest, all: &[Resource]) -> Option<Response> {
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
        of_path.for_each(|resource| resource.kind().hash(&mut hash));
        let url = format!("/openapi/v3/{path}?hash={:x}", hash.finish());
        paths[path] = json!({"serverRelativeURL": url});
    }
    json!({"paths": paths})
}

fn path_of(resource: Resource) -> String {
    let prefix = if resource.group().is_empty() {
        "api"
    } else {
        "apis"
    };
    format!("{prefix}/{}", resource.api_version())
}

fn document(group_version: &str, all: &[Resource]) -> Option<Value> {
    let mut paths = json!({});
    let mut schemas = json!({});
    for resource in all.iter().copied() {
        if path_of(resource) == group_version {
            add_paths(resource, &mut paths);
            schemas[schema_name(resource)] = schema(resource);
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

fn schema(resource: Resource) -> Value {
    json!({
        "description": "The dev server keeps no schemas: this kind may have any members.",
        "type": "object",
        "x-kubernetes-group-version-kind": [kind_of(resource)],
        "x-kubernetes-preserve-unknown-fields": true,
    })
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
            operation["parameters"] = json!(names.map(query_parameter));
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

fn query_parameter(name: &str) -> Value {
    json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}})
}
