//! The API itself: reads what a request asks for, has it done on the store, writes the answer.

use std::sync::Arc;

use serde_json::{Value, json};

use super::create::create;
use super::delete::{DeleteOptions, Deleted, delete};
use super::discovery;
use super::exchange::{Answer, ApiRequest, Handler};
use super::list::list;
use super::objects::text;
use super::patch;
use super::refusal::Refusal;
use super::resource::Resource;
use super::selector::Scope;
use super::store::{Object, State, Store, key_of};
use super::table;
use super::target::Target;
use super::update::{self, Part};
use super::watch::Watch;

/// Longest body (apiserver `pkg/server/config.go:MaxRequestBodyBytes`).
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";

/// Answers API requests from a store.
#[derive(Debug)]
pub(super) struct ApiServer {
    pub(super) store: Arc<Store>,
}

/// What a request with a name is about.
struct Named<'a> {
    resource: Resource,
    key: String,
    subresource: &'a str,
}

impl Handler for ApiServer {
    fn handle(&self, request: ApiRequest) -> Answer {
        self.answer(&request).unwrap_or_else(Answer::from)
    }
}

impl ApiServer {
    fn answer(&self, request: &ApiRequest) -> Result<Answer, Refusal> {
        if request.body.len() > BODY_BYTES_MAX {
            return Err(Refusal::body_too_large());
        }
        let Some(target) = request.target() else {
            return discovery::answer(&request.path).ok_or_else(Refusal::no_such_path);
        };
        let resource = Resource::find(&target.group, &target.version, &target.resource)
            .ok_or_else(Refusal::no_such_path)?;
        let Some(name) = &target.name else {
            return self.answer_collection(resource, &target, request);
        };
        if resource.is_namespaced() != target.namespace.is_some() {
            return Err(Refusal::no_such_path());
        }
        let named = Named {
            resource,
            key: key_of(target.namespace.as_deref(), name),
            subresource: target.subresource.as_deref().unwrap_or_default(),
        };
        if !named.subresource.is_empty() && !resource.subresources().contains(&named.subresource) {
            return Err(Refusal::no_such_path());
        }
        self.answer_named(&named, request)
    }

    fn answer_collection(
        &self,
        resource: Resource,
        target: &Target,
        request: &ApiRequest,
    ) -> Result<Answer, Refusal> {
        let namespace = target.namespace.as_deref();
        let scope = || {
            Scope::new(
                resource,
                namespace,
                request.query_value("labelSelector"),
                request.query_value("fieldSelector"),
            )
        };
        match request.method.as_str() {
            "GET" if request.is_watch() => {
                let store = Arc::clone(&self.store);
                let watch = Watch::new(store, resource, scope()?, request)?;
                Ok(Answer::stream(watch))
            }
            "GET" => {
                let answer = list(&self.store, resource, &scope()?, request)?;
                Ok(table::for_people(resource, request, answer))
            }
            "POST" if resource.is_namespaced() == namespace.is_some() => {
                let object = read_object(resource, request)?;
                let created = self
                    .store
                    .write(|state| create(state, resource, namespace, object))?;
                Ok(object_answer(201, resource, &created))
            }
            "DELETE" => self.delete_collection(resource, &scope()?, request),
            _ => Err(Refusal::method_not_allowed()),
        }
    }

