//! Parses requests: objects as JSON, YAML or protobuf, and the options of writes and deletes, which
//! the server validates before the body. Invalid input yields the API server's error message.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::protobuf::MEDIA_TYPE;
use crate::exchange::{ApiRequest, is_true};
use crate::json::{depth_of, strip_kind, text};
use crate::protobuf::{self, DecodeError};
use crate::resource::Resource;
use crate::schema;
use crate::status_error::{FieldError, StatusError};

const YAML: &str = "application/yaml";

/// Maximum nesting depth of a stored object. This server parses JSON to 128 levels, and lists,
/// tables and managed fields add some levels around an object.
///
/// DIFFERS: Go parses 10,000 levels.
pub(crate) const DEPTH_MAX: usize = 100;

/// Maximum bytes of a field manager's name (apimachinery
/// `pkg/apis/meta/v1/validation:FieldManagerMaxLength`).
const FIELD_MANAGER_BYTES_MAX: usize = 128;

/// Decodes the object in the body, as it is stored.
pub(crate) fn object(resource: Resource, request: &ApiRequest) -> Result<Value, StatusError> {
    let mut object = any_object(request, resource.kind())?;
    check_kind(resource, &object)?;
    let unfit = |why: String| StatusError::not_handled_as(resource.kind(), &why);
    schema::check(resource, &object).map_err(unfit)?;
    strip_kind(&mut object);
    Ok(resource.to_stored(object))
}

/// Decodes the object in the body, of a kind that is not stored.
pub(crate) fn unstored_object(
    request: &ApiRequest,
    kind: &'static str,
) -> Result<Value, StatusError> {
    let object = any_object(request, kind)?;
    schema::check_as(kind, &object).map_err(|why| StatusError::not_handled_as(kind, &why))?;
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
            DecodeError::Malformed => {
                StatusError::bad_request("the request body is not a protobuf-encoded object")
            }
        })?,
        _ => {
            return Err(StatusError::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json, application/yaml, application/vnd.kubernetes.protobuf",
            ));
        }
    };
    check_depth(&value)?;
    if value.is_object() {
        return Ok(value);
    }
    Err(unrecognized("the body is not an object"))
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
    let unreadable = |why: &str| StatusError::bad_request(format!("error decoding YAML: {why}"));
    // Most clients send JSON, and YAML 1.1 parses more strings as numbers than JSON does.
    let value = if let Ok(value) = serde_json::from_slice(body) {
        value
    } else {
        let text = std::str::from_utf8(body);
        let text = text.map_err(|error| unreadable(&error.to_string()))?;
        serde_saphyr::from_str(text).map_err(|error| unreadable(&error.to_string()))?
    };
    check_depth(&value)?;
    Ok(value)
}

