//! Alternative response forms: tables, which `kubectl get` prints, with the columns of
//! kube-apiserver 1.37 (kubernetes `pkg/printers/internalversion/printers.go`), and metadata only.
//! The server converts lists, objects and watch frames last, after the request itself.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::api::CompactTimestamp;
use crate::exchange::{ApiRequest, Response, ResponseBody};
use crate::json::{entries, is_deleting, members, number, text};
use crate::resource::{Cell, Resource};
use crate::selector::selector_text;
use crate::status_error::StatusError;
use crate::workload::is_terminal;

/// The form of the objects in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The objects themselves.
    Whole,
    /// Table rows, each with this part of its object.
    Table(Include),
    /// The objects' metadata only.
    Metadata,
}

/// The part of the object that a row carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Whole,
}

impl Form {
    /// The first form in the `Accept` header that the server supports.
    pub(crate) fn requested_by(request: &ApiRequest) -> Result<Self, StatusError> {
        for kind in request.header("accept").split(',') {
            let mut parameters = kind.split(';').map(str::trim);
            if parameters.next() != Some("application/json") {
                continue;
            }
            let parameters: Vec<&str> = parameters.collect();
            let form = parameters.iter().find_map(|text| text.strip_prefix("as="));
            match form {
                Some("Table") => return Ok(Self::Table(include(request)?)),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") => {
                    return Ok(Self::Metadata);
                }
                None => return Ok(Self::Whole),
                Some(_) => {}
            }
        }
        Ok(Self::Whole)
    }

    /// Converts a response (an object or a list) into this form.
    pub(crate) fn convert(self, resource: Resource, mut response: Response) -> Response {
        // An error is a `Status` in every form.
        if self == Self::Whole || response.code >= 300 {
            return response;
        }
        let Some(body) = std::mem::replace(&mut response.body, ResponseBody::Cut).read() else {
            return response;
        };
        let Ok(mut value) = serde_json::from_slice::<Value>(&body) else {
            response.body = ResponseBody::Whole(body);
            return response;
        };
        let items = value.get_mut("items").map(Value::take);
        let converted = match (self, items) {
            (Self::Table(include), Some(items)) => table(
                resource,
                include,
                &value["metadata"],
                items.as_array(),
                true,
            ),
            (Self::Table(include), None) => {
                let metadata = version_of(&value);
                table(resource, include, &metadata, Some(&vec![value]), true)
            }
            (_, Some(items)) => {
                let items = items.as_array().into_iter().flatten();
                let items: Vec<Value> = items.map(metadata_of).collect();
                json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                    "metadata": value["metadata"], "items": items,
                })
            }
            (_, None) => metadata_of(&value),
        };
        Response::object(response.code, &converted)
    }

    /// Converts `object` (with `kind`) for a watch frame. Only the first table has column
    /// definitions.
    pub(crate) fn frame_object(self, resource: Resource, object: &Value, is_first: bool) -> Value {
        match self {
            Self::Whole => object.clone(),
            Self::Metadata => metadata_of(object),
            Self::Table(include) => {
                let metadata = version_of(object);
                let rows = vec![object.clone()];
                table(resource, include, &metadata, Some(&rows), is_first)
            }
        }
    }

    pub(crate) fn frame_bookmark(self, resource: Resource, object: Value) -> Value {
        match self {
            Self::Whole => object,
            Self::Metadata => metadata_of(&object),
            Self::Table(include) => table(resource, include, &version_of(&object), None, false),
        }
    }
}

fn include(request: &ApiRequest) -> Result<Include, StatusError> {
    match request.query_value("includeObject") {
        "" | "Metadata" => Ok(Include::Metadata),
        "None" => Ok(Include::Nothing),
        "Object" => Ok(Include::Whole),
        other => Err(StatusError::bad_request(format!(
            "unrecognized includeObject value: \"{other}\""
        ))),
    }
}

fn version_of(object: &Value) -> Value {
    json!({"resourceVersion": object["metadata"]["resourceVersion"]})
}

