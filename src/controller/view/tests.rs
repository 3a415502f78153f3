//! Groups D and E, the part about related pods.

use serde_json::json;

use crate::api::workload_kind::REPLICA_SET;
use crate::api::{Pod, ReplicaSet};
use crate::controller::testing::{
    Fixture, controller_ref, deletes, fixture, owned_pod, ready_pod, seconds_ago,
};

/// A ReplicaSet controlled by a Deployment.
fn of_deployment(name: &str, labels: &[(&str, &str)], uid: &str) -> ReplicaSet {
    let mut object = crate::controller::testing::replica_set_json(name, 1);
    let labels: std::collections::BTreeMap<_, _> = labels.iter().copied().collect();
    object["spec"]["selector"] = json!({"matchLabels": labels});
    let mut rs = crate::controller::testing::read_replica_set(&object);
    rs.controller = Some(controller_ref("Deployment", "deployment", uid));
    rs
}

fn labelled(pod: Pod, track: &str) -> Pod {
    Pod {
        labels: [("type", "production"), ("track", track)]
            .into_iter()
            .collect(),
        ..pod
    }
}

/// Returns the pods related to those of `new`, which has two pods on two nodes.
fn related(fixture: &Fixture, rs: &ReplicaSet) -> Vec<String> {
    use super::Siblings;
    use crate::controller::decide::deletion_order::RelatedPods;
    let selector = rs.selector.as_ref().expect("a valid selector");
    let siblings = Siblings {
        kind: &REPLICA_SET,
        cache: &fixture.cache,
        rs,
        selector,
    };
    let pods = siblings.related_pods();
    let mut names: Vec<String> = pods.iter().map(|pod| pod.key.name.to_string()).collect();
    names.sort();
    names
}

#[test]
fn d_21_e_22_e_23_related_pods_are_those_of_the_same_controller() {
    let new = of_deployment("new", &[("track", "new")], "uid-d");
    let old = of_deployment("old", &[("track", "old")], "uid-d");
    let strange = of_deployment("strange", &[("track", "strange")], "uid-other");
    let pods = [
        labelled(owned_pod("pod1", &new), "new"),
        labelled(owned_pod("pod2", &new), "new"),
        labelled(owned_pod("pod3", &old), "old"),
        labelled(owned_pod("pod4", &strange), "strange"),
    ];
    let fixture = fixture(&new, pods);
    fixture.cache_silently(Some(strange), []);
    assert_eq!(related(&fixture, &new), ["pod1", "pod2"]);
    fixture.cache_silently(Some(old), []);
    assert_eq!(related(&fixture, &new), ["pod1", "pod2", "pod3"]);
    let orphan = |name: &str, track: &str| labelled(crate::controller::testing::pod(name), track);
    let orphans = [orphan("orphan1", "old"), orphan("orphan2", "strange")];
    fixture.cache_silently(None, orphans.clone());
    assert_eq!(
        related(&fixture, &new),
        ["orphan1", "pod1", "pod2", "pod3"],
        "an orphan counts that a sibling selects"
    );
    for orphan in orphans {
        fixture.deliver_pod_deleted(orphan);
    }
    let mut alone = new.clone();
    alone.controller = None;
    assert_eq!(related(&fixture, &alone), [""; 0]);

    // A ReplicaSet that is not in the cache still counts its own pods.
    let mut leaving = new;
    leaving.deletion = Some(seconds_ago(0));
    fixture.deliver_replica_set_deleted(leaving.clone());
    assert_eq!(related(&fixture, &leaving), ["pod1", "pod2", "pod3"]);
}

#[test]
fn e_22_the_node_of_the_sibling_loses_pods_first() {
    let new = of_deployment("new", &[("track", "new")], "uid-d");
    let old = of_deployment("old", &[("track", "old")], "uid-d");
    let on = |pod: Pod, node: &str| Pod {
        node: Some(node.into()),
        ..pod
    };
    let pods = [
        on(labelled(ready_pod("a", &new), "new"), "node-1"),
        on(labelled(ready_pod("b", &new), "new"), "node-2"),
        on(labelled(ready_pod("r", &old), "old"), "node-2"),
    ];
    let fixture = fixture(&new, pods);
    fixture.cache_silently(Some(old), []);
    fixture.sync_ok("new");
    assert_eq!(deletes(&fixture), ["b"]);
}
