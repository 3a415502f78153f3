//! What is a sign of room, and both encodings.

use prost::Message;
use serde_json::{Value, json};

use super::{QuantityMessage, ResourceQuota, StatusMessage};
use crate::api::ObjectKey;
use crate::api::interner::Interner;
use crate::api::protobuf::ObjectMeta;

fn quota(hard: &Value, used: &Value) -> ResourceQuota {
    let object = json!({
        "metadata": {"namespace": "shop", "name": "few", "uid": "1-2", "resourceVersion": "7"},
        "status": {"hard": hard, "used": used},
    });
    let json = object.to_string();
    ResourceQuota::from_json(json.as_bytes(), &mut Interner::default()).expect("a quota")
}

fn pods(hard: u32, used: u32) -> ResourceQuota {
    let amount = |n: u32| json!({"pods": n.to_string()});
    quota(&amount(hard), &amount(used))
}

#[test]
fn more_room_is_a_higher_limit_or_a_lower_usage() {
    let full = pods(10, 10);
    for (now, is_sign, why) in [
        (pods(10, 9), true, "a pod has ended"),
        (pods(11, 10), true, "the limit is raised"),
        (pods(10, 10), false, "as before"),
        (pods(10, 11), false, "more is used"),
        (pods(9, 10), false, "the limit is lowered"),
    ] {
        assert_eq!(now.shows_more_room_than(Some(&full)), is_sign, "{why}");
    }
    let over = pods(10, 14);
    assert!(
        !pods(10, 12).shows_more_room_than(Some(&over)),
        "still over"
    );
    assert!(!pods(10, 10).shows_more_room_than(Some(&over)), "just full");
    assert!(pods(10, 9).shows_more_room_than(Some(&over)));
    assert!(pods(10, 9).shows_more_room_than(None));
    assert!(!pods(10, 10).shows_more_room_than(None));
}

#[test]
fn a_place_that_is_taken_is_no_sign() {
    let states: Vec<ResourceQuota> = (0..=10).map(|used| pods(10, used)).collect();
    let mut changes = states.iter().zip(&states[1..]);
    assert!(changes.all(|(old, new)| !new.shows_more_room_than(Some(old))));
}

#[test]
fn each_resource_of_pods_counts_for_itself() {
    // No pod may use a GPU. The others wait for memory.
    let gpu = "requests.nvidia.com/gpu";
    let of = |memory: &str| {
        let used = json!({gpu: "0", "requests.memory": memory, "services": "1"});
        quota(
            &json!({gpu: "0", "requests.memory": "4Gi", "services": "5"}),
            &used,
        )
    };
    assert!(of("3968Mi").shows_more_room_than(Some(&of("4Gi"))));
    assert!(!of("4Gi").shows_more_room_than(Some(&of("3968Mi"))));

    let services = |used: &str| {
        let hard = json!({"pods": "1", "services": "5", "requests.storage": "9Gi"});
        quota(
            &hard,
            &json!({"pods": "1", "services": used, "requests.storage": used}),
        )
    };
    let fewer = services("2").shows_more_room_than(Some(&services("3")));
    assert!(!fewer, "pods use neither");
}

#[test]
fn a_usage_that_is_not_counted_leaves_no_room() {
    let hard = json!({"pods": "10"});
    let none = json!({});
    let (empty, uncounted) = (quota(&none, &none), quota(&hard, &none));
    assert!(!uncounted.shows_more_room_than(Some(&empty)));
    assert!(pods(10, 3).shows_more_room_than(Some(&uncounted)));
    assert!(pods(10, 3).shows_more_room_than(Some(&empty)));
    assert!(
        empty.shows_more_room_than(Some(&pods(10, 10))),
        "not limited any more"
    );
}

#[test]
fn both_encodings_mean_the_same() {
    let amounts = |amount: &str| {
        let text = amount.to_owned();
        [("pods".to_owned(), QuantityMessage { text })].into()
    };
    let metadata = ObjectMeta {
        name: "few".to_owned(),
        namespace: "shop".to_owned(),
        uid: "1-2".to_owned(),
        resource_version: "7".to_owned(),
        ..ObjectMeta::default()
    };
    let status = StatusMessage {
        hard: amounts("10"),
        used: amounts("4"),
    };
    let mut message = Vec::new();
    for (tag, part) in [(1, metadata.encode_to_vec()), (3, status.encode_to_vec())] {
        crate::api::protobuf::wire::put_bytes(tag, part, &mut message);
    }
    let read = ResourceQuota::from_protobuf(&message, &mut Interner::default());
    assert_eq!(read, Ok(pods(10, 4)));
    assert_eq!(pods(10, 4).key, ObjectKey::new("shop", "few"));
}

#[test]
fn a_new_quota_has_no_status() {
    let json = br#"{"metadata": {"name": "few", "namespace": null}, "status": null}"#;
    let quota = ResourceQuota::from_json(json, &mut Interner::default()).expect("a quota");
    assert!(!quota.shows_more_room_than(None));
}