fn metadata_of(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

/// The row condition of a completed pod (kubernetes
/// `pkg/printers/internalversion/printers.go:podSuccessConditions`).
fn end_of(object: &Value) -> Option<Value> {
    let (reason, message) = match text(object, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([
        {"type": "Completed", "status": "True", "reason": reason, "message": message},
    ]))
}

fn table(
    resource: Resource,
    include: Include,
    metadata: &Value,
    objects: Option<&Vec<Value>>,
    has_columns: bool,
) -> Value {
    let objects = objects.into_iter().flatten();
    let rows: Vec<Value> = objects
        .map(|object| {
            let mut row = Map::new();
            row.insert("cells".to_owned(), cells(resource, object));
            row.extend(end_of(object).map(|end| ("conditions".to_owned(), end)));
            let object = match include {
                Include::Nothing => None,
                Include::Metadata => Some(metadata_of(object)),
                Include::Whole => Some(with_kind(resource, object)),
            };
            row.extend(object.map(|object| ("object".to_owned(), object)));
            Value::Object(row)
        })
        .collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": has_columns.then(|| definitions(resource)),
        "rows": rows,
    })
}

/// List items have no `kind`, but a single object needs it.
fn with_kind(resource: Resource, object: &Value) -> Value {
    let mut object = object.clone();
    object["kind"] = json!(resource.kind());
    object["apiVersion"] = json!(resource.api_version());
    object
}

/// The names of the columns: `+` marks a number, `~` a column for `-o wide` only.
fn columns(resource: Resource) -> &'static str {
    match resource {
        Resource::Pods => {
            "Name,Ready,Status,Restarts,Age,~IP,~Node,~Nominated Node,~Readiness Gates"
        }
        Resource::ReplicaSets | Resource::ReplicationControllers => {
            "Name,+Desired,+Current,+Ready,Age,~Containers,~Images,~Selector"
        }
        Resource::Events => {
            "Last Seen,Type,Reason,Object,~Subobject,~Source,Message,~First Seen,~Count,~Name"
        }
        Resource::Leases => "Name,Holder,Age",
        Resource::Quotas => "Name,Request,Limit,Age",
        Resource::Nodes => {
            "Name,Status,Roles,Age,Version,~Internal-IP,~External-IP,~OS-Image,~Kernel-Version,\
             ~Container-Runtime"
        }
        Resource::Definitions => "Name,Created At",
        // Those of the table of resources.
        _ => "",
    }
}

/// The column definitions of a table.
fn definitions(resource: Resource) -> Vec<Value> {
    let definition = |name: &str, kind: &str, priority: i32| {
        let format = if name == "Name" { "name" } else { "" };
        json!({
            "name": name, "type": kind, "format": format, "description": "",
            "priority": priority,
        })
    };
    if columns(resource).is_empty() {
        let own = resource
            .row()
            .columns
            .iter()
            .map(|(name, cell)| match cell {
                Cell::Count(_) | Cell::Number(_) => definition(name, "integer", 0),
                _ => definition(name, "string", 0),
            });
        let first = [definition("Name", "string", 0)].into_iter();
        return first.chain(own).collect();
    }
    let names = columns(resource).split(',');
    let definitions = names.map(|name| match name.split_at(1) {
        ("+", name) => definition(name, "integer", 0),
        ("~", name) => definition(name, "string", 1),
        _ => definition(name, "string", 0),
    });
    definitions.collect()
}

fn cells(resource: Resource, object: &Value) -> Value {
    let name = text(object, "/metadata/name");
    let age = since(text(object, "/metadata/creationTimestamp"));
    match resource {
        Resource::Pods => pod_cells(object, name, &age),
        Resource::ReplicaSets | Resource::ReplicationControllers => {
            let count = |pointer: &str| number(object, pointer).unwrap_or(0);
            let containers = entries(object, "/spec/template/spec/containers");
            let each = |pointer: &str| {
                let texts = containers.iter().map(|container| text(container, pointer));
                texts.collect::<Vec<_>>().join(",")
            };
            json!([
                name,
                count("/spec/replicas"),
                count("/status/replicas"),
                count("/status/readyReplicas"),
                age,
                each("/name"),
                each("/image"),
                selector_text(resource, object),
            ])
        }
        Resource::Leases => json!([name, text(object, "/spec/holderIdentity"), age]),
        Resource::Events => event_cells(object, name),
        Resource::Quotas => quota_cells(object, name, &age),
        Resource::Nodes => node_cells(object, name, &age),
        Resource::Definitions => json!([name, text(object, "/metadata/creationTimestamp")]),
        _ => {
            let own = resource.row().columns.iter();
            let own = own.map(|(_, cell)| cell_of(cell, object));
            [json!(name)].into_iter().chain(own).collect()
        }
    }
}

