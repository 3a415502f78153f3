//! Alternative response forms: tables, which `kubectl get` prints, with the columns of
//! kube-apiserver 1.37 (kubernetes `pkg/printers/internalversion/printers.go`), and metadata only.
//! The server converts lists, objects and watch frames last, after the request itself.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::api::CompactTimestamp;
use crate::exchange::{ApiRequest, Response, ResponseBody};
use crate::json::{condition, entries, is_deleting, members, number, text};
use crate::resource::{Cell, Resource};
use crate::selector::text_of;
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

/// The column definitions of a table.
fn definitions(resource: Resource) -> Vec<Value> {
    let definition = |name: &str, kind: &str, priority: i32| {
        let format = if name == "Name" { "name" } else { "" };
        json!({
            "name": name, "type": kind, "format": format, "description": "",
            "priority": priority,
        })
    };
    let own = resource.row().columns.iter().map(|column| {
        let kind = match column.cell {
            Cell::Count(_) | Cell::Number(_) => "integer",
            _ => "string",
        };
        definition(&column.name, kind, i32::from(column.is_wide))
    });
    let first = (resource != Resource::Events).then(|| definition("Name", "string", 0));
    first.into_iter().chain(own).collect()
}

fn cells(resource: Resource, object: &Value) -> Value {
    let mut name = text(object, "/metadata/name").to_owned();
    if members(object, "/metadata/annotations").any(|it| it.0 == DEFAULT_CLASS && it.1 == "true") {
        name.push_str(" (default)");
    }
    let age = since(text(object, "/metadata/creationTimestamp"));
    match resource {
        Resource::Pods => pod_cells(object, &name, &age),
        Resource::Events => event_cells(object, &name),
        Resource::Quotas => quota_cells(object, &name, &age),
        Resource::Nodes => node_cells(object, &name, &age),
        _ => {
            let own = resource.row().columns.iter();
            let own = own.map(|column| cell_of(&column.cell, object));
            [json!(name)].into_iter().chain(own).collect()
        }
    }
}

/// Marks the StorageClass of claims that name none.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

fn cell_of(cell: &Cell, object: &Value) -> Value {
    let count = |pointer: &str| number(object, pointer).unwrap_or(0);
    match cell {
        Cell::Text(pointer, missing) => match object.pointer(pointer) {
            None | Some(Value::Null) => json!(missing),
            Some(value) => json!(plain(value)),
        },
        Cell::Bool(pointer) => match object.pointer(pointer) {
            Some(Value::Bool(true)) => json!("True"),
            _ => json!("False"),
        },
        Cell::Joined(list, member, missing, is_short) => {
            let values = entries(object, list)
                .iter()
                .filter_map(|it| it.pointer(member));
            let texts = values.map(plain);
            let mut texts: Vec<String> = texts.collect();
            let n_more = texts.len().saturating_sub(3);
            if texts.is_empty() {
                return json!(missing);
            } else if *is_short && n_more > 0 {
                texts.truncate(3);
                return json!(format!("{} + {n_more} more...", texts.join(",")));
            }
            json!(texts.join(","))
        }
        Cell::Pair(first, second, missing) => match [first, second].map(|it| text(object, it)) {
            ["", ""] => json!(missing),
            texts => json!(texts.join("/")),
        },
        Cell::Selector(pointer) => {
            let selector = object.pointer(pointer).unwrap_or(&Value::Null);
            json!(or_none(&text_of(selector)))
        }
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
        Cell::Own(name) => json!(own_cell(name, object)),
    }
}

/// A value as kubectl shows it.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => match text.as_str() {
            "ReadWriteOnce" => "RWO".to_owned(),
            "ReadOnlyMany" => "ROX".to_owned(),
            "ReadWriteMany" => "RWX".to_owned(),
            "ReadWriteOncePod" => "RWOP".to_owned(),
            text => text.to_owned(),
        },
        Value::Array(list) => list.iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// What only one kind has.
