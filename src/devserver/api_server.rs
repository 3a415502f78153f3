//! The API: parses a request, runs it on the store and builds the response.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::body::{DeleteOptions, WriteOptions};
use crate::delete::{Deleted, delete};
use crate::exchange::{ApiCall, ApiRequest, Handler, Response, Target};
use crate::json::{number, text};
use crate::list::{check_match, list, parse_version};
use crate::patch::Patch;
use crate::resource::Resource;
use crate::selector::{Scope, selector_text};
use crate::status_error::{FieldError, StatusError};
use crate::store::{Object, State, Store, key_of};
use crate::table::Form;
use crate::watch::Watch;
use crate::write::Part;
use crate::{apply, body, discovery, quota, reviews, structural, subresources, write};

/// Maximum bytes of a body (apiserver `pkg/server/config.go:MaxRequestBodyBytes`).
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct ApiServer {
    pub(crate) store: Arc<Store>,
}

struct Named<'a> {
    resource: Resource,
    namespace: Option<&'a str>,
    key: String,
    subresource: &'a str,
}

impl Handler for ApiServer {
    fn handle(&self, request: ApiRequest) -> Response {
        self.serve(&request).unwrap_or_else(Response::from)
    }
}

impl ApiServer {
    fn serve(&self, request: &ApiRequest) -> Result<Response, StatusError> {
        if request.body.len() > BODY_BYTES_MAX {
            return Err(StatusError::body_too_large());
        }
        let Some(target) = request.target() else {
            let all = self.resources();
            return match discovery::response(request, &all) {
                Some(response) => Ok(response),
                None if request.path.starts_with("/api") => {
                    Err(discovery::absent_path(&request.path, &all))
                }
                None => Ok(Response::text(404, "404 page not found\n")),
            };
        };
        let review = |state: &State| reviews::response(state, &target, request);
        if let Some(response) = self.store.read(review) {
            return response;
        }
        let resource = self.find(&target)?;
        // A watch applies the form to each frame; other responses get it here.
        let form = if request.is_watch() {
            Form::Whole
        } else {
            Form::requested_by(request)?
        };
        let Some(name) = &target.name else {
            let response = self.serve_collection(resource, &target, request)?;
            return Ok(form.convert(resource, response));
        };
        if resource.is_namespaced() != target.namespace.is_some() {
            return Err(StatusError::no_such_path());
        }
        let named = Named {
            resource,
            namespace: target.namespace.as_deref(),
            key: key_of(target.namespace.as_deref(), name),
            subresource: target.subresource.as_deref().unwrap_or_default(),
        };
        match named.subresource {
            "scale" if resource.has_subresource("scale") => self.serve_scale(&named, request),
            "" => Ok(form.convert(resource, self.serve_named(&named, request)?)),
            subresource if resource.has_subresource(subresource) => {
                self.serve_named(&named, request)
            }
            subresource => Err(discovery::absent_subresource(resource, subresource)),
        }
    }

    fn resources(&self) -> Vec<Resource> {
        self.store.read(|state| state.resources().collect())
    }

    fn find(&self, target: &Target) -> Result<Resource, StatusError> {
        let (group, version) = (target.group.as_str(), target.version.as_str());
        let plural = target.resource.as_str();
        let built_in = Resource::find(group, version, plural);
        let found = built_in.or_else(|| {
            self.store.read(|state| {
                let mut served = state.custom.served();
                served.find(|resource| resource.is_at(group, version, plural))
            })
        });
        found.ok_or_else(|| discovery::absent_resource(target, &self.resources()))
    }

    /// Warnings about a new object: what this server does not do with it.
    fn warnings(&self, resource: Resource, object: &Object) -> Vec<String> {
        let mut warnings = warnings_of_change(resource, object);
        let without = resource.row().idle_without.as_str();
        let acts = self.store.read(|state| {
            let mut controllers = state.settings.controllers.iter();
            without.is_empty() || controllers.any(|name| name == without)
        });
        if acts {
            return warnings;
        }
        let but = match without {
            "webhooks" => "does not call webhooks",
            _ => "runs no controller for them",
        };
        warnings.push(format!(
            "the dev server stores {} but {but}",
            resource.plural()
        ));
        warnings
    }