fn cell_of(cell: &Cell, object: &Value) -> Value {
    let count = |pointer: &str| number(object, pointer).unwrap_or(0);
    match cell {
        Cell::Text(pointer) => match object.pointer(pointer) {
            None | Some(Value::Null) => json!("<none>"),
            Some(Value::String(text)) => json!(text),
            Some(other) => json!(other.to_string()),
        },
        Cell::Count(pointer) => json!(count(pointer)),
        Cell::Number(pointer) => json!(number(object, pointer)),
        Cell::Size(pointer) => {
            let n_entries = entries(object, pointer).len();
            json!((members(object, pointer).count() + n_entries).to_string())
        }
        Cell::Ratio(part, whole) => json!(format!("{}/{}", count(part), count(whole))),
        Cell::Since(pointer) => match text(object, pointer) {
            "" => json!("<none>"),
            time => json!(since(time)),
        },
        Cell::Ports(pointer) => {
            let port = |port: &Value| {
                let of_node = number(port, "/nodePort").map(|it| format!(":{it}"));
                let (of_node, protocol) = (of_node.unwrap_or_default(), text(port, "/protocol"));
                format!("{}{of_node}/{protocol}", port["port"])
            };
            let ports: Vec<String> = entries(object, pointer).iter().map(port).collect();
            json!(or_none(&ports.join(",")))
        }
    }
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "<none>" } else { text }
}

fn pod_cells(pod: &Value, name: &str, age: &str) -> Value {
    let statuses = entries(pod, "/status/containerStatuses");
    let is_ready = |status: &&Value| {
        status["ready"] == json!(true) && status.pointer("/state/running").is_some()
    };
    let n_ready = statuses.iter().filter(is_ready).count();
    let n_containers = entries(pod, "/spec/containers").len();
    json!([
        name,
        format!("{n_ready}/{n_containers}"),
        pod_state(pod, statuses),
        restarts(statuses),
        age,
        or_none(text(pod, "/status/podIP")),
        or_none(text(pod, "/spec/nodeName")),
        or_none(text(pod, "/status/nominatedNodeName")),
        "<none>",
    ])
}

fn restarts(statuses: &[Value]) -> String {
    let counts = statuses.iter();
    let counts = counts.filter_map(|status| number(status, "/restartCount"));
    let total: i64 = counts.sum();
    let ends = statuses.iter();
    let last = ends
        .map(|status| text(status, "/lastState/terminated/finishedAt"))
        .max();
    match last.filter(|last| total > 0 && !last.is_empty()) {
        Some(last) => format!("{total} ({} ago)", since(last)),
        None => total.to_string(),
    }
}

/// The phase, unless a container's state is more specific.
fn pod_state(pod: &Value, statuses: &[Value]) -> String {
    let mut state = match text(pod, "/status/reason") {
        "" => text(pod, "/status/phase").to_owned(),
        reason => reason.to_owned(),
    };
    let mut has_running = false;
    for status in statuses.iter().rev() {
        let waiting = text(status, "/state/waiting/reason");
        let terminated = text(status, "/state/terminated/reason");
        if !waiting.is_empty() {
            waiting.clone_into(&mut state);
        } else if !terminated.is_empty() {
            terminated.clone_into(&mut state);
        } else if let Some(code) = number(status, "/state/terminated/exitCode") {
            state = format!("ExitCode:{code}");
        } else if status.pointer("/state/running").is_some() && status["ready"] == json!(true) {
            has_running = true;
        }
    }
    if state == "Completed" && has_running {
        "Running".clone_into(&mut state);
    }
    if is_deleting(pod) && !is_terminal(pod) {
        "Terminating".clone_into(&mut state);
    }
    state
}

fn event_cells(event: &Value, name: &str) -> Value {
    let seen = |pointer: &str| match text(event, pointer) {
        "" => since(text(event, "/eventTime")),
        time => since(time),
    };
    let (first, mut last) = (seen("/firstTimestamp"), seen("/lastTimestamp"));
    let count = number(event, "/count").unwrap_or(1).max(1);
    if count > 1 {
        last = format!("{last} (x{count} over {first})");
    }
    let kind = text(event, "/involvedObject/kind").to_lowercase();
    let about = text(event, "/involvedObject/name");
    let component = match text(event, "/source/component") {
        "" => text(event, "/reportingComponent"),
        component => component,
    };
    let source = match text(event, "/source/host") {
        "" => component.to_owned(),
        host => format!("{component}, {host}"),
    };
    json!([
        last,
        text(event, "/type"),
        text(event, "/reason"),
        format!("{kind}/{about}"),
        text(event, "/involvedObject/fieldPath"),
        source,
        text(event, "/message").trim(),
        first,
        count.to_string(),
        name,
    ])
}

