//! Events of the core group: defaults and validation.

use serde_json::{Value, json};

use crate::objects::text;
use crate::status_error::FieldError;

pub(crate) fn set_defaults(event: &mut Value) {
    let Some(event) = event.as_object_mut() else {
        return;
    };
    for (name, value) in [
        ("involvedObject", json!({})),
        ("source", json!({})),
        ("firstTimestamp", Value::Null),
        ("lastTimestamp", Value::Null),
        ("eventTime", Value::Null),
        ("reportingComponent", json!("")),
        ("reportingInstance", json!("")),
    ] {
        event.entry(name).or_insert(value);
    }
}

/// An event must be in the namespace of its object, or in `default` if the object has none.
pub(crate) fn validate(event: &Value) -> Vec<FieldError> {
    let about = text(event, "/involvedObject/namespace");
    let own = text(event, "/metadata/namespace");
    if about == own || (about.is_empty() && own == "default") {
        return Vec::new();
    }
    let value = json!(about).to_string();
    let why = "does not match event.namespace";
    vec![FieldError::invalid("involvedObject.namespace", &value, why)]
}
