//! ResourceQuotas: normalizes and validates quantities.

use serde_json::{Value, json};

use crate::objects::map_of;
use crate::status_error::FieldError;

/// Converts quantities that are numbers into text.
pub(crate) fn set_defaults(quota: &mut Value) {
    let hard = map_of(quota, "spec").get_mut("hard");
    for amount in hard.and_then(Value::as_object_mut).into_iter().flatten() {
        let (_, amount) = amount;
        if amount.is_number() {
            *amount = json!(amount.to_string());
        }
    }
}

/// DIFFERS: validates only object counts, which have no unit.
pub(crate) fn validate(quota: &Value) -> Vec<FieldError> {
    let hard = quota.pointer("/spec/hard").and_then(Value::as_object);
    let mut errors = Vec::new();
    for (resource, amount) in hard.into_iter().flatten() {
        let field = format!("spec.hard[{resource}]");
        let text = amount.as_str().unwrap_or_default();
        let is_count = resource == "pods" || resource.starts_with("count/");
        if text.starts_with('-') {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(&field, &amount.to_string(), why));
        } else if is_count && text.parse::<u64>().is_err() {
            let why = "must be an integer";
            errors.push(FieldError::invalid(&field, &amount.to_string(), why));
        }
    }
    errors
}
