//! The types of the Kubernetes API, as far as this server reads their fields: one table for the
//! check of an object's fields and for the decoder of protobuf. The API server checks types, and
//! fields that a kind does not have, while it decodes, before any validation. Pure.
//!
//! DIFFERS: fields that the table does not have may have any type. The server stores unknown
//! fields, so that tests can see how a client handles them. The check of unknown fields misses
//! `null` fields and duplicate fields, and all fields of kinds that the server only stores.

use std::collections::HashMap;
use std::sync::LazyLock;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    Event, Namespace, Node, Pod, ReplicationController, ResourceQuota, ServiceAccount,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::CompactTimestamp;
use crate::json::type_of;
use crate::resource::Resource;

/// Maximum entries of one list.
const LIST_LENGTH_MAX: usize = 10_000;

/// Checks the field types of `object`; the error has the text of Go's decoder. `null` fits every
/// type.
pub(crate) fn check(resource: Resource, object: &Value) -> Result<(), String> {
    check_lengths(object)?;
    let kind = match resource.kind() {
        _ if resource.is_custom() => "CustomObject",
        kind if fields_of(kind).is_some() => kind,
        _ => "Object",
    };
    check_members(kind, object, "")
}

/// DIFFERS: upstream bounds only the bytes of a request. Here a list merge holds the store's lock,
/// and every other request waits for it.
fn check_lengths(value: &Value) -> Result<(), String> {
    match value {
        Value::Array(entries) if entries.len() > LIST_LENGTH_MAX => {
            let n_entries = entries.len();
            Err(format!(
                "a list has {n_entries} entries, and the dev server takes {LIST_LENGTH_MAX}"
            ))
        }
        Value::Array(entries) => entries.iter().try_for_each(check_lengths),
        Value::Object(members) => members.values().try_for_each(check_lengths),
        _ => Ok(()),
    }
}

fn check_members(kind: &'static str, object: &Value, path: &str) -> Result<(), String> {
    for member in fields_of(kind).unwrap_or_default() {
        let value = &object[member.name];
        if !value.is_null() && member.kind != Kind::Skipped {
            let dot = if path.is_empty() { "" } else { "." };
            let place = Place {
                kind,
                path: format!("{path}{dot}{}", member.name),
            };
            place.check(member, value)?;
        }
    }
    Ok(())
}

/// A field in error messages: the type that has it, and its path.
struct Place {
    kind: &'static str,
    path: String,
}

impl Place {
    fn check(&self, member: &Member, value: &Value) -> Result<(), String> {
        let may_be_null = matches!(member.kind, Kind::Text | Kind::Bytes);
        let go_type = go_type(member.kind);
        match member.many {
            Many::One => self.check_one(member.kind, value),
            Many::List => {
                self.fits(value.is_array(), value, &format!("[]{go_type}"))?;
                let entries = value.as_array().into_iter().flatten();
                // DIFFERS: upstream reads `null` as an entry without members. This server keeps
                // what it is sent, and no API server serves `null` here.
                let mut entries = entries.filter(|entry| !(may_be_null && entry.is_null()));
                entries.try_for_each(|entry| self.check_one(member.kind, entry))
            }
            Many::Map => {
                self.fits(value.is_object(), value, &format!("map[string]{go_type}"))?;
                let entries = value.as_object().into_iter().flatten();
                let mut entries = entries.filter(|(_, entry)| !(may_be_null && entry.is_null()));
                entries.try_for_each(|(_, entry)| self.check_one(member.kind, entry))
            }
        }
    }

    fn check_one(&self, kind: Kind, value: &Value) -> Result<(), String> {
        let fits = match kind {
            Kind::Bool => value.is_boolean(),
            Kind::Int32 => value.as_i64().is_some_and(|it| i32::try_from(it).is_ok()),
            Kind::Int64 => value.is_i64(),
            Kind::IntOrString => value.is_i64() || value.is_string(),
            Kind::Quantity if !is_quantity(value) => {
                let rule = "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
                return Err(format!(
                    "quantities must match the regular expression {rule}"
                ));
            }
            Kind::Quantity | Kind::Skipped => true,
            Kind::Message(_) => value.is_object(),
            Kind::Text | Kind::Bytes | Kind::Time | Kind::MicroTime => value.is_string(),
        };
        self.fits(fits, value, &go_type(kind))?;
        match kind {
            Kind::Message(inner) => check_members(inner, value, &self.path),
            Kind::Time => {
                let text = value.as_str().unwrap_or_default();
                // DIFFERS: upstream says which part it could not read.
                let error = format!("parsing time {value} as \"2006-01-02T15:04:05Z07:00\"");
                text.parse::<CompactTimestamp>().map(drop).or(Err(error))
            }
            _ => Ok(()),
        }
    }

