//! Decodes request bodies: objects and patches as JSON, YAML or protobuf, and delete options. An
//! invalid body gets the API server's error.

use serde_json::Value;

use crate::api::protobuf::MEDIA_TYPE;
use crate::delete::DeleteOptions;
use crate::exchange::ApiRequest;
use crate::objects::text;
use crate::patch::depth_of;
use crate::protobuf::DecodeError;
use crate::resource::Resource;
use crate::status_error::StatusError;
use crate::{protobuf, schema};

const YAML: &str = "application/yaml";

/// Maximum nesting depth of a stored object. This server parses JSON to 128 levels, and lists,
/// tables and managed fields add some levels around an object.
///
/// DIFFERS: Go parses 10,000 levels.
const DEPTH_MAX: usize = 100;

/// Decodes the object in the body, without `kind` and `apiVersion`.
pub(crate) fn object(resource: Resource, request: &ApiRequest) -> Result<Value, StatusError> {
    let mut object = any_object(request, resource.kind())?;
    check_kind(resource, &object)?;
    schema::check(resource, &object).map_err(|why| StatusError::not_handled_as(resource, &why))?;
    strip_kind(&mut object);
    Ok(object)
}

/// Decodes the object in the body, of any kind; error messages name the kind `expected`.
pub(crate) fn any_object(request: &ApiRequest, expected: &str) -> Result<Value, StatusError> {
    let body = &request.body;
    let unrecognized = |why: &str| {
        StatusError::bad_request(format!(
            "the object provided is unrecognized (must be of type {expected}): couldn't get \
             version/kind; json parse error: {why}"
        ))
    };
    let value = match request.content_type() {
        "" | "application/json" => {
            serde_json::from_slice(body).map_err(|error| unrecognized(&error.to_string()))?
        }
        YAML => yaml(body)?,
        MEDIA_TYPE => protobuf::read(body).map_err(|error| match error {
            DecodeError::UnknownKind(kind) => StatusError::unsupported_as_protobuf(&kind),
            DecodeError::UnknownField(kind) => {
                StatusError::unsupported_as_protobuf(&format!("all fields of {kind}"))
            }
            DecodeError::Malformed => {
                StatusError::bad_request("the body of the request is no protobuf object")
            }
        })?,
        _ => return Err(StatusError::unsupported_object_type()),
    };
    check_depth(&value)?;
    if value.is_object() {
        return Ok(value);
    }
    Err(unrecognized("the body is no object"))
}

/// Rejects a value nested so deep that a client might fail to parse it.
pub(crate) fn check_depth(value: &Value) -> Result<(), StatusError> {
    if depth_of(value) <= DEPTH_MAX {
        return Ok(());
    }
    let why = format!("the body of the request is nested more than {DEPTH_MAX} levels deep");
    Err(StatusError::bad_request(why))
}

/// Decodes YAML, which includes JSON.
pub(crate) fn yaml(body: &[u8]) -> Result<Value, StatusError> {
    let value = json_or_yaml(body)?;
    check_depth(&value)?;
    Ok(value)
}

fn json_or_yaml(body: &[u8]) -> Result<Value, StatusError> {
    // Most clients send JSON, and YAML 1.1 parses more strings as numbers than JSON does.
    if let Ok(value) = serde_json::from_slice(body) {
        return Ok(value);
    }
    let unreadable = |why: &str| StatusError::bad_request(format!("error decoding YAML: {why}"));
    let text = std::str::from_utf8(body);
    let text = text.map_err(|error| unreadable(&error.to_string()))?;
    serde_saphyr::from_str(text).map_err(|error| unreadable(&error.to_string()))
}

/// Rejects an object of another kind. An object without a kind counts as the path's kind.
pub(crate) fn check_kind(resource: Resource, object: &Value) -> Result<(), StatusError> {
    let (kind, api_version) = (text(object, "/kind"), text(object, "/apiVersion"));
    let is_kind = matches!(kind, "") || kind == resource.kind();
    let is_version = matches!(api_version, "") || api_version == resource.api_version();
    if is_kind && is_version {
        return Ok(());
    }
    let (version, expected) = (api_version.rsplit('/').next(), resource.kind());
    let version = version.unwrap_or_default();
    let internal = match resource.group() {
        "" => "core",
        group => group.split('.').next().unwrap_or(group),
    };
    Err(StatusError::bad_request(format!(
        "{kind} in version \"{version}\" cannot be handled as a {expected}: converting \
         ({version}.{kind}) to ({internal}.{expected}): unknown conversion"
    )))
}

/// Removes the fields that are the same in all objects of a resource.
pub(crate) fn strip_kind(object: &mut Value) {
    if let Some(map) = object.as_object_mut() {
        map.remove("kind");
        map.remove("apiVersion");
    }
}

/// Decodes the delete options in body and query.
pub(crate) fn delete_options(request: &ApiRequest) -> Result<DeleteOptions, StatusError> {
    let mut options = DeleteOptions::default();
    if !request.body.is_empty() {
        let value = any_object(request, "DeleteOptions")?;
        let (kind, api_version) = (text(&value, "/kind"), text(&value, "/apiVersion"));
        if !matches!(kind, "" | "DeleteOptions") {
            let why = format!("no kind \"{kind}\" is registered for version \"{api_version}\"");
            return Err(StatusError::bad_request(why));
        }
        options = serde_json::from_value(value).map_err(|error| {
            StatusError::bad_request(format!("error decoding the body of the request: {error}"))
        })?;
        // As in upstream, options in the body override the whole query.
        options.check()?;
        return Ok(options);
    }
    if let Ok(seconds) = request.query_value("gracePeriodSeconds").parse() {
        options.grace_period_seconds = Some(seconds);
    }
    let policy = request.query_value("propagationPolicy");
    if !policy.is_empty() {
        options.propagation_policy = Some(policy.to_owned());
    }
    let dry_run = request.query.iter().filter(|(name, _)| name == "dryRun");
    options
        .dry_run
        .extend(dry_run.map(|(_, value)| value.clone()));
    options.check()?;
    Ok(options)
}
