//! PATCH: parses the four kinds of patch and applies them to an object.

use serde_json::{Value, json};

use super::body;
use super::exchange::ApiRequest;
use super::json_patch::{self, Failure};
use super::objects::text;
use super::patch::{self, StrategicError};
use super::resource::Resource;
use super::shape;
use super::status_error::{FieldError, StatusError};

/// A patch as received.
#[derive(Debug)]
pub(super) enum Patch {
    Json(Value),
    Merge(Value),
    Strategic(Value),
    /// The desired fields of a field manager.
    Apply(Value),
}

impl Patch {
    /// Parses the body by its media type.
    pub(super) fn read(request: &ApiRequest) -> Result<Self, StatusError> {
        let body = &request.body;
        match request.content_type() {
            "application/json-patch+json" => Ok(Self::Json(decode(body)?)),
            "application/merge-patch+json" => {
                let prefix = "error decoding patch: ";
                Ok(Self::Merge(map_only(decode(body)?, prefix)?))
            }
            "application/strategic-merge-patch+json" => {
                Ok(Self::Strategic(map_only(decode(body)?, "")?))
            }
            "application/apply-patch+yaml" => {
                let config = body::yaml(body)?;
                if config.is_object() {
                    return Ok(Self::Apply(config));
                }
                Err(StatusError::bad_request(
                    "error decoding YAML: it is no object",
                ))
            }
            _ => Err(StatusError::unsupported_patch_type()),
        }
    }

    /// Applies the patch to `target`, an object with `kind` and `apiVersion`.
    pub(super) fn change(&self, target: &mut Value) -> Result<(), StatusError> {
        match self {
            Self::Json(operations) => {
                json_patch::apply(target, operations).map_err(|failure| match failure {
                    Failure::Malformed(kind) => StatusError::bad_request(format!(
                        "error decoding patch: json: cannot unmarshal {kind} into Go value of \
                         type []handlers.jsonPatchOp"
                    )),
                    Failure::TooMany(n) => StatusError::too_many_operations(n),
                    Failure::Rejected => StatusError::patch_rejected(),
                })
            }
            Self::Merge(patch) => {
                ::json_patch::merge(target, patch);
                Ok(())
            }
            Self::Strategic(patch) => {
                patch::strategic_merge(target, patch).map_err(|error| match error {
                    StrategicError::BadPatch(why) => StatusError::internal(why),
                    StrategicError::BadValue(why) => unprocessable(patch, &why),
                })
            }
            Self::Apply(_) => Err(StatusError::unsupported_patch_type()),
        }
    }

    /// The patched `object` (without `kind`), validated against the shape of its kind.
    pub(super) fn changed(
        &self,
        resource: Resource,
        mut object: Value,
    ) -> Result<Value, StatusError> {
        object["kind"] = json!(resource.kind());
        object["apiVersion"] = json!(resource.api_version());
        self.change(&mut object)?;
        if !object.is_object() {
            return Err(StatusError::patch_rejected());
        }
        let kind = text(&object, "/kind");
        if kind != resource.kind() || text(&object, "/apiVersion") != resource.api_version() {
            return Err(unprocessable(
                self.value(),
                &format!("the kind cannot become {kind}"),
            ));
        }
        shape::check(resource, &object).map_err(|why| unprocessable(self.value(), &why))?;
        body::strip_kind(&mut object);
        Ok(object)
    }

    /// 422 for a patch that produces an invalid object.
    pub(super) fn unprocessable(&self, why: &str) -> StatusError {
        unprocessable(self.value(), why)
    }

    fn value(&self) -> &Value {
        match self {
            Self::Json(value)
            | Self::Merge(value)
            | Self::Strategic(value)
            | Self::Apply(value) => value,
        }
    }
}

/// 422 for a patch that produces an invalid object.
fn unprocessable(patch: &Value, why: &str) -> StatusError {
    let value = json!(patch.to_string()).to_string();
    StatusError::invalid_patch(FieldError::invalid("patch", &value, why))
}

fn decode(body: &[u8]) -> Result<Value, StatusError> {
    let invalid = |_: serde_json::Error| StatusError::bad_request("invalid JSON patch");
    let value = serde_json::from_slice(body).map_err(invalid)?;
    body::check_depth(&value)?;
    Ok(value)
}

fn map_only(patch: Value, prefix: &str) -> Result<Value, StatusError> {
    let kind = match &patch {
        Value::Object(_) => return Ok(patch),
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
    };
    let go_type = "map[string]interface {}";
    Err(StatusError::bad_request(format!(
        "{prefix}json: cannot unmarshal {kind} into Go value of type {go_type}"
    )))
}