    /// Applies a change, or only tries it for a dry run.
    fn change<T>(&self, dry_run: bool, change: impl FnOnce(&mut State) -> T) -> T {
        if dry_run {
            self.store.dry_run(change)
        } else {
            self.store.write(change)
        }
    }

    fn serve_collection(
        &self,
        resource: Resource,
        target: &Target,
        request: &ApiRequest,
    ) -> Result<Response, StatusError> {
        let namespace = target.namespace.as_deref();
        if namespace.is_some() && !resource.is_namespaced() {
            return Err(StatusError::no_such_path());
        }
        let scope = || {
            // All query parameters must parse before any takes effect.
            body::number(request, "limit")?;
            body::number(request, "timeoutSeconds")?;
            Scope::new(
                resource,
                namespace,
                request.query_value("labelSelector"),
                request.query_value("fieldSelector"),
                || {
                    if request.verb() == "list" {
                        return check_match(request);
                    }
                    Ok(())
                },
            )
        };
        match request.method.as_str() {
            // Java's fabric8 asks for a WebSocket first; after this it watches by plain HTTP.
            "GET"
                if request.is_watch()
                    && request.header("upgrade").eq_ignore_ascii_case("websocket") =>
            {
                Ok(Response::text(200, ""))
            }
            "GET" if request.is_watch() => {
                let store = Arc::clone(&self.store);
                let watch = Watch::new(store, resource, scope()?, request)?;
                Ok(Response::stream(watch))
            }
            "GET" => list(&self.store, resource, &scope()?, request),
            "POST" if resource.is_namespaced() == namespace.is_some() => {
                let options = WriteOptions::read(request)?;
                let object = body::object(resource, request)?;
                let kept = resource.kept_as();
                let unknown = options.unknown_fields_of_body(kept, &object)?;
                let created = self.change(options.dry_run, |state| {
                    write::create_managed(state, kept, namespace, object, |object| {
                        apply::first_managers(kept, object, &options.manager)
                    })
                })?;
                let warnings = self.warnings(resource, &created);
                let response = object_response(201, resource, &created);
                Ok(with_warnings(response, &[warnings, unknown].concat()))
            }
            "DELETE" if resource.has_delete_collection() => {
                self.delete_collection(resource, &scope()?, request)
            }
            _ => Err(StatusError::method_not_allowed()),
        }
    }

    fn serve_named(
        &self,
        named: &Named<'_>,
        request: &ApiRequest,
    ) -> Result<Response, StatusError> {
        let (resource, key) = (named.resource, named.key.as_str());
        match (request.method.as_str(), named.subresource) {
            ("GET", "" | "status") => {
                let version = request.query_value("resourceVersion");
                if parse_version(version).is_none() {
                    return Err(StatusError::malformed_watch_version(version));
                }
                let object = self.store.read(|state| state.current(resource, key))?;
                Ok(object_response(200, resource, &object))
            }
            ("PUT", "" | "status" | "finalize") => {
                let options = WriteOptions::read(request)?;
                let object = body::object(resource, request)?;
                let kept = resource.kept_as();
                let unknown = options.unknown_fields_of_body(kept, &object)?;
                write::check_name(key, &object)?;
                let part = part_of(named.subresource);
                let object = self.change(options.dry_run, |state| {
                    write::put(state, kept, key, part, object, |old, new| {
                        apply::managers_after(kept, old, new, part, &options.manager)
                    })
                })?;
                Ok(changed_response(resource, &object, unknown))
            }
            ("GET", "log") => {
                let pod = self.store.read(|state| state.current(resource, key))?;
                subresources::log(&pod, request)
            }
            ("POST", "token") => {
                let wanted = body::unstored_object(request, "TokenRequest")?;
                self.store.read(|state| reviews::token(state, key, wanted))
            }
            ("POST", "eviction") => {
                let options = WriteOptions::read(request)?;
                let eviction = body::any_object(request, "Eviction")?;
                let of_body = crate::json::entries(&eviction, "/deleteOptions/dryRun");
                let is_dry_run = options.dry_run || !of_body.is_empty();
                self.change(is_dry_run, |state| {
                    subresources::evict(state, key, &eviction)
                })?;
                Ok(Response::object(201, &success()))
            }
            ("PATCH", "" | "status") => self.patch(named, request),
            ("DELETE", "") => self.delete(resource, key, request),
            ("POST", "binding") => {
                let options = WriteOptions::read(request)?;
                let binding = body::any_object(request, "Binding")?;
                self.change(options.dry_run, |state| write::bind(state, key, &binding))?;
                Ok(Response::object(201, &success()))
            }
            _ => Err(StatusError::method_not_allowed()),
        }
    }