/// Rejects an object of another kind. An object without a kind counts as the path's kind.
fn check_kind(resource: Resource, object: &Value) -> Result<(), StatusError> {
    let (kind, api_version) = (text(object, "/kind"), text(object, "/apiVersion"));
    let is_kind = kind.is_empty() || kind == resource.kind();
    if is_kind && (api_version.is_empty() || api_version == resource.api_version()) {
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

#[derive(Clone, Debug, Default)]
pub(crate) struct WriteOptions {
    /// Process the request without storing the result.
    pub(crate) dry_run: bool,
    /// The field manager; the default is the program name in the user agent.
    pub(crate) manager: String,
    /// Let an apply take over other managers' fields.
    pub(crate) force: bool,
    validation: FieldValidation,
    is_protobuf: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FieldValidation {
    Ignore,
    /// The response has a warning for each.
    #[default]
    Warn,
    /// The server rejects the request.
    Strict,
}

impl WriteOptions {
    pub(crate) fn read(request: &ApiRequest) -> Result<Self, StatusError> {
        let kind = match request.method.as_str() {
            "POST" => "CreateOptions",
            "PUT" => "UpdateOptions",
            _ => "PatchOptions",
        };
        let mut errors = Vec::new();
        let is_apply = request.content_type() == "application/apply-patch+yaml";
        let manager = request.query_value("fieldManager");
        let force = request.query_value("force");
        if kind == "PatchOptions" && is_apply && manager.is_empty() {
            let why = "is required for apply patch";
            errors.push(FieldError::required("fieldManager", why));
        }
        if kind == "PatchOptions" && !is_apply && !force.is_empty() {
            let why = "may not be specified for non-apply patch";
            errors.push(FieldError::forbidden("force", why));
        }
        if manager.len() > FIELD_MANAGER_BYTES_MAX {
            let error = FieldError::too_long("fieldManager", FIELD_MANAGER_BYTES_MAX);
            errors.push(error);
        }
        let dry_run: Vec<&str> = request.query_values("dryRun").collect();
        let dry_run: Vec<&str> = dry_run.into_iter().filter(|it| !it.is_empty()).collect();
        errors.extend(check_dry_run(&dry_run));
        let validation = match request.query_value("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let (field, supported) = ("fieldValidation", ["", "Ignore", "Strict", "Warn"]);
                errors.push(FieldError::not_supported(field, other, &supported));
                FieldValidation::Warn
            }
        };
        // As in upstream, one error lists all invalid options.
        if !errors.is_empty() {
            return Err(StatusError::invalid_options(kind, errors));
        }
        Ok(Self {
            dry_run: !dry_run.is_empty(),
            manager: match manager {
                "" => request.header("user-agent").split('/').next(),
                manager => Some(manager),
            }
            .unwrap_or_default()
            .to_owned(),
            force: is_true(force),
            validation,
            is_protobuf: request.content_type() == MEDIA_TYPE,
        })
    }

    /// Returns the unknown fields of `new` that `old` does not have, for warnings. With strict
    /// validation, returns an error that `error_of` builds from a text such as
    /// `strict decoding error: unknown field "spec.replica"`.
    pub(crate) fn unknown_fields(
        &self,
        resource: Resource,
        old: Option<&Value>,
        new: &Value,
        error_of: impl FnOnce(&str) -> StatusError,
    ) -> Result<Vec<String>, StatusError> {
        if self.validation == FieldValidation::Ignore || self.is_protobuf {
            return Ok(Vec::new());
        }
        let mut unknown = schema::unknown_fields(resource, new);
        if let Some(old) = old.filter(|_| !unknown.is_empty()) {
            let known = schema::unknown_fields(resource, old);
            unknown.retain(|field| !known.contains(field));
        }
        let unknown = unknown.iter();
        let unknown: Vec<String> = unknown.map(|it| format!("unknown field {it:?}")).collect();
        if self.validation == FieldValidation::Strict && !unknown.is_empty() {
            let why = format!("strict decoding error: {}", unknown.join(", "));
            return Err(error_of(&why));
        }
        Ok(unknown)
    }

    /// [`Self::unknown_fields`] for an object that is the whole body.
    pub(crate) fn unknown_fields_of_body(
        &self,
        resource: Resource,
        object: &Value,
    ) -> Result<Vec<String>, StatusError> {
        self.unknown_fields(resource, None, object, |why| {
            StatusError::not_handled_as(resource.kind(), why)
        })
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) preconditions: Preconditions,
    pub(crate) propagation_policy: Option<String>,
    pub(crate) orphan_dependents: Option<bool>,
    pub(crate) dry_run: Vec<String>,
}

/// Conditions on the object for the delete to proceed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

impl DeleteOptions {
    /// Decodes the options. As in upstream, those in the body override the whole query.
    pub(crate) fn read(request: &ApiRequest) -> Result<Self, StatusError> {
        let options = if request.body.is_empty() {
            let policy = request.query_value("propagationPolicy");
            Self {
                grace_period_seconds: request.query_value("gracePeriodSeconds").parse().ok(),
                propagation_policy: Some(policy.to_owned()).filter(|policy| !policy.is_empty()),
                dry_run: request.query_values("dryRun").map(str::to_owned).collect(),
                ..Self::default()
            }
        } else {
            let mut value = any_object(request, "DeleteOptions")?;
            let (kind, api_version) = (text(&value, "/kind"), text(&value, "/apiVersion"));
            if !matches!(kind, "" | "DeleteOptions") {
                let why = format!("no kind \"{kind}\" is registered for version \"{api_version}\"");
                return Err(StatusError::bad_request(why));
            }
            crate::json::drop_nulls(&mut value);
            serde_json::from_value(value).map_err(|error| {
                StatusError::bad_request(format!("error decoding the body of the request: {error}"))
            })?
        };
        options.check()?;
        Ok(options)
    }

    /// Validates the options (apimachinery `pkg/apis/meta/v1/validation:ValidateDeleteOptions`).
    fn check(&self) -> Result<(), StatusError> {
        let mut errors = Vec::new();
        if let Some(policy) = &self.propagation_policy {
            let field = "propagationPolicy";
            if self.orphan_dependents.is_some() {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid(field, policy, why));
            }
            // As upstream's message lists it.
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            if !supported[..3].contains(&policy.as_str()) {
                errors.push(FieldError::not_supported(field, policy, &supported));
            }
        }
        errors.extend(check_dry_run(&self.dry_run));
        if errors.is_empty() {
            return Ok(());
        }
        Err(StatusError::invalid_options("DeleteOptions", errors))
    }
}

/// A number in the query; `None` if absent.
pub(crate) fn number(request: &ApiRequest, name: &str) -> Result<Option<i64>, StatusError> {
    let text = request.query_value(name);
    if text.is_empty() {
        return Ok(None);
    }
    let malformed = || {
        let why = format!("strconv.ParseInt: parsing {}: invalid syntax", json!(text));
        StatusError::bad_request(why)
    };
    text.parse().ok().map(Some).ok_or_else(malformed)
}

/// The only valid dry run is `All`.
fn check_dry_run<T: AsRef<str> + serde::Serialize>(values: &[T]) -> Option<FieldError> {
    let is_known = values.iter().all(|value| value.as_ref() == "All");
    (!is_known).then(|| FieldError::not_supported("dryRun", values, &["All"]))
}