    fn answer_named(&self, named: &Named<'_>, request: &ApiRequest) -> Result<Answer, Refusal> {
        let (resource, key) = (named.resource, named.key.as_str());
        let found = |object: &Object| object_answer(200, resource, object);
        match (request.method.as_str(), named.subresource) {
            ("GET", "" | "status") => {
                let object = self.store.read(|state| state.current(resource, key))?;
                Ok(table::for_people(resource, request, found(&object)))
            }
            ("GET", "scale") => {
                let object = self.store.read(|state| state.current(resource, key))?;
                Ok(Answer::object(200, &update::scale_of(resource, &object)))
            }
            ("PUT", "scale") => {
                let scale = read_body(request)?;
                self.scale(resource, |state| {
                    update::put_scale(state, resource, key, &scale)
                })
            }
            ("PUT", subresource) => {
                let object = read_object(resource, request)?;
                let part = part_of(subresource);
                let object = self
                    .store
                    .write(|state| update::put(state, resource, key, part, object))?;
                Ok(found(&object))
            }
            ("PATCH", subresource) => self.patch(named, subresource, request),
            ("DELETE", "") => self.delete(resource, key, request),
            ("POST", "binding") => {
                let binding = read_body(request)?;
                self.store
                    .write(|state| update::bind(state, key, &binding))?;
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                    "code": 201,
                });
                Ok(Answer::object(201, &status))
            }
            _ => Err(Refusal::method_not_allowed()),
        }
    }

    fn patch(
        &self,
        named: &Named<'_>,
        subresource: &str,
        request: &ApiRequest,
    ) -> Result<Answer, Refusal> {
        let is_strategic = match request.content_type() {
            STRATEGIC_MERGE_PATCH => true,
            MERGE_PATCH => false,
            _ => return Err(Refusal::unsupported_patch_type()),
        };
        let patch = read_body(request)?;
        let apply = |target: &mut Value| {
            if is_strategic {
                return patch::strategic_merge(target, &patch).map_err(Refusal::bad_request);
            }
            patch::json_merge(target, &patch);
            Ok(())
        };
        let (resource, key) = (named.resource, named.key.as_str());
        if subresource == "scale" {
            return self.scale(resource, |state| {
                let object = state.current(resource, key)?;
                let mut scale = update::scale_of(resource, &object);
                apply(&mut scale)?;
                update::put_scale(state, resource, key, &scale)
            });
        }
        let object = self.store.write(|state| {
            let object = state.current(resource, key)?;
            let mut value = object.value();
            apply(&mut value)?;
            strip_kind(&mut value);
            update::check_name(key, &value)?;
            update::replace(state, resource, &object, part_of(subresource), value)
        })?;
        Ok(object_answer(200, resource, &object))
    }

    fn scale(
        &self,
        resource: Resource,
        change: impl FnOnce(&mut State) -> Result<Object, Refusal>,
    ) -> Result<Answer, Refusal> {
        let object = self.store.write(change)?;
        Ok(Answer::object(200, &update::scale_of(resource, &object)))
    }

    fn delete(
        &self,
        resource: Resource,
        key: &str,
        request: &ApiRequest,
    ) -> Result<Answer, Refusal> {
        let options = read_delete_options(request)?;
        let deleted = self
            .store
            .write(|state| delete(state, resource, key, &options))?;
        Ok(match deleted {
            Deleted::Gone(object) if resource != Resource::Pods => {
                Answer::object(200, &success_of(resource, &object))
            }
            Deleted::Gone(object) | Deleted::Stays(object) => object_answer(200, resource, &object),
        })
    }

    fn delete_collection(
        &self,
        resource: Resource,
        scope: &Scope,
        request: &ApiRequest,
    ) -> Result<Answer, Refusal> {
        let options = read_delete_options(request)?;
        let answer = list(&self.store, resource, scope, request)?;
        self.store.write(|state| {
            let objects = state.of_namespace(resource, scope.namespace.as_deref());
            let objects = objects.filter(|object| scope.matches(object));
            let keys: Vec<Box<str>> = objects.map(|object| object.key.clone()).collect();
            for key in keys {
                // One that another one took along is gone already.
                if state.get(resource, &key).is_some() {
                    delete(state, resource, &key, &options)?;
                }
            }
            Ok(answer)
        })
    }
}

fn part_of(subresource: &str) -> Part {
    if subresource == "status" {
        Part::Status
    } else {
        Part::Main
    }
}

fn object_answer(code: u16, resource: Resource, object: &Object) -> Answer {
    let mut body = Vec::new();
    object.write_full(resource, &mut body);
    Answer::json(code, body)
}

/// What the API server says of an object that is gone, of most kinds.
fn success_of(resource: Resource, object: &Object) -> Value {
    let mut details = json!({
        "name": object.name(),
        "kind": resource.plural(),
        "uid": text(&object.value(), "/metadata/uid"),
    });
    if !resource.group().is_empty() {
        details["group"] = json!(resource.group());
    }
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details,
    })
}

fn read_body(request: &ApiRequest) -> Result<Value, Refusal> {
    let unrecognized = |why: &str| {
        Refusal::bad_request(format!(
            "the object provided is unrecognized: couldn't get version/kind; json parse error: \
             {why}"
        ))
    };
    let value: Value =
        serde_json::from_slice(&request.body).map_err(|error| unrecognized(&error.to_string()))?;
    if value.is_object() {
        return Ok(value);
    }
    Err(unrecognized("the body is no JSON object"))
}

/// The object in the body, without `kind` and `apiVersion`.
fn read_object(resource: Resource, request: &ApiRequest) -> Result<Value, Refusal> {
    if !matches!(request.content_type(), "" | "application/json") {
        return Err(Refusal::unsupported_object_type());
    }
    let mut object = read_body(request)?;
    let (kind, api_version) = (text(&object, "/kind"), text(&object, "/apiVersion"));
    let is_kind = matches!(kind, "") || kind == resource.kind();
    let is_version = matches!(api_version, "") || api_version == resource.api_version();
    if !is_kind || !is_version {
        return Err(Refusal::bad_request(format!(
            "{kind} in version \"{api_version}\" cannot be handled as a {}: unknown conversion",
            resource.kind()
        )));
    }
    strip_kind(&mut object);
    Ok(object)
}

fn strip_kind(object: &mut Value) {
    if let Some(map) = object.as_object_mut() {
        map.remove("kind");
        map.remove("apiVersion");
    }
}

fn read_delete_options(request: &ApiRequest) -> Result<DeleteOptions, Refusal> {
    let mut options = DeleteOptions::default();
    if !request.body.is_empty() {
        options = serde_json::from_slice(&request.body).map_err(|error| {
            Refusal::bad_request(format!("error decoding the body of the request: {error}"))
        })?;
    }
    if let Ok(seconds) = request.query_value("gracePeriodSeconds").parse() {
        options.grace_period_seconds = Some(seconds);
    }
    let policy = request.query_value("propagationPolicy");
    if !policy.is_empty() {
        options.propagation_policy = Some(policy.to_owned());
    }
    Ok(options)
}
