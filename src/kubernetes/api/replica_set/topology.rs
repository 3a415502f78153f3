//! Reads from a template the topology over which it spreads its pods.

use std::borrow::Cow;

use serde::Deserialize;

use super::Template;
use crate::api::protobuf::ProtobufError;
use crate::api::protobuf::wire::Fields;

/// Field number of `spec` in a pod template.
const SPEC: u32 = 2;

/// Field number of `topologySpreadConstraints` in a pod's spec.
const CONSTRAINTS: u32 = 33;

/// An element of `topologySpreadConstraints`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Constraint<'a> {
    #[serde(borrow)]
    topology_key: Option<Cow<'a, str>>,
    #[serde(borrow)]
    when_unsatisfiable: Option<Cow<'a, str>>,
}

/// The key of the first constraint that the scheduler must satisfy, or else of the first that it
/// tries to. `None` without one, and for a template that cannot be decoded.
pub(super) fn topology_key(template: Template<'_>) -> Option<String> {
    let constraints = match template {
        Template::Json(json) => of_json(json.get()).ok()?,
        Template::Protobuf(message) => of_protobuf(message).ok()?,
    };
    let first = |when: &str| {
        let is_it = |it: &&Constraint<'_>| it.when_unsatisfiable.as_deref() == Some(when);
        let mut those = constraints.iter().filter(is_it);
        those.find_map(|it| it.topology_key.as_deref().filter(|key| !key.is_empty()))
    };
    first("DoNotSchedule")
        .or_else(|| first("ScheduleAnyway"))
        .map(str::to_owned)
}

fn of_json(json: &str) -> Result<Vec<Constraint<'_>>, serde_json::Error> {
    #[derive(Deserialize)]
    struct TemplateJson<'a> {
        #[serde(borrow)]
        spec: Option<SpecJson<'a>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct SpecJson<'a> {
        #[serde(borrow)]
        topology_spread_constraints: Option<Vec<Constraint<'a>>>,
    }
    let template: TemplateJson<'_> = serde_json::from_str(json)?;
    let constraints = template.spec.and_then(|it| it.topology_spread_constraints);
    Ok(constraints.unwrap_or_default())
}

fn of_protobuf(template: &[u8]) -> Result<Vec<Constraint<'_>>, ProtobufError> {
    let mut constraints = Vec::new();
    for field in Fields::of(template) {
        let spec = field?;
        if spec.tag != SPEC {
            continue;
        }
        for field in Fields::of(spec.bytes) {
            let constraint = field?;
            if constraint.tag == CONSTRAINTS {
                constraints.push(constraint_of(constraint.bytes)?);
            }
        }
    }
    Ok(constraints)
}

fn constraint_of(message: &[u8]) -> Result<Constraint<'_>, ProtobufError> {
    let mut constraint = Constraint::default();
    for field in Fields::of(message) {
        let field = field?;
        match field.tag {
            2 => constraint.topology_key = Some(field.text()?.into()),
            3 => constraint.when_unsatisfiable = Some(field.text()?.into()),
            _ => {}
        }
    }
    Ok(constraint)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::RawValue;

    use super::{Template, topology_key};
    use crate::api::protobuf::wire::put_bytes;

    /// Checks the key of a template with these constraints, in both encodings.
    #[track_caller]
    fn check(constraints: &[(&str, &str)], expected: Option<&str>) {
        let of_json = |(key, when): &(&str, &str)| {
            json!({
                "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "minDomains": 2,
            })
        };
        let list: Vec<_> = constraints.iter().map(of_json).collect();
        let template = json!({"metadata": {}, "spec": {
            "containers": [{"name": "c"}], "topologySpreadConstraints": list}});
        let raw = RawValue::from_string(template.to_string()).expect("JSON");
        assert_eq!(topology_key(Template::Json(&raw)).as_deref(), expected);

        let (mut spec, mut template) = (Vec::new(), Vec::new());
        put_bytes(2, b"a container", &mut spec);
        for (key, when) in constraints {
            let mut constraint = vec![0x08, 1];
            put_bytes(2, key, &mut constraint);
            put_bytes(3, when, &mut constraint);
            put_bytes(33, &constraint, &mut spec);
        }
        put_bytes(1, b"", &mut template);
        put_bytes(2, &spec, &mut template);
        let template = Template::Protobuf(&template);
        assert_eq!(topology_key(template).as_deref(), expected);
    }

    #[test]
    fn a_constraint_that_must_hold_goes_before_one_that_should() {
        let (must, should) = ("DoNotSchedule", "ScheduleAnyway");
        check(&[], None);
        check(&[("zone", should)], Some("zone"));
        check(&[("zone", should), ("node", should)], Some("zone"));
        check(
            &[("zone", should), ("node", must), ("rack", must)],
            Some("node"),
        );
        check(&[("zone", "Perhaps"), ("", must)], None);
    }

    #[test]
    fn a_template_that_cannot_be_read_has_no_topology() {
        for json in [
            "{}",
            r#"{"spec": null}"#,
            r#"{"spec": 1}"#,
            r#"{"spec": {"topologySpreadConstraints": null}}"#,
            r#"{"spec": {"topologySpreadConstraints": [{}]}}"#,
        ] {
            let raw = RawValue::from_string(json.to_owned()).expect("JSON");
            assert_eq!(topology_key(Template::Json(&raw)), None, "{json}");
        }
        assert_eq!(topology_key(Template::Protobuf(b"\x12\x05ab")), None);
    }
}