    fn patch(&self, named: &Named<'_>, request: &ApiRequest) -> Result<Response, StatusError> {
        let patch = Patch::read(request)?;
        let options = WriteOptions::read(request)?;
        let (resource, key) = (named.resource, named.key.as_str());
        if resource.is_custom() && matches!(patch, Patch::Strategic(_)) {
            return Err(StatusError::unsupported_patch_type());
        }
        let part = part_of(named.subresource);
        if let Patch::Apply(config) = patch {
            let params = apply::ApplyParams {
                resource,
                namespace: named.namespace,
                key,
                part,
                manager: &options.manager,
                force: options.force,
            };
            let applied = self.change(options.dry_run, |state| {
                apply::apply(state, &params, config)
            })?;
            let response = |code| object_response(code, resource, &applied.object);
            return Ok(if applied.is_new {
                with_warnings(response(201), &self.warnings(resource, &applied.object))
            } else {
                response(200)
            });
        }
        let (object, unknown) = self.change(options.dry_run, |state| {
            let object = state.current(resource, key)?;
            let old = object.value();
            let new = patch.changed(resource, resource.to_served(old.clone()))?;
            let new = resource.to_stored(new);
            let kept = resource.kept_as();
            let error_of = |why: &str| patch.unprocessable(why);
            let unknown = options.unknown_fields(kept, Some(&old), &new, error_of)?;
            write::check_name(key, &new)?;
            let object = write::replace_managed(state, kept, &object, part, new, |old, new| {
                apply::managers_after(kept, old, new, part, &options.manager)
            })?;
            Ok((object, unknown))
        })?;
        Ok(changed_response(resource, &object, unknown))
    }

    fn serve_scale(
        &self,
        named: &Named<'_>,
        request: &ApiRequest,
    ) -> Result<Response, StatusError> {
        let (resource, key) = (named.resource, named.key.as_str());
        let current = |state: &State| state.current(resource, key);
        if request.method == "GET" {
            let object = self.store.read(current)?;
            return Ok(Response::object(200, &scale_of(resource, &object)));
        }
        let patch = match request.method.as_str() {
            "PUT" => None,
            "PATCH" => Some(Patch::read(request)?),
            _ => return Err(StatusError::method_not_allowed()),
        };
        let options = WriteOptions::read(request)?;
        let whole = patch.is_none().then(|| body::any_object(request, "Scale"));
        let whole = whole.transpose()?;
        let object = self.change(options.dry_run, |state| {
            let mut scale = match whole {
                Some(whole) => whole,
                None => scale_of(resource, &current(state)?),
            };
            if let Some(patch) = patch {
                patch.change(&mut scale)?;
            }
            put_scale(state, resource, key, &scale, &options.manager)
        })?;
        Ok(Response::object(200, &scale_of(resource, &object)))
    }

    fn delete(
        &self,
        resource: Resource,
        key: &str,
        request: &ApiRequest,
    ) -> Result<Response, StatusError> {
        let options = DeleteOptions::read(request)?;
        let is_dry_run = !options.dry_run.is_empty();
        let kept = resource.kept_as();
        let deleted = self.change(is_dry_run, |state| delete(state, kept, key, &options))?;
        Ok(match deleted {
            Deleted::Gone(object) if !resource.delete_returns_object() => {
                Response::object(200, &success_of(resource, &object))
            }
            Deleted::Gone(object) | Deleted::Stays(object) => {
                object_response(200, resource, &object)
            }
        })
    }