    fn fits(&self, fits: bool, value: &Value, go_type: &str) -> Result<(), String> {
        let Self { kind, path } = self;
        let found = match value {
            Value::Number(number) if number.is_f64() => format!("number {number}"),
            value => type_of(value).to_owned(),
        };
        let error = || {
            format!(
                "json: cannot unmarshal {found} into Go struct field {kind}.{path} of type {go_type}"
            )
        };
        fits.then_some(()).ok_or_else(error)
    }
}

fn go_type(kind: Kind) -> String {
    let name = match kind {
        Kind::Bytes => "[]uint8",
        Kind::Int32 => "int32",
        Kind::Int64 => "int64",
        Kind::Bool => "bool",
        Kind::Quantity => "resource.Quantity",
        Kind::IntOrString => "intstr.IntOrString",
        Kind::Message(name) => return format!("v1.{name}"),
        _ => "string",
    };
    name.to_owned()
}

/// True for a quantity, with or without a unit.
fn is_quantity(value: &Value) -> bool {
    let Some(text) = value.as_str() else {
        return value.is_number();
    };
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let unit = digits.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
    let exponent = unit.strip_prefix(['+', '-']).unwrap_or(unit);
    digits.len() < text.len() && exponent.bytes().all(|byte| byte.is_ascii_digit())
}

/// Fields with quantities, which are numbers or texts in a request and texts in the Kubernetes
/// types.
const AMOUNTS: [&str; 5] = ["requests", "limits", "hard", "capacity", "overhead"];

/// The unknown fields of `object` (without `kind` and `apiVersion`), by path, such as
/// `spec.template.spec.containers[0].imagee`. Returns none for an object that does not decode as
/// its kind; other checks report that.
pub(crate) fn unknown_fields(resource: Resource, object: &Value) -> Vec<String> {
    let known = match resource {
        Resource::Pods => round_trip::<Pod>(object),
        Resource::ReplicaSets => round_trip::<ReplicaSet>(object),
        Resource::ReplicationControllers => round_trip::<ReplicationController>(object),
        Resource::Namespaces => round_trip::<Namespace>(object),
        Resource::Events => round_trip::<Event>(object),
        Resource::Leases => round_trip::<Lease>(object),
        Resource::ServiceAccounts => round_trip::<ServiceAccount>(object),
        Resource::Quotas => round_trip::<ResourceQuota>(object),
        Resource::Nodes => round_trip::<Node>(object),
        Resource::Definitions | Resource::Plain(_) => None,
    };
    let mut lost = Vec::new();
    if let Some(known) = known {
        add_lost(object, &known, "", &mut lost);
    }
    lost
}

fn round_trip<T: DeserializeOwned + Serialize>(object: &Value) -> Option<Value> {
    let mut object = object.clone();
    amounts_as_texts(&mut object);
    let read: T = serde_json::from_value(object).ok()?;
    serde_json::to_value(read).ok()
}

fn amounts_as_texts(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member.as_object_mut() {
                    Some(amounts) if AMOUNTS.contains(&name.as_str()) => {
                        for amount in amounts.values_mut().filter(|amount| amount.is_number()) {
                            *amount = Value::String(amount.to_string());
                        }
                    }
                    _ => amounts_as_texts(member),
                }
            }
        }
        Value::Array(entries) => entries.iter_mut().for_each(amounts_as_texts),
        _ => {}
    }
}

fn add_lost(given: &Value, known: &Value, path: &str, lost: &mut Vec<String>) {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => {
            for (name, value) in given {
                let dot = if path.is_empty() { "" } else { "." };
                let path = format!("{path}{dot}{name}");
                match known.get(name) {
                    Some(known) => add_lost(value, known, &path, lost),
                    None if value.is_null() => {}
                    None => lost.push(path),
                }
            }
        }
        (Value::Array(given), Value::Array(known)) => {
            for (index, (given, known)) in given.iter().zip(known).enumerate() {
                add_lost(given, known, &format!("{path}[{index}]"), lost);
            }
        }
        _ => {}
    }
}