fn own_cell(name: &str, object: &Value) -> String {
    let of = |pointer: &str| text(object, pointer);
    match name {
        // Of a Service.
        "address" => match of("/spec/externalName") {
            "" if of("/spec/type") == "LoadBalancer" => "<pending>".to_owned(),
            name => or_none(name).to_owned(),
        },
        "ports" => {
            let port = |port: &Value| {
                let of_node = number(port, "/nodePort").map(|it| format!(":{it}"));
                let (of_node, protocol) = (of_node.unwrap_or_default(), text(port, "/protocol"));
                format!("{}{of_node}/{protocol}", port["port"])
            };
            let ports: Vec<String> = entries(object, "/spec/ports").iter().map(port).collect();
            or_none(&ports.join(",")).to_owned()
        }
        // Of an Ingress.
        "https" if entries(object, "/spec/tls").is_empty() => "80".to_owned(),
        "https" => "80, 443".to_owned(),
        // Of a Job.
        "end" => {
            let mut kinds = ["Complete", "Failed", "Suspended"].into_iter();
            let end = kinds.find(|kind| condition(object, kind) == "True");
            end.unwrap_or("Running").to_owned()
        }
        "duration" => {
            let time = |pointer: &str| of(pointer).parse::<CompactTimestamp>().ok();
            let (Some(begin), end) = (time("/status/startTime"), time("/status/completionTime"))
            else {
                return String::new();
            };
            let age = |time: CompactTimestamp| time.age(Timestamp::now()).as_secs();
            human(age(begin) - end.map_or(0, age))
        }
        // Of a HorizontalPodAutoscaler.
        _ => {
            let targets = entries(object, "/spec/metrics").iter().map(target_of);
            or_none(&targets.collect::<Vec<_>>().join(", ")).to_owned()
        }
    }
}

