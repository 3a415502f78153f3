//! The query options of writes: dry run, field manager, field validation, force. The server
//! validates them before the body.

use serde_json::{Value, json};

use crate::api::protobuf::MEDIA_TYPE;
use crate::exchange::{ApiRequest, is_true};
use crate::resource::Resource;
use crate::schema;
use crate::status_error::{FieldError, StatusError};

/// Maximum bytes of a field manager's name (apimachinery
/// `pkg/apis/meta/v1/validation:FieldManagerMaxLength`).
const FIELD_MANAGER_BYTES_MAX: usize = 128;

/// The query options of a POST, PUT or PATCH.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteOptions {
    /// Process the request without storing the result.
    pub(crate) dry_run: bool,
    pub(crate) field_manager: String,
    /// Let an apply take over other managers' fields.
    pub(crate) force: bool,
    validation: FieldValidation,
    is_protobuf: bool,
}

/// The treatment of unknown fields.
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
        let field_manager = request.query_value("fieldManager").to_owned();
        let force = request.query_value("force");
        if kind == "PatchOptions" && is_apply && field_manager.is_empty() {
            let why = "is required for apply patch";
            errors.push(FieldError::required("fieldManager", why));
        }
        if kind == "PatchOptions" && !is_apply && !force.is_empty() {
            let why = "may not be specified for non-apply patch";
            errors.push(FieldError::forbidden("force", why));
        }
        if field_manager.len() > FIELD_MANAGER_BYTES_MAX {
            let error = FieldError::too_long("fieldManager", FIELD_MANAGER_BYTES_MAX);
            errors.push(error);
        }
        let dry_run: Vec<&str> = all_values(request, "dryRun").collect();
        errors.extend(check_dry_run(&dry_run));
        let validation = request.query_value("fieldValidation");
        if !matches!(validation, "" | "Ignore" | "Warn" | "Strict") {
            let value = json!(validation).to_string();
            let supported = "\"\", \"Ignore\", \"Strict\", \"Warn\"";
            errors.push(FieldError::not_supported(
                "fieldValidation",
                &value,
                supported,
            ));
        }
        // As in upstream, one error lists all invalid options.
        if !errors.is_empty() {
            return Err(StatusError::invalid_options(kind, errors));
        }
        Ok(Self {
            dry_run: !dry_run.is_empty(),
            field_manager,
            force: is_true(force),
            validation: match validation {
                "Ignore" => FieldValidation::Ignore,
                "Strict" => FieldValidation::Strict,
                _ => FieldValidation::Warn,
            },
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
        let unknown = unknown
            .iter()
            .map(|field| format!("unknown field {field:?}"));
        let unknown: Vec<String> = unknown.collect();
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
            StatusError::not_handled_as(resource, why)
        })
    }
}

/// Every non-empty value of a query parameter.
pub(crate) fn all_values<'a>(
    request: &'a ApiRequest,
    name: &'a str,
) -> impl Iterator<Item = &'a str> {
    let pairs = request.query.iter();
    let values = pairs.filter(move |(key, value)| key == name && !value.is_empty());
    values.map(|(_, value)| value.as_str())
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
pub(crate) fn check_dry_run(values: &[&str]) -> Option<FieldError> {
    let is_known = values.iter().all(|value| *value == "All");
    let value = json!(values).to_string();
    (!is_known).then(|| FieldError::not_supported("dryRun", &value, "\"All\""))
}