    fn delete_collection(
        &self,
        resource: Resource,
        scope: &Scope,
        request: &ApiRequest,
    ) -> Result<Response, StatusError> {
        let options = DeleteOptions::read(request)?;
        let response = list(&self.store, resource, scope, request)?;
        self.change(!options.dry_run.is_empty(), |state| {
            let objects = state.of_namespace(resource, scope.namespace.as_deref());
            let objects = objects.filter(|object| scope.matches(object));
            let keys: Vec<Box<str>> = objects.map(|object| object.key.clone()).collect();
            for key in keys {
                delete(state, resource.kept_as(), &key, &options)?;
            }
            Ok(response)
        })
    }
}

fn part_of(subresource: &str) -> Part {
    match subresource {
        "status" => Part::Status,
        "finalize" => Part::Finalizers,
        _ => Part::Main,
    }
}

fn object_response(code: u16, resource: Resource, object: &Object) -> Response {
    let mut body = Vec::new();
    object.write_full(resource, &mut body);
    Response::json(code, body)
}

fn changed_response(resource: Resource, object: &Object, unknown: Vec<String>) -> Response {
    let warnings = [warnings_of_change(resource, object), unknown].concat();
    with_warnings(object_response(200, resource, object), &warnings)
}

/// Warnings that apply to created and changed objects.
fn warnings_of_change(resource: Resource, object: &Object) -> Vec<String> {
    let lacks = match resource {
        Resource::Definitions if structural::has_rules(&object.value()["spec"]) => {
            "does not evaluate x-kubernetes-validations"
        }
        Resource::Quotas if quota::has_scopes(&object.value()) => {
            "does not enforce a quota with scopes"
        }
        _ => return Vec::new(),
    };
    vec![format!("the dev server {lacks}")]
}

/// Adds a warning header for each text (apiserver
/// `pkg/endpoints/handlers/rest.go:addStrictDecodingWarnings`).
fn with_warnings(response: Response, texts: &[String]) -> Response {
    texts.iter().fold(response, |response, text| {
        response.with_header("warning", &format!("299 - {}", json!(text)))
    })
}

/// The `Status` for a successful request without an object.
fn success() -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    })
}

/// The `Success` status for a removed object, as most kinds return it.
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

pub(crate) fn scale_of(resource: Resource, object: &Object) -> Value {
    let value = object.value();
    let metadata = &value["metadata"];
    let paths = &resource.row().scale;
    // The API server omits `replicas: 0`.
    let spec = match number(&value, &paths.spec_replicas).unwrap_or(0) {
        0 => json!({}),
        replicas => json!({"replicas": replicas}),
    };
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": spec,
        "status": {
            "replicas": number(&value, &paths.status_replicas).unwrap_or(0),
            "selector": selector_text(resource, &value),
        },
    })
}

/// Sets the number at `pointer`, and the maps that lead to it.
fn set_number(object: &mut Value, pointer: &str, number: i64) {
    let mut place = object;
    for name in pointer.split('/').skip(1) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[name];
    }
    *place = json!(number);
}

/// Applies a `Scale` on behalf of the field manager `manager`; returns the updated object.
pub(crate) fn put_scale(
    state: &mut State,
    resource: Resource,
    key: &str,
    scale: &Value,
    manager: &str,
) -> Result<Object, StatusError> {
    let object = state.current(resource, key)?;
    let uid = text(scale, "/metadata/uid");
    let mut new = object.value();
    if !uid.is_empty() && uid != text(&new, "/metadata/uid") {
        return Err(StatusError::conflict(
            resource,
            object.name(),
            "the UID differs",
        ));
    }
    let replicas = number(scale, "/spec/replicas").unwrap_or(0);
    if i32::try_from(replicas).is_err() {
        return Err(StatusError::bad_request(format!(
            "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal number \
             {replicas} into Go struct field ScaleSpec.spec.replicas of type int32"
        )));
    }
    if replicas < 0 {
        let error = FieldError::negative("spec.replicas", replicas);
        let kind = ("autoscaling", "Scale");
        return Err(StatusError::invalid_of(kind, object.name(), vec![error]));
    }
    new["metadata"]["resourceVersion"] = match text(scale, "/metadata/resourceVersion") {
        "" => json!(object.version.to_string()),
        version => json!(version),
    };
    set_number(&mut new, &resource.row().scale.spec_replicas, replicas);
    write::replace_managed(state, resource, &object, Part::Scale, new, |old, new| {
        apply::managers_after(resource, old, new, Part::Scale, manager)
    })
}