/// One type per paragraph: its name in Go, then its fields as `name=NUMBER:TYPE`. The number is the
/// one in `generated.proto` beside each API's `types.go`; a field without one, and a type without
/// any, is read from JSON only. Without `:TYPE` it is a string. `?` marks what Go encodes although
/// it is zero: a zero number or boolean is left out, and a message may only have zero values. `-`
/// is what the server sets itself.
const TYPES: &str = "
TypeMeta apiVersion=1 kind=2
Timestamp seconds=1:int64 nanos=2:int32
OwnerReference kind=1 name=3 uid=4 apiVersion=5 controller=6:bool blockOwnerDeletion=7:bool
ObjectMeta name=1 generateName=2 namespace=3 uid=5 resourceVersion=6 generation=7:-
  creationTimestamp=8:Time deletionTimestamp=9:Time deletionGracePeriodSeconds=10:- labels=11:map
  annotations=12:map ownerReferences=13:[]OwnerReference finalizers=14:[]string managedFields=17:-
ObjectReference kind=1 namespace=2 name=3 uid=4 apiVersion=5 resourceVersion=6 fieldPath=7
LocalObjectReference name=1
LabelSelectorRequirement key=1 operator=2 values=3:[]string
LabelSelector matchLabels=1:map matchExpressions=2:[]LabelSelectorRequirement
Condition type status reason message lastTransitionTime:Time

Object metadata:ObjectMeta spec:Spec
CustomObject metadata:ObjectMeta
Spec
Status

ContainerPort name=1 hostPort=2:int32? containerPort=3:int32 protocol=4 hostIP=5
EnvVar name=1 value=2
ResourceRequirements limits=1:map[Quantity] requests=2:map[Quantity]
Container name=1 image=2 command=3:[]string args=4:[]string workingDir=5 ports=6:[]ContainerPort
  env=7:[]EnvVar resources=8:ResourceRequirements terminationMessagePath=13 imagePullPolicy=14
  terminationMessagePolicy=20
PodSecurityContext
PodSpec containers=2:[]Container restartPolicy=3 terminationGracePeriodSeconds=4:int64
  activeDeadlineSeconds=5:int64 dnsPolicy=6 nodeSelector=7:map serviceAccountName=8
  serviceAccount=9 nodeName=10 hostNetwork:bool securityContext=14:PodSecurityContext
  schedulerName=19 initContainers=20:[]Container priority:int32
ContainerStatus name ready:bool restartCount:int32
PodStatus phase reason message conditions:[]Condition containerStatuses:[]ContainerStatus
  initContainerStatuses:[]ContainerStatus
Pod metadata:ObjectMeta spec:PodSpec status:PodStatus
PodTemplateSpec metadata=1:ObjectMeta spec=2:PodSpec

ReplicaSetSpec replicas:int32 minReadySeconds:int32 selector:LabelSelector
  template:PodTemplateSpec
ReplicaSetStatus replicas:int32 fullyLabeledReplicas:int32 readyReplicas:int32
  availableReplicas:int32 terminatingReplicas:int32 observedGeneration:int64
  conditions:[]Condition
ReplicaSet metadata:ObjectMeta spec:ReplicaSetSpec status:ReplicaSetStatus
ReplicationControllerSpec replicas:int32 minReadySeconds:int32 selector:map
  template:PodTemplateSpec
ReplicationController metadata:ObjectMeta spec:ReplicationControllerSpec status:ReplicaSetStatus
DeploymentStrategy type=1
DeploymentSpec replicas=1:int32 selector=2:LabelSelector template=3:PodTemplateSpec
  strategy=4:DeploymentStrategy minReadySeconds=5:int32? revisionHistoryLimit=6:int32
  paused=7:bool? progressDeadlineSeconds=9:int32
Deployment metadata=1:ObjectMeta spec=2:DeploymentSpec status=3:Status?
StatefulSet metadata:ObjectMeta spec:StatefulSetSpec status:Status
StatefulSetSpec replicas:int32 minReadySeconds:int32 selector:LabelSelector
  template:PodTemplateSpec