fn quota_cells(quota: &Value, name: &str, age: &str) -> Value {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in members(quota, "/status/hard") {
        let used = &quota["status"]["used"][resource];
        let word = |value: &Value| value.as_str().map_or_else(|| "0".to_owned(), str::to_owned);
        let entry = format!("{resource}: {}/{}", word(used), word(hard));
        if resource.starts_with("limits.") {
            limits.push(entry);
        } else {
            requests.push(entry);
        }
    }
    json!([name, requests.join(", "), limits.join(", "), age])
}

fn node_cells(node: &Value, name: &str, age: &str) -> Value {
    let mut conditions = entries(node, "/status/conditions").iter();
    let ready = conditions.find(|condition| text(condition, "/type") == "Ready");
    let mut status = match ready.map(|condition| text(condition, "/status")) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node.pointer("/spec/unschedulable") == Some(&json!(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let labels = members(node, "/metadata/labels");
    let roles = labels.filter_map(|(label, _)| label.strip_prefix("node-role.kubernetes.io/"));
    let roles = roles.collect::<Vec<_>>().join(",");
    let address = |kind: &str| {
        let mut addresses = entries(node, "/status/addresses").iter();
        let address = addresses.find(|address| text(address, "/type") == kind);
        or_none(address.map_or("", |address| text(address, "/address"))).to_owned()
    };
    let info = |member: &str| {
        let info = text(node, &format!("/status/nodeInfo/{member}"));
        if info.is_empty() { "<unknown>" } else { info }
    };
    json!([
        name,
        status,
        or_none(&roles),
        age,
        text(node, "/status/nodeInfo/kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ])
}

/// The time since `time`.
fn since(time: &str) -> String {
    let Ok(time) = time.parse::<CompactTimestamp>() else {
        return "<unknown>".to_owned();
    };
    human(time.age(Timestamp::now()).as_secs())
}

/// A duration in one or two units (apimachinery `pkg/util/duration:HumanDuration`).
fn human(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: i64, unit: char, small: i64, small_unit: char| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{small_unit}")
        }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Resource, cells, definitions, human};

    #[test]
    fn every_row_has_a_cell_for_each_column() {
        for resource in Resource::built_in() {
            let cells = cells(resource, &json!({"metadata": {"name": "x"}}));
            let n_cells = cells.as_array().map(Vec::len);
            assert_eq!(n_cells, Some(definitions(resource).len()), "{resource:?}");
        }
    }

    #[test]
    fn durations_are_printed_as_in_upstream() {
        for (seconds, expected) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (700, "11m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (9 * 3600 + 60, "9h"),
            (50 * 3600, "2d2h"),
            (9 * 86_400, "9d"),
            (800 * 86_400, "2y70d"),
        ] {
            assert_eq!(human(seconds), expected);
        }
    }

    #[test]
    fn a_pods_status_is_that_of_its_containers() {
        #[track_caller]
        fn check(pod: &Value, expected: &Value) {
            let cells = cells(Resource::Pods, pod);
            let cells = &cells.as_array().expect("a row")[1..4];
            assert_eq!(&json!(cells), expected);
        }
        let running = json!({"ready": true, "restartCount": 0, "state": {"running": {}}});
        let crashing = json!({
            "ready": false, "restartCount": 3,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        });
        let pod = |phase: &str, status: &Value| {
            json!({
                "metadata": {}, "spec": {"containers": [{}]},
                "status": {"phase": phase, "containerStatuses": [status]},
            })
        };
        check(&pod("Running", &running), &json!(["1/1", "Running", "0"]));
        check(
            &pod("Running", &crashing),
            &json!(["0/1", "CrashLoopBackOff", "3"]),
        );
        let mut deleting = pod("Running", &running);
        deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        check(&deleting, &json!(["1/1", "Terminating", "0"]));
        let mut evicted = pod("Failed", &json!({}));
        evicted["status"]["reason"] = json!("Evicted");
        check(&evicted, &json!(["0/1", "Evicted", "0"]));
    }
}