/// The target of a metric; no metric has a value here.
fn target_of(metric: &Value) -> String {
    let (_, of_kind) = members(metric, "").find(|(_, it)| it.is_object()).unzip();
    let of_kind = of_kind.unwrap_or(&Value::Null);
    let target = &of_kind["target"];
    let amount = match number(target, "/averageUtilization") {
        Some(percent) => format!("{percent}%"),
        None => format!(
            "{}{}",
            text(target, "/averageValue"),
            text(target, "/value")
        ),
    };
    let name = text(of_kind, "/name");
    let name = if name.is_empty() {
        String::new()
    } else {
        format!("{name}: ")
    };
    format!("{name}<unknown>/{amount}")
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
    fn other_kinds_have_the_columns_of_upstream() {
        let of = |group: &str, plural: &str, object: Value| {
            let mut all = Resource::built_in();
            let resource = all.find(|it| it.group() == group && it.plural() == plural);
            let resource = resource.expect("a built-in resource");
            let names = definitions(resource);
            let names = names.iter().map(|it| {
                let wide = if it["priority"] == 1 { "~" } else { "" };
                format!("{wide}{}", it["name"].as_str().unwrap_or_default())
            });
            let cells = cells(resource, &object);
            let cells = cells.as_array().expect("a row").iter();
            let cells = cells.map(|it| it.as_str().map_or(it.to_string(), str::to_owned));
            let pairs = names
                .zip(cells)
                .filter(|(name, _)| !matches!(&**name, "Name" | "Age"));
            let pairs = pairs.map(|(name, cell)| format!("{name}={cell}"));
            pairs.collect::<Vec<_>>().join(" ")
        };
        let spec = json!({"rules": [{"host": "a.b"}, {"host": "b.c"}], "tls": [{}]});
        let ingress = of("networking.k8s.io", "ingresses", json!({"spec": spec}));
        assert_eq!(ingress, "Class=<none> Hosts=a.b,b.c Address= Ports=80, 443");
        let ingress = of("networking.k8s.io", "ingresses", json!({}));
        assert_eq!(ingress, "Class=<none> Hosts=* Address= Ports=80");
        let budget = of(
            "policy",
            "poddisruptionbudgets",
            json!({"spec": {"minAvailable": 1}}),
        );
        let expected = "Min Available=1 Max Unavailable=N/A Allowed Disruptions=0";
        assert_eq!(budget, expected);
        let cpu = json!({"name": "cpu", "target": {"averageUtilization": 80}});
        let memory = json!({"name": "memory", "target": {"averageValue": "100Mi"}});
        let scaler = json!({"spec": {
            "maxReplicas": 5, "scaleTargetRef": {"kind": "Deployment", "name": "d"},
            "metrics": [{"type": "Resource", "resource": cpu}, {"resource": memory}],
        }});
        let expected = "Reference=Deployment/d \
                        Targets=cpu: <unknown>/80%, memory: <unknown>/100Mi Minpods=0 Maxpods=5 \
                        Replicas=0";
        assert_eq!(
            of("autoscaling", "horizontalpodautoscalers", scaler),
            expected
        );
        let pod = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
        let job = json!({"selector": {"matchLabels": {"a": "b"}}, "template": pod});
        let status = json!({
            "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:05Z",
            "conditions": [{"type": "Complete", "status": "True"}], "succeeded": 1,
        });
        let wide = "~Containers=c ~Images=i ~Selector=";
        let of_job = of("batch", "jobs", json!({"spec": job, "status": status}));
        let expected = "Status=Complete Completions=1/0 Duration=5s";
        assert_eq!(of_job, format!("{expected} {wide}a=b"));
        let template = json!({"spec": {"template": pod}});
        let cron = json!({"spec": {"schedule": "* * * * *", "jobTemplate": template}});
        let expected = "Schedule=* * * * * Timezone=<none> Suspend=False Active=0 \
                        Last Schedule=<none>";
        assert_eq!(
            of("batch", "cronjobs", cron),
            format!("{expected} {wide}<none>")
        );
        let modes = json!(["ReadWriteOnce", "ReadOnlyMany"]);
        let spec = json!({"accessModes": modes, "storageClassName": "fast"});
        let volume = json!({"spec": spec, "status": {"phase": "Bound"}});
        let of_claim = of("", "persistentvolumeclaims", json!({"status": spec}));
        let unset = "VolumeAttributesClass=<unset>";
        let expected = format!(
            "Status=<none> Volume= Capacity= Access Modes=RWO,ROX StorageClass= {unset} \
             ~VolumeMode=<unset>"
        );
        assert_eq!(of_claim, expected);
        let expected = format!(
            "Capacity= Access Modes=RWO,ROX Reclaim Policy= Status=Bound Claim= StorageClass=fast \
             {unset} Reason= ~VolumeMode=<unset>"
        );
        assert_eq!(of("", "persistentvolumes", volume), expected);
        let endpoints = ["1", "2", "3", "4"].map(|ip| json!({"addresses": [ip]}));
        let slice = json!({"addressType": "IPv4", "endpoints": endpoints, "ports": [{"port": 80}]});
        let expected = "AddressType=IPv4 Ports=80 Endpoints=1,2,3 + 1 more...";
        assert_eq!(of("discovery.k8s.io", "endpointslices", slice), expected);
        let role = json!({"roleRef": {"kind": "Role", "name": "r"}});
        let rbac = "rbac.authorization.k8s.io";
        assert_eq!(of(rbac, "rolebindings", role), "Role=Role/r");
        let class =
            json!({"metadata": {"name": "x", "annotations": {super::DEFAULT_CLASS: "true"}}});
        let mut all = Resource::built_in();
        let classes = all.find(|it| it.plural() == "storageclasses");
        assert_eq!(
            cells(classes.expect("a resource"), &class)[0],
            "x (default)"
        );
        let balancer = json!({"spec": {
            "type": "LoadBalancer", "selector": {"b": "c", "a": "b"},
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 32588}],
        }});
        let expected = "Type=LoadBalancer Cluster-IP=<none> External-IP=<pending> \
                        Port(s)=80:32588/TCP ~Selector=a=b,b=c";
        assert_eq!(of("", "services", balancer), expected);
        assert_eq!(of("coordination.k8s.io", "leases", json!({})), "Holder=");
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
