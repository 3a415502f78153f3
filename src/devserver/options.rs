//! The options that writing requests carry in their query: dry run, field manager, field validation,
//! force. Read and checked before anything else is.

use serde_json::{Value, json};

use super::exchange::{ApiRequest, is_true};
use super::resource::Resource;
use super::status_error::{FieldError, StatusError};
use super::strict;
use crate::api::protobuf::MEDIA_TYPE;

/// Longest name of a field manager
/// (apimachinery `pkg/apis/meta/v1/validation:FieldManagerMaxLength`).
const FIELD_MANAGER_BYTES_MAX: usize = 128;

/// What a POST, PUT or PATCH may say besides its body.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteOptions {
    /// Everything is done as asked, and nothing is kept.
    pub(super) dry_run: bool,
    pub(super) field_manager: String,
    /// An apply takes over what others have applied.
    pub(super) force: bool,
    validation: FieldValidation,
    is_protobuf: bool,
}

/// What becomes of members that a kind does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FieldValidation {
    Ignore,
    /// The answer names them.
    #[default]
    Warn,
    /// The request is refused.
    Strict,
}

impl WriteOptions {
    pub(super) fn read(request: &ApiRequest) -> Result<Self, StatusError> {
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

    /// The members of `new` that its kind does not have and `old` has not had: those to warn of. If
    /// the request is to be refused for them, the refusal is made of a text such as
    /// `strict decoding error: unknown field "spec.replica"`.
    pub(super) fn unknown_fields(
        &self,
        resource: Resource,
        old: Option<&Value>,
        new: &Value,
        refusal: impl FnOnce(&str) -> StatusError,
    ) -> Result<Vec<String>, StatusError> {
        if self.validation == FieldValidation::Ignore || self.is_protobuf {
            return Ok(Vec::new());
        }
        let mut unknown = strict::unknown_fields(resource, new);
        if let Some(old) = old.filter(|_| !unknown.is_empty()) {
            let known = strict::unknown_fields(resource, old);
            unknown.retain(|field| !known.contains(field));
        }
        let unknown = unknown
            .iter()
            .map(|field| format!("unknown field {field:?}"));
        let unknown: Vec<String> = unknown.collect();
        if self.validation == FieldValidation::Strict && !unknown.is_empty() {
            let why = format!("strict decoding error: {}", unknown.join(", "));
            return Err(refusal(&why));
        }
        Ok(unknown)
    }

    /// [`Self::unknown_fields`] of an object that stands in the body as a whole.
    pub(super) fn unknown_fields_of_body(
        &self,
        resource: Resource,
        object: &Value,
    ) -> Result<Vec<String>, StatusError> {
        self.unknown_fields(resource, None, object, |why| {
            StatusError::not_handled_as(resource, why)
        })
    }
}

/// Every value of a query parameter that is not empty.
pub(super) fn all_values<'a>(
    request: &'a ApiRequest,
    name: &'a str,
) -> impl Iterator<Item = &'a str> {
    let pairs = request.query.iter();
    let values = pairs.filter(move |(key, value)| key == name && !value.is_empty());
    values.map(|(_, value)| value.as_str())
}

/// A number in the query; `None` if it is not given.
pub(super) fn number(request: &ApiRequest, name: &str) -> Result<Option<i64>, StatusError> {
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

/// There is one kind of dry run.
pub(super) fn check_dry_run(values: &[&str]) -> Option<FieldError> {
    let is_known = values.iter().all(|value| *value == "All");
    let value = json!(values).to_string();
    (!is_known).then(|| FieldError::not_supported("dryRun", &value, "\"All\""))
}