DaemonSet metadata:ObjectMeta spec:DaemonSetSpec status:Status
DaemonSetSpec minReadySeconds:int32 selector:LabelSelector template:PodTemplateSpec
JobSpec parallelism=1:int32 completions=2:int32 activeDeadlineSeconds=3:int64
  template=6:PodTemplateSpec backoffLimit=7:int32 ttlSecondsAfterFinished=8:int32 suspend=10:bool
Job metadata=1:ObjectMeta spec=2:JobSpec status=3:Status?
JobTemplateSpec metadata=1:ObjectMeta spec=2:JobSpec
CronJobSpec schedule=1 startingDeadlineSeconds=2:int64 concurrencyPolicy=3 suspend=4:bool
  jobTemplate=5:JobTemplateSpec successfulJobsHistoryLimit=6:int32 failedJobsHistoryLimit=7:int32
  timeZone=8
CronJob metadata=1:ObjectMeta spec=2:CronJobSpec status=3:Status?
PodDisruptionBudgetSpec minAvailable=1:IntOrString selector=2:LabelSelector
  maxUnavailable=3:IntOrString unhealthyPodEvictionPolicy=4
PodDisruptionBudget metadata=1:ObjectMeta spec=2:PodDisruptionBudgetSpec status=3:Status?
PriorityClass metadata=1:ObjectMeta value=2:int32 globalDefault=3:bool? description=4
  preemptionPolicy=5

NamespaceSpec finalizers=1:[]string
NamespaceStatus phase=1 conditions=2:-
Namespace metadata=1:ObjectMeta spec=2:NamespaceSpec status=3:NamespaceStatus
ServiceAccount metadata=1:ObjectMeta secrets=2:[]ObjectReference
  imagePullSecrets=3:[]LocalObjectReference automountServiceAccountToken=4:bool
ScopedResourceSelectorRequirement scopeName=1 operator=2 values=3:[]string
ScopeSelector matchExpressions=1:[]ScopedResourceSelectorRequirement
ResourceQuotaSpec hard=1:map[Quantity] scopes=2:[]string scopeSelector=3:ScopeSelector
ResourceQuotaStatus hard=1:map[Quantity] used=2:map[Quantity]
ResourceQuota metadata=1:ObjectMeta spec=2:ResourceQuotaSpec status=3:ResourceQuotaStatus
LeaseSpec holderIdentity=1 leaseDurationSeconds=2:int32 acquireTime=3:MicroTime
  renewTime=4:MicroTime leaseTransitions=5:int32 strategy=6 preferredHolder=7
Lease metadata=1:ObjectMeta spec=2:LeaseSpec
EventSource component=1 host=2
EventSeries count=1:int32 lastObservedTime=2:MicroTime
Event metadata=1:ObjectMeta involvedObject=2:ObjectReference reason=3 message=4
  source=5:EventSource firstTimestamp=6:Time lastTimestamp=7:Time count=8:int32 type=9
  eventTime=10:MicroTime series=11:EventSeries action=12 related=13:ObjectReference
  reportingComponent=14 reportingInstance=15
ConfigMap metadata=1:ObjectMeta data=2:map binaryData=3:map[bytes] immutable=4:bool
Secret metadata=1:ObjectMeta data=2:map[bytes] type=3 stringData=4:map immutable=5:bool
ServicePort name=1 protocol=2 port=3:int32 targetPort=4:IntOrString nodePort=5:int32? appProtocol=6
ServiceSpec ports=1:[]ServicePort selector=2:map clusterIP=3 type=4 externalIPs=5:[]string
  sessionAffinity=7 externalName=10 ipFamilyPolicy=17 clusterIPs=18:[]string
  ipFamilies=19:[]string
Service metadata=1:ObjectMeta spec=2:ServiceSpec status=3:Status?
ScaleSpec replicas=1:int32
Scale metadata=1:ObjectMeta spec=2:ScaleSpec status=3:-
Binding metadata=1:ObjectMeta target=2:ObjectReference
Preconditions uid=1 resourceVersion=2
DeleteOptions gracePeriodSeconds=1:int64 preconditions=2:Preconditions orphanDependents=3:bool
  propagationPolicy=4 dryRun=5:[]string

PolicyRule verbs=1:[]string apiGroups=2:[]string resources=3:[]string resourceNames=4:[]string
  nonResourceURLs=5:[]string
