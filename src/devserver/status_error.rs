//! The server's errors: `Status` objects with the texts of kube-apiserver 1.37.

use std::fmt;

use serde::Serialize;

use crate::exchange::Response;
use crate::resource::Resource;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct StatusError(Box<Body>);

/// The `Status` object, its members in the API server's order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Body {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    metadata: ListMeta,
    status: &'static str,
    message: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    code: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct ListMeta {
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    continue_token: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<FieldError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u32>,
}

/// What is wrong with a field, or another cause of an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FieldError {
    reason: &'static str,
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    field: String,
}

impl FieldError {
    pub(crate) fn invalid(field: &str, value: impl Serialize, why: &str) -> Self {
        Self::invalid_text(field, &json_of(&value), why)
    }

    /// As [`Self::invalid`], with the invalid value as messages show it.
    pub(crate) fn invalid_text(field: &str, value: &str, why: &str) -> Self {
        let message = format!("Invalid value: {value}: {why}");
        Self::new("FieldValueInvalid", field, message)
    }

    pub(crate) fn negative(field: &str, value: impl Serialize) -> Self {
        Self::invalid(field, value, "must be greater than or equal to 0")
    }

    pub(crate) fn immutable(field: &str, value: impl Serialize) -> Self {
        Self::invalid(field, value, "field is immutable")
    }

    pub(crate) fn required(field: &str, why: &str) -> Self {
        let colon = if why.is_empty() { "" } else { ": " };
        let message = format!("Required value{colon}{why}");
        Self::new("FieldValueRequired", field, message)
    }

    pub(crate) fn forbidden(field: &str, why: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    pub(crate) fn too_long(field: &str, bytes_max: usize) -> Self {
        let message = format!("Too long: may not be more than {bytes_max} bytes");
        Self::new("FieldValueTooLong", field, message)
    }

    pub(crate) fn too_many(field: &str, n_entries: i64, max: i64) -> Self {
        let message = format!("Too many: {n_entries}: must have at most {max} items");
        Self::new("FieldValueTooMany", field, message)
    }

    pub(crate) fn duplicate(field: &str, value: impl Serialize) -> Self {
        let message = format!("Duplicate value: {}", json_of(&value));
        Self::new("FieldValueDuplicate", field, message)
    }

    pub(crate) fn not_found(field: &str, value: impl Serialize) -> Self {
        let message = format!("Not found: {}", json_of(&value));
        Self::new("FieldValueNotFound", field, message)
    }

    pub(crate) fn not_supported(field: &str, value: impl Serialize, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(json_of).collect();
        let (value, supported) = (json_of(&value), supported.join(", "));
        let message = format!("Unsupported value: {value}: supported values: {supported}");
        Self::new("FieldValueNotSupported", field, message)
    }

    pub(crate) fn field(&self) -> &str {
        &self.field
    }

    fn new(reason: &'static str, field: &str, message: String) -> Self {
        Self {
            reason,
            message,
            field: field.to_owned(),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

fn json_of(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("JSON values have text keys")
}

impl StatusError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Body {
            kind: "Status",
            api_version: "v1",
            metadata: ListMeta::default(),
            status: "Failure",
            message: message.into(),
            reason,
            details: None,
            code,
        }))
    }

    fn because(mut self, reason: &'static str, message: String, field: &str) -> Self {
        let details = self.0.details.get_or_insert_default();
        details.causes.push(FieldError::new(reason, field, message));
        self
    }

    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    /// An error about an object, whose message names the resource.
    fn of(code: u16, reason: &'static str, resource: Resource, name: &str, text: String) -> Self {
        Self::new(code, reason, text).about(name, resource.group(), resource.plural())
    }

    /// 404 for a path without a resource.
    pub(crate) fn no_such_path() -> Self {
        Self::absent("the server could not find the requested resource")
    }

    /// 404 for what this server does not have.
    pub(crate) fn absent(message: impl Into<String>) -> Self {
        Self::new(404, "NotFound", message).about("", "", "")
    }

    /// 405 for an action on a pod that needs a container.
    pub(crate) fn not_simulated(message: String) -> Self {
        Self::new(405, "MethodNotAllowed", message).about("", "", "")
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::not_simulated(message.to_owned())
    }

    pub(crate) fn not_found(resource: Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", resource.qualified_plural());
        Self::of(404, "NotFound", resource, name, message)
    }

