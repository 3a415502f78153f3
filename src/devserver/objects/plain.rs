//! Kinds that the server only stores: defaults, first status and validation, by their row in the
//! table of [`crate::plain`].

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::objects::{map_of, replica_set, set_default, text};
use crate::plain::{Plain, Template};
use crate::status_error::FieldError;

/// Adds the members that `object` lacks.
pub(crate) fn set_defaults(plain: &Plain, object: &mut Value) {
    let defaults = json_of(plain.defaults);
    add_missing(object, &defaults);
    if plain.template != Template::None {
        let spec = map_of(object, "spec");
        let template = spec.entry("template").or_insert_with(|| json!({}));
        replica_set::set_template_defaults(template);
    }
    (plain.complete)(object);
}

/// Sets the status of a new object.
pub(crate) fn set_first_status(plain: &Plain, object: &mut Value) {
    let Some(members) = object.as_object_mut() else {
        return;
    };
    match plain.first_status {
        None => {}
        Some("") => {
            members.remove("status");
        }
        Some(status) => {
            members.insert("status".to_owned(), json_of(status));
        }
    }
}

pub(crate) fn validate(plain: &Plain, object: &Value) -> Vec<FieldError> {
    match plain.template {
        Template::Selected => replica_set::validate(object),
        Template::None | Template::Pod => Vec::new(),
    }
}

pub(crate) fn validate_update(plain: &Plain, old: &Value, new: &Value) -> Vec<FieldError> {
    match plain.template {
        Template::Selected => replica_set::validate_update(old, new),
        Template::None | Template::Pod => Vec::new(),
    }
}

/// Restores what a write of the status does not change: all but the status and the metadata.
pub(crate) fn keep_all_but_status(old: &Value, new: &mut Value) {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object_mut()) else {
        return;
    };
    let is_written = |name: &str| matches!(name, "status" | "metadata");
    new.retain(|name, _| is_written(name));
    for (name, value) in old.iter().filter(|(name, _)| !is_written(name)) {
        new.insert(name.clone(), value.clone());
    }
}

/// A JSON text of the table.
fn json_of(text: &str) -> Value {
    serde_json::from_str(text).expect("a test reads every text of the table")
}

fn add_missing(object: &mut Value, defaults: &Value) {
    let (Some(members), Some(defaults)) = (object.as_object_mut(), defaults.as_object()) else {
        return;
    };
    for (name, default) in defaults {
        let member = members.entry(name).or_insert_with(|| default.clone());
        if member.is_null() {
            *member = default.clone();
        }
        add_missing(member, default);
    }
}

/// Completes most kinds: nothing is left to do.
pub(crate) fn is_complete(_: &mut Value) {}

/// Only rolling updates have parameters.
pub(crate) fn complete_strategy(object: &mut Value) {
    for name in ["strategy", "updateStrategy"] {
        let Some(strategy) = object.pointer_mut(&format!("/spec/{name}")) else {
            continue;
        };
        if text(strategy, "/type") != "RollingUpdate" {
            strategy
                .as_object_mut()
                .map(|map| map.remove("rollingUpdate"));
        }
    }
}

/// Ports are TCP, and lead to the port of the same number.
///
/// DIFFERS: a Service gets no cluster IP.
pub(crate) fn complete_service(service: &mut Value) {
    let ports = service.pointer_mut("/spec/ports");
    let ports = ports.and_then(Value::as_array_mut).into_iter().flatten();
    for port in ports.filter_map(Value::as_object_mut) {
        set_default(port, "protocol", "TCP");
        // Go clients send 0 for a target that they leave out.
        if port
            .get("targetPort")
            .is_some_and(|target| *target == json!(0))
        {
            port.remove("targetPort");
        }
        if let Some(number) = port.get("port").cloned() {
            set_default(port, "targetPort", number);
        }
    }
}

/// Moves the texts of `stringData` to `data`, as base64.
pub(crate) fn complete_secret(secret: &mut Value) {
    let members = secret.as_object_mut();
    let Some(texts) = members.and_then(|members| members.remove("stringData")) else {
        return;
    };
    for (name, text) in texts.as_object().into_iter().flatten() {
        let text = text.as_str().unwrap_or_default();
        map_of(secret, "data").insert(name.clone(), json!(BASE64_STANDARD.encode(text)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{add_missing, json_of, set_defaults};
    use crate::plain::PLAIN;

    fn with_defaults(plural: &str, mut object: Value) -> Value {
        let mut rows = PLAIN.iter();
        let plain = rows.find(|plain| plain.facts.plural == plural);
        set_defaults(plain.expect("a row"), &mut object);
        object
    }

    #[test]
    fn every_text_of_the_table_is_json() {
        for plain in &PLAIN {
            assert!(json_of(plain.defaults).is_object(), "{plain:?}");
            let status = plain.first_status.filter(|text| !text.is_empty());
            assert!(status.is_none_or(|text| json_of(text).is_object()));
        }
    }

    #[test]
    fn defaults_fill_gaps_only() {
        let mut object = json!({"spec": {"replicas": 0, "strategy": null}});
        let defaults = json!({"spec": {"replicas": 1, "strategy": {"type": "a"}}});
        add_missing(&mut object, &defaults);
        assert_eq!(
            object,
            json!({"spec": {"replicas": 0, "strategy": {"type": "a"}}})
        );
    }

    #[test]
    fn a_recreated_deployment_has_no_rolling_update() {
        let strategy = json!({"type": "Recreate"});
        let deployment = with_defaults("deployments", json!({"spec": {"strategy": strategy}}));
        assert_eq!(deployment["spec"]["strategy"], strategy);
        assert_eq!(deployment["spec"]["progressDeadlineSeconds"], json!(600));
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["restartPolicy"], json!("Always"));
    }

    #[test]
    fn the_texts_of_a_secret_become_data() {
        let secret = json!({"stringData": {"a": "b"}, "data": {"c": "ZA=="}});
        let expected = json!({"type": "Opaque", "data": {"a": "Yg==", "c": "ZA=="}});
        assert_eq!(with_defaults("secrets", secret), expected);
    }
}