Role metadata=1:ObjectMeta rules=2:[]PolicyRule
AggregationRule clusterRoleSelectors=1:[]LabelSelector
ClusterRole metadata=1:ObjectMeta rules=2:[]PolicyRule aggregationRule=3:AggregationRule
Subject kind=1 apiGroup=2 name=3 namespace=4
RoleRef apiGroup=1 kind=2 name=3
RoleBinding metadata=1:ObjectMeta subjects=2:[]Subject roleRef=3:RoleRef
ClusterRoleBinding metadata=1:ObjectMeta subjects=2:[]Subject roleRef=3:RoleRef
ResourceAttributes namespace=1 verb=2 group=3 version=4 resource=5 subresource=6 name=7
  fieldSelector=8:- labelSelector=9:-
NonResourceAttributes path=1 verb=2
SubjectAccessReviewSpec resourceAttributes=1:ResourceAttributes
  nonResourceAttributes=2:NonResourceAttributes user=3 groups=4:[]string extra=5:- uid=6
SubjectAccessReview metadata=1:ObjectMeta spec=2:SubjectAccessReviewSpec status=3:-
LocalSubjectAccessReview metadata=1:ObjectMeta spec=2:SubjectAccessReviewSpec status=3:-
SelfSubjectAccessReviewSpec resourceAttributes=1:ResourceAttributes
  nonResourceAttributes=2:NonResourceAttributes
SelfSubjectAccessReview metadata=1:ObjectMeta spec=2:SelfSubjectAccessReviewSpec status=3:-
SelfSubjectRulesReviewSpec namespace=1
SelfSubjectRulesReview metadata=1:ObjectMeta spec=2:SelfSubjectRulesReviewSpec status=3:-
SelfSubjectReview metadata=1:ObjectMeta status=2:-
TokenReviewSpec token=1 audiences=2:[]string
TokenReview metadata=1:ObjectMeta spec=2:TokenReviewSpec status=3:-

QuantityMessage string=1
IntOrStringMessage type=1:int32 intVal=2:int32 strVal=3
";

/// A field of a type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) name: &'static str,
    /// The number in protobuf; 0 without one.
    pub(crate) number: u32,
    pub(crate) many: Many,
    pub(crate) kind: Kind,
    /// See `?` in the table.
    pub(crate) is_zero_absent: bool,
}

/// How many values a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Many {
    One,
    List,
    /// By names.
    Map,
}

/// The type of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Bytes,
    Int32,
    Int64,
    Bool,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// What the server sets itself.
    Skipped,
    /// Another row of the table.
    Message(&'static str),
}

/// The fields of the type `name`; `None` for one that the table does not have.
pub(crate) fn fields_of(name: &str) -> Option<&'static [Member]> {
    static ROWS: LazyLock<HashMap<&str, Vec<Member>>> = LazyLock::new(|| {
        let mut rows = HashMap::new();
        let mut last = "";
        for line in TYPES.lines() {
            let mut words = line.split_whitespace();
            if !line.starts_with(' ') {
                last = words.next().unwrap_or_default();
            }
            let row: &mut Vec<Member> = rows.entry(last).or_default();
            row.extend(words.map(member));
        }
        rows
    });
    ROWS.get(name).map(Vec::as_slice)
}