    pub(crate) fn already_exists(resource: Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified_plural());
        Self::of(409, "AlreadyExists", resource, name, message)
    }

    /// 409: an object under deletion still has the name.
    pub(crate) fn still_exists(resource: Resource, name: &str) -> Self {
        let mut status = Self::already_exists(resource, name);
        status.0.message = format!("object is being deleted: {}", status.0.message);
        status
    }

    pub(crate) fn conflict(resource: Resource, name: &str, why: &str) -> Self {
        let message = unfulfilled(&resource.qualified_plural(), name, why);
        Self::of(409, "Conflict", resource, name, message)
    }

    /// A failed precondition of a delete, which names the kind instead of the resource.
    pub(crate) fn precondition(resource: Resource, name: &str, why: &str) -> Self {
        let message = unfulfilled(&resource.qualified_kind(), name, why);
        Self::new(409, "Conflict", message).about(name, resource.group(), resource.kind())
    }

    /// 409: the pod cannot be bound to a node.
    pub(crate) fn binding_conflict(name: &str, why: &str) -> Self {
        let message = unfulfilled("pods/binding", name, why);
        Self::new(409, "Conflict", message).about(name, "", "pods/binding")
    }

    pub(crate) fn modified(resource: Resource, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        Self::conflict(resource, name, why)
    }

    pub(crate) fn forbidden(resource: Resource, name: &str, why: &str) -> Self {
        let plural = resource.qualified_plural();
        let message = format!("{plural} \"{name}\" is forbidden: {why}");
        Self::of(403, "Forbidden", resource, name, message)
    }

    pub(crate) fn namespace_terminating(resource: Resource, name: &str, namespace: &str) -> Self {
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        Self::forbidden(resource, name, &why).because(
            "NamespaceTerminating",
            format!("namespace {namespace} is being terminated"),
            "metadata.namespace",
        )
    }

    /// INVARIANT: `errors` is not empty.
    pub(crate) fn invalid(resource: Resource, name: &str, errors: Vec<FieldError>) -> Self {
        Self::unprocessable(&resource.qualified_kind(), name, errors).about(
            name,
            resource.group(),
            resource.kind(),
        )
    }

    /// 422 from the generic checks, which name the resource instead of the kind.
    pub(crate) fn invalid_resource(resource: Resource, name: &str, error: FieldError) -> Self {
        Self::unprocessable(&resource.qualified_plural(), name, vec![error]).about(
            name,
            resource.group(),
            resource.plural(),
        )
    }

    /// 422 about what is no resource here: a `Scale`, or the options of a request.
    pub(crate) fn invalid_of(
        (group, kind): (&'static str, &'static str),
        name: &str,
        errors: Vec<FieldError>,
    ) -> Self {
        Self::unprocessable(&format!("{kind}.{group}"), name, errors).about(name, group, kind)
    }

    /// 422 about the query of a list or watch.
    pub(crate) fn invalid_list_options(error: FieldError) -> Self {
        Self::invalid_options("ListOptions", vec![error])
    }

    /// 422 about the options of a request, of a kind such as `CreateOptions`.
    pub(crate) fn invalid_options(kind: &'static str, errors: Vec<FieldError>) -> Self {
        Self::invalid_of(("meta.k8s.io", kind), "", errors)
    }

    /// 422 for a patch that produces an invalid object.
    pub(crate) fn invalid_patch(error: FieldError) -> Self {
        Self::unprocessable("", "", vec![error])
    }

    /// The message lists equal errors once; the causes list each of them.
    fn unprocessable(kind: &str, name: &str, errors: Vec<FieldError>) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for error in &errors {
            let text = error.to_string();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let why = match texts.as_slice() {
            [text] => text.clone(),
            texts => format!("[{}]", texts.join(", ")),
        };
        let message = format!("{kind} \"{name}\" is invalid: {why}");
        let mut status = Self::new(422, "Invalid", message);
        status.0.details.get_or_insert_default().causes = errors;
        status
    }

    fn about(mut self, name: &str, group: &'static str, kind: &'static str) -> Self {
        let details = self.0.details.take().unwrap_or_default();
        self.0.details = Some(Details {
            name: name.to_owned(),
            group,
            kind,
            ..details
        });
        self
    }

    /// 422 for JSON patch operations that fail on the object.
    pub(crate) fn patch_rejected() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(422, "Invalid", message).about("", "", "")
    }

    /// 429 for an eviction that a PodDisruptionBudget forbids.
    pub(crate) fn budget_exceeded(why: String, retry_after_seconds: u32) -> Self {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let mut status =
            Self::new(429, "TooManyRequests", message).because("DisruptionBudget", why, "");
        let details = status.0.details.get_or_insert_default();
        details.retry_after_seconds = Some(retry_after_seconds).filter(|it| *it > 0);
        status
    }

    pub(crate) fn too_many_operations(n_operations: usize) -> Self {
        let message =
            format!("The allowed maximum operations in a JSON patch is 10000, got {n_operations}");
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// 409 for fields that other managers applied; each conflict is a manager and a field.
    pub(crate) fn apply_conflict(message: String, conflicts: Vec<(String, String)>) -> Self {
        conflicts.into_iter().fold(
            Self::new(409, "Conflict", message),
            |status, (manager, field)| {
                let message = format!("conflict with {manager}");
                status.because("FieldManagerConflict", message, &field)
            },
        )
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 400 for an object that does not decode as its kind.
    pub(crate) fn not_handled_as(kind: &str, why: &str) -> Self {
        Self::bad_request(format!(
            "{kind} in version \"v1\" cannot be handled as a {kind}: {why}"
        ))
    }

    /// 500 for an unexpected error, as the API server sends it: without a reason.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    pub(crate) fn body_too_large() -> Self {
        let message = "Request entity too large: limit is 3145728";
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// 415 for protobuf of a kind that this server decodes only as JSON.
    pub(crate) fn unsupported_as_protobuf(kind: &str) -> Self {
        let message = format!(
            "this server does not read {kind} as protobuf - accepted media types include: \
             application/json (client-go sends it with ContentType in its rest.Config, \
             components of Kubernetes with --kube-api-content-type)"
        );
        Self::unsupported_media_type(message)
    }

    pub(crate) fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn unsupported_patch_type() -> Self {
        let message = "415: Unsupported Media Type";
        Self::unsupported_media_type(message).about("", "", "")
    }

    pub(crate) fn malformed_list_version(text: &str) -> Self {
        let why = malformed_version(text);
        Self::bad_request(format!("invalid resource version: {why}"))
    }

    /// 500 for a get or watch with a malformed resource version; without a reason.
    pub(crate) fn malformed_watch_version(text: &str) -> Self {
        Self::new(500, "", malformed_version(text))
    }

    /// 410 inside a watch.
    pub(crate) fn too_old(wanted: u64, oldest: u64) -> Self {
        let message = format!("too old resource version: {wanted} ({oldest})");
        Self::new(410, "Expired", message)
    }

    /// 410 for a list at an exact version.
    pub(crate) fn list_too_old() -> Self {
        let message = "The resourceVersion for the provided list is too old.";
        Self::new(410, "Expired", message)
    }

    /// 410 for a later page. `token` continues at the same key, in the current version.
    pub(crate) fn continue_too_old(token: String) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list \
                       result. You can start a new list without the continue parameter, or use \
                       the continue token in this response to retrieve the remainder of the \
                       results. Continuing with the provided token results in an inconsistent \
                       list - objects that were created, modified, or deleted between the time \
                       the first chunk was returned and now may show up in the list.";
        let mut status = Self::new(410, "Expired", message);
        status.0.metadata.continue_token = token;
        status
    }

    /// 504 for a version that the server has not reached.
    pub(crate) fn too_large_version(wanted: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        let cause = "Too large resource version".to_owned();
        let mut status =
            Self::new(504, "Timeout", message).because("ResourceVersionTooLarge", cause, "");
        status.0.details.get_or_insert_default().retry_after_seconds = Some(1);
        status
    }

    /// The watch frame with this error, which ends the watch.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let status = serde_json::to_string(self).expect("a status has text keys");
        format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n").into_bytes()
    }
}

impl From<StatusError> for Response {
    fn from(status: StatusError) -> Self {
        let response = Self::object(status.0.code, &status);
        match status
            .0
            .details
            .and_then(|details| details.retry_after_seconds)
        {
            Some(seconds) => response.with_header("retry-after", &seconds.to_string()),
            None => response,
        }
    }
}

fn malformed_version(text: &str) -> String {
    format!(
        "resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": \
         invalid syntax"
    )
}

fn unfulfilled(what: &str, name: &str, why: &str) -> String {
    format!("Operation cannot be fulfilled on {what} \"{name}\": {why}")
}
