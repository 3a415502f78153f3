//! Objects that are as expensive as the API server allows: bounds on the memory that a decoded
//! object takes, and on the time and memory of decoding it.

use std::time::Duration;

use allocation_counter::{AllocationInfo, measure};
use serde_json::{Value, json};

use super::encode::{self, Table};
use crate::api::interner::Interner;
use crate::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use crate::api::{Labels, Pod, ReplicaSet};
use crate::stdx::testing::thread_time;

/// What the allocator adds to an allocation.
const OVERHEAD: u64 = 16;

/// Bytes that any decoded object may take, in addition to those in proportion to its encoded size.
/// The decoded conditions take half of it.
const BASE: u64 = 8 << 10;

#[derive(Clone, Copy)]
enum Kind {
    Pod,
    ReplicaSet,
    ReplicationController,
}

fn set(n: usize) -> Value {
    prefixed(n, "")
}

fn prefixed(n: usize, prefix: &str) -> Value {
    let entries = (0..n).map(|i| (format!("{prefix}{i:x}"), Value::from("")));
    Value::Object(entries.collect())
}

fn list(n: usize, element: impl Fn(String) -> Value) -> Value {
    (0..n).rev().map(|i| element(format!("{i:x}"))).collect()
}

type Named = (&'static str, Kind, Value);

fn metadata(field: &str, value: &Value) -> Value {
    json!({"metadata": {"name": "a", field: value}, "spec": {}})
}

/// ReplicaSets and ReplicationControllers with `n` entries of one kind in the selector.
fn selectors(n: usize) -> Vec<Named> {
    let labelled = || json!({"metadata": {"labels": set(n)}});
    let of = |selector: Value| {
        let spec = json!({"selector": selector, "template": labelled()});
        json!({"metadata": {"name": "a"}, "spec": spec})
    };
    let expressions = |list: Value| {
        let spec = json!({"selector": {"matchExpressions": list}});
        json!({"metadata": {"name": "a"}, "spec": spec})
    };
    let one = |operator: &str, values: Value| {
        expressions(json!([{"key": "a", "operator": operator, "values": values}]))
    };
    let in_each = |_| json!({"key": "a", "operator": "In", "values": ["b"]});
    let exists = |_| json!({"key": "a", "operator": "Exists"});
    let rs = Kind::ReplicaSet;
    vec![
        ("values of In", rs, one("In", list(n, Value::from))),
        ("equal values", rs, one("NotIn", list(n, |_| "a".into()))),
        ("In of one value", rs, expressions(list(n, in_each))),
        ("Exists", rs, expressions(list(n, exists))),
        ("matchLabels", rs, of(json!({"matchLabels": set(n)}))),
        ("selector", Kind::ReplicationController, of(set(n))),
    ]
}

/// Objects with `n` entries elsewhere: labels, owners, conditions, containers.
fn others(n: usize) -> Vec<Named> {
    let owner = |uid: String| json!({"apiVersion": "v", "kind": "K", "name": "n", "uid": uid});
    let owners = || metadata("ownerReferences", &list(n, owner));
    let opt_ins = || metadata("annotations", &prefixed(n, "replicaset-controller/"));
    let condition = |name: String| json!({"type": name, "status": ""});
    let mut conditions = metadata("uid", &"u".into());
    conditions["status"] = json!({"conditions": list(n, condition)});
    let container = |name: String| json!({"name": name, "restartPolicy": "Always"});
    let restarts = |name: String| {
        let left = usize::from_str_radix(&name, 16).unwrap_or_default();
        json!({"name": name, "restartCount": n - left})
    };
    let sidecars = json!({"metadata": {"name": "a"},
        "spec": {"initContainers": list(n, container)},
        "status": {"initContainerStatuses": list(n, restarts)}});
    let (rs, pod) = (Kind::ReplicaSet, Kind::Pod);
    vec![
        ("labels", rs, metadata("labels", &set(n))),
        ("annotations", rs, metadata("annotations", &set(n))),
        ("opt-ins", rs, opt_ins()),
        ("owners", rs, owners()),
        ("conditions", rs, conditions),
        ("labels", pod, metadata("labels", &set(n))),
        ("annotations", pod, opt_ins()),
        ("owners", pod, owners()),
        ("sidecars", pod, sidecars),
    ]
}

fn table(kind: Kind) -> Table {
    match kind {
        Kind::Pod => encode::POD,
        Kind::ReplicaSet => encode::REPLICA_SET,
        Kind::ReplicationController => encode::REPLICATION_CONTROLLER,
    }
}

/// Decodes an object and returns the allocations: in total, at most at once, and those still held.
fn decode(kind: Kind, bytes: &[u8], is_json: bool) -> AllocationInfo {
    let interner = &mut Interner::default();
    let workload = match kind {
        Kind::ReplicationController => &REPLICATION_CONTROLLER,
        _ => &REPLICA_SET,
    };
    let (mut pod, mut set) = (None, None);
    let spent = measure(|| match (kind, is_json) {
        (Kind::Pod, true) => pod = Pod::from_json(bytes, interner).ok(),
        (Kind::Pod, false) => pod = Pod::from_protobuf(bytes, interner).ok(),
        (_, true) => set = ReplicaSet::of_kind(workload, bytes, interner).ok(),
        (_, false) => set = ReplicaSet::from_protobuf(workload, bytes, interner).ok(),
    });
    assert!(pod.is_some() || set.is_some(), "it cannot be read");
    spent
}

fn each(n: usize, mut check: impl FnMut(&str, Kind, &[u8], bool)) {
    for (name, kind, object) in selectors(n).into_iter().chain(others(n)) {
        let message = encode::message(&object, table(kind)).expect("as the API has it");
        check(name, kind, &message, false);
        check(name, kind, object.to_string().as_bytes(), true);
    }
}

#[test]
fn an_object_takes_at_most_twice_its_encoded_bytes() {
    each(20_000, |name, kind, bytes, is_json| {
        let spent = decode(kind, bytes, is_json);
        let count = u64::try_from(spent.count_current).expect("nothing is freed twice");
        let kept = u64::try_from(spent.bytes_current).expect("as above") + OVERHEAD * count;
        let n = bytes.len() as u64;
        let sizes = format!("{name}, JSON: {is_json}: {n} bytes take {kept}, at times {spent:?}");
        assert!(kept <= 2 * n + BASE, "{sizes}");
        assert!(spent.bytes_max <= 6 * n + BASE, "{sizes}");
    });
}

/// The CPU time of `work`: the least of three runs, since other processes evict the CPU's caches.
fn time(work: impl Fn()) -> Duration {
    let times = (0..3).map(|_| {
        let before = thread_time();
        work();
        thread_time().saturating_sub(before)
    });
    times.min().expect("three")
}

/// `many` is for eight times the input of `few`: quadratic code would take 64 times as long.
#[track_caller]
fn check_linear(name: &str, few: Duration, many: Duration) {
    assert!(many < 24 * few, "{name}: {few:?}, then {many:?}");
}

#[test]
fn decoding_is_linear() {
    let mut few = Vec::new();
    each(2_000, |_, kind, bytes, is_json| {
        few.push(time(|| _ = decode(kind, bytes, is_json)));
    });
    let mut few = few.into_iter();
    each(16_000, |name, kind, bytes, is_json| {
        let many = time(|| _ = decode(kind, bytes, is_json));
        check_linear(name, few.next().expect("as many"), many);
    });
}

#[test]
fn labels_in_any_order_are_sorted_once() {
    let read = |n: usize| {
        let labels = (0..n).rev().map(|i| (format!("{i:09}"), ""));
        let labels: Vec<_> = labels.collect();
        time(|| {
            drop(
                labels
                    .iter()
                    .map(|(key, value)| (&**key, *value))
                    .collect::<Labels>(),
            );
        })
    };
    check_linear("labels", read(4_000), read(32_000));
}