fn member(word: &'static str) -> Member {
    let (name, kind) = word.split_once(':').unwrap_or((word, "string"));
    let (name, number) = name.split_once('=').unwrap_or((name, "0"));
    let (kind, is_zero_absent) = match kind.strip_suffix('?') {
        Some(kind) => (kind, true),
        None => (kind, false),
    };
    let (many, kind) = if let Some(kind) = kind.strip_prefix("[]") {
        (Many::List, kind)
    } else if let Some(kind) = kind.strip_prefix("map") {
        let kind = kind.trim_matches(['[', ']']);
        (Many::Map, if kind.is_empty() { "string" } else { kind })
    } else {
        (Many::One, kind)
    };
    Member {
        name,
        number: number.parse().expect("a number in the table"),
        many,
        kind: match kind {
            "string" => Kind::Text,
            "bytes" => Kind::Bytes,
            "int32" => Kind::Int32,
            "int64" => Kind::Int64,
            "bool" => Kind::Bool,
            "Time" => Kind::Time,
            "MicroTime" => Kind::MicroTime,
            "Quantity" => Kind::Quantity,
            "IntOrString" => Kind::IntOrString,
            "-" => Kind::Skipped,
            name => Kind::Message(name),
        },
        is_zero_absent,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Kind, Resource, TYPES, check, fields_of, unknown_fields};

    #[track_caller]
    fn wrong(object: &Value, expected: &str) {
        let error = check(Resource::ReplicaSets, object).expect_err("a wrong shape");
        assert_eq!(error, format!("json: cannot unmarshal {expected}"));
    }

    #[test]
    fn wrong_types_get_the_error_texts_of_go() {
        wrong(
            &json!({"spec": {"replicas": "x"}}),
            "string into Go struct field ReplicaSetSpec.spec.replicas of type int32",
        );
        wrong(
            &json!({"spec": {"replicas": 1.5}}),
            "number 1.5 into Go struct field ReplicaSetSpec.spec.replicas of type int32",
        );
        wrong(
            &json!({"spec": {"template": {"spec": {"containers": {}}}}}),
            "object into Go struct field PodSpec.spec.template.spec.containers of type \
             []v1.Container",
        );
        wrong(
            &json!({"metadata": {"labels": {"a": 1}}}),
            "number into Go struct field ObjectMeta.metadata.labels of type string",
        );
        wrong(
            &json!({"metadata": {"labels": []}}),
            "array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
        );
        wrong(
            &json!({"metadata": "x"}),
            "string into Go struct field ReplicaSet.metadata of type v1.ObjectMeta",
        );
        wrong(
            &json!({"spec": []}),
            "array into Go struct field ReplicaSet.spec of type v1.ReplicaSetSpec",
        );
        let fine = json!({
            "metadata": {"labels": {"a": null}, "creationTimestamp": null},
            "spec": {"replicas": null},
        });
        assert_eq!(check(Resource::ReplicaSets, &fine), Ok(()));
    }
    #[test]
    fn times_that_no_controller_could_read_are_refused() {
        let status = |time| json!({"status": {"conditions": [{"lastTransitionTime": time}]}});
        let fine = status(json!("2026-01-01T00:00:00Z"));
        assert_eq!(check(Resource::ReplicaSets, &fine), Ok(()));
        for wrong in [json!("2026-21-01T00:00:00Z"), json!(""), json!(5)] {
            check(Resource::ReplicaSets, &status(wrong)).expect_err("no time");
        }
    }

    #[test]
    fn entries_of_a_list_are_maps() {
        wrong(
            &json!({"status": {"conditions": [{}, null]}}),
            "null into Go struct field ReplicaSetStatus.status.conditions of type v1.Condition",
        );
    }

    #[track_caller]
    fn check_unknown(resource: Resource, object: &Value, expected: &[&str]) {
        assert_eq!(unknown_fields(resource, object), expected);
    }

    #[test]
    fn unknown_fields_are_reported_by_path() {
        let pod = json!({
            "metadata": {"name": "a", "label": {}, "annotations": {"any": "thing"}, "uid": null},
            "spec": {
                "containers": [
                    {"name": "c", "image": "x", "resources": {"requests": {"cpu": 1}}},
                    {"name": "d", "imagee": "x", "ports": [{"containerPort": 1, "name": "p"}]},
                ],
                "nodeSelector": {"any": "thing"},
            },
            "zzz": 1,
        });
        let unknown = ["metadata.label", "spec.containers[1].imagee", "zzz"];
        check_unknown(Resource::Pods, &pod, &unknown);
        let replica_set = json!({"spec": {"Replicas": 1, "template": {"spec": {"bogus": 1}}}});
        let unknown = ["spec.Replicas", "spec.template.spec.bogus"];
        check_unknown(Resource::ReplicaSets, &replica_set, &unknown);
        let quota = json!({"spec": {"hard": {"pods": 2}, "soft": {}}});
        check_unknown(Resource::Quotas, &quota, &["spec.soft"]);
    }

    #[test]
    fn every_type_of_a_field_has_a_row() {
        let names = TYPES.lines().filter(|line| !line.starts_with(' '));
        for name in names.filter_map(|line| line.split_whitespace().next()) {
            for member in fields_of(name).expect("a row") {
                if let Kind::Message(inner) = member.kind {
                    assert!(
                        fields_of(inner).is_some(),
                        "{name}.{}: {inner}",
                        member.name
                    );
                }
            }
        }
    }
}
