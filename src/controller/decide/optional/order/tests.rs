//! The preferences of `scale-down-order`: cases, small clusters against every possible choice, and
//! random clusters against upstream's order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use fastrand::Rng;
use serde_json::json;

use super::{Candidate, choose};
use crate::api::policy::ScaleDownOrder;
use crate::api::{Pod, PodPhase, ReplicaSet};
use crate::controller::decide::deletion_order::{
    DeletionContext, DeletionOrder, NodeCounts, RelatedPods, count_on_node, pods_to_delete,
};
use crate::controller::decide::optional::Marks;
use crate::controller::testing::{
    controller_ref, now, owned_pod, read_replica_set, ready_pod, replica_set, replica_set_json,
    seconds_ago,
};
use crate::stdx::HashMap;

const ZONE: &str = "topology.kubernetes.io/zone";
const ORDERS: [&str; 4] = [
    "spread",
    "consolidate",
    "spread,consolidate",
    "consolidate,spread",
];

static WEB: LazyLock<ReplicaSet> = LazyLock::new(|| replica_set("web", 1));

/// A cluster in which the ReplicaSet `web` owns some pods.
#[derive(Debug)]
struct Cluster {
    all: Vec<Arc<Pod>>,
    owned: Vec<Arc<Pod>>,
}

impl RelatedPods for Cluster {
    fn related_pods(&self) -> Vec<Arc<Pod>> {
        self.owned.clone()
    }

    fn active_pods_per_node(&self) -> NodeCounts {
        let mut counts = NodeCounts::default();
        for pod in &self.all {
            count_on_node(pod, &mut counts);
        }
        counts
    }
}

impl Cluster {
    fn of(pods: impl IntoIterator<Item = Pod>) -> Self {
        let all: Vec<_> = pods.into_iter().map(Arc::new).collect();
        let is_owned = |pod: &&Arc<Pod>| pod.is_controlled_by(&WEB.uid);
        let owned = all.iter().filter(is_owned).cloned().collect();
        Self { all, owned }
    }

    /// The pods of `rs` that a scale-down by `count` deletes, after these of unknown outcome.
    fn choose_of(
        &self,
        rs: &ReplicaSet,
        count: usize,
        order: &str,
        unresolved: &[&str],
    ) -> Vec<Arc<Pod>> {
        let unresolved: Vec<_> = unresolved.iter().map(|uid| (*uid).into()).collect();
        let context = DeletionContext {
            related_pods: self,
            unresolved: &unresolved,
            order: DeletionOrder {
                now: now(),
                uses_deletion_cost: true,
                marks: Marks::Ignored,
            },
            preferences: order.parse::<ScaleDownOrder>().expect("an order"),
            rs,
        };
        pods_to_delete(&self.owned, count, &context)
    }

    fn choose(&self, count: usize, order: &str) -> Vec<Arc<Pod>> {
        self.choose_of(&WEB, count, order, &[])
    }

    /// Highest minus lowest number of the ReplicaSet's pods, over the zones that had any.
    fn skew_without(&self, deleted: &[Arc<Pod>]) -> usize {
        let mut zones: BTreeMap<Option<&str>, usize> = BTreeMap::new();
        let gone: BTreeSet<_> = deleted.iter().map(|pod| &pod.uid).collect();
        for pod in &self.owned {
            *zones.entry(pod.labels.get(ZONE)).or_default() +=
                usize::from(!gone.contains(&pod.uid));
        }
        let (max, min) = (zones.values().max(), zones.values().min());
        max.unwrap_or(&0) - min.unwrap_or(&0)
    }

    /// Number of nodes whose pods, except those that belong to the node, are all deleted.
    fn n_emptied_by(&self, deleted: &[Arc<Pod>]) -> usize {
        let gone: BTreeSet<_> = deleted.iter().map(|pod| &pod.uid).collect();
        let mut left = NodeCounts::default();
        let stays = |pod: &&Arc<Pod>| !gone.contains(&pod.uid);
        let staying = self.all.iter().filter(stays);
        staying.for_each(|pod| count_on_node(pod, &mut left));
        self.active_pods_per_node().len() - left.len()
    }
}

fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
    pods.iter().map(|pod| &*pod.key.name).collect()
}

/// A Ready pod of `web`.
fn ready(name: &str, node: &str, zone: &str) -> Pod {
    let mut labels = vec![("type", "production")];
    labels.extend((!zone.is_empty()).then_some((ZONE, zone)));
    Pod {
        node: Some(node.into()),
        labels: labels.into_iter().collect(),
        ..ready_pod(name, &WEB)
    }
}

/// A pod of another owner.
fn other(name: &str, node: &str, kind: &str) -> Pod {
    Pod {
        controller: Some(controller_ref(kind, "other", "uid-other")),
        ..ready(name, node, "")
    }
}

#[track_caller]
fn check(cluster: &Cluster, order: &str, count: usize, expected: &[&str]) {
    let chosen = cluster.choose(count, order);
    assert_eq!(names(&chosen), expected, "{order}, {count}");
}

#[test]
fn spread_takes_from_the_fullest_zone_and_counts_anew() {
    let cluster = Cluster::of([
        ready("a1", "n1", "a"),
        ready("b1", "n2", "b"),
        ready("b2", "n2", "b"),
        ready("c1", "n3", "c"),
        ready("c2", "n4", "c"),
        ready("c3", "n5", "c"),
    ]);
    check(&cluster, "off", 3, &["b1", "b2", "a1"]);
    check(&cluster, "spread", 1, &["c1"]);
    check(&cluster, "spread", 3, &["c1", "b1", "c2"]);
    check(&cluster, "spread", 4, &["c1", "b1", "c2", "b2"]);
}

#[test]
fn the_topology_is_the_templates_own() {
    let cluster = Cluster::of([
        ready("a1", "n1", "a"),
        ready("a2", "n2", "a"),
        ready("b1", "n3", "b"),
        ready("b2", "n3", "b"),
        ready("a3", "n4", "a"),
    ]);
    let with = |key: &str| {
        let mut object = replica_set_json("web", 1);
        object["spec"]["template"]["spec"]["topologySpreadConstraints"] = json!([
            {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"},
        ]);
        read_replica_set(&object)
    };
    for (key, expected) in [
        (ZONE, "a1"),
        ("kubernetes.io/hostname", "b1"),
        // No pod carries this label, and the controller may not read nodes.
        ("example.com/rack", "b1"),
    ] {
        let chosen = cluster.choose_of(&with(key), 1, "spread", &[]);
        assert_eq!(names(&chosen), [expected], "{key}");
    }
}

#[test]
fn readiness_and_deletion_cost_precede_preferences() {
    let cost = |deletion_cost, pod: Pod| Pod {
        deletion_cost,
        ..pod
    };
    let cluster = Cluster::of([
        ready("a1", "n1", "a"),
        ready("a2", "n1", "a"),
        ready("a3", "n2", "a"),
        cost(-1, ready("b1", "n3", "b")),
        cost(1, ready("a4", "n4", "a")),
        Pod {
            is_ready: false,
            ..ready("b2", "n3", "b")
        },
        Pod {
            node: None,
            phase: PodPhase::Pending,
            ..owned_pod("c1", &WEB)
        },
    ]);
    for order in ORDERS {
        let chosen = cluster.choose(3, order);
        assert_eq!(names(&chosen), ["c1", "b2", "b1"], "{order}");
    }
    // b1 and b2 are gone before the preference counts, and they empty n3.
    check(&cluster, "consolidate", 4, &["c1", "b2", "b1", "a3"]);
    check(&cluster, "spread", 4, &["c1", "b2", "b1", "a1"]);
}

/// kubernetes/kubernetes#138718: 5 nodes with 4 pods each, 20 replicas to 10.
#[test]
fn consolidate_empties_nodes() {
    let on = |node: usize, n: usize| ready(&format!("p-{n}-{node}"), &format!("n{node}"), "");
    let cluster = Cluster::of((0..4).flat_map(|n| (0..5).map(move |node| on(node, n))));
    assert_eq!(cluster.n_emptied_by(&cluster.choose(10, "off")), 0);
    let chosen = cluster.choose(10, "consolidate");
    assert_eq!(cluster.n_emptied_by(&chosen), 2);
    // The rest is of one node, which so needs fewer pods to become empty the next time.
    let nodes: Vec<_> = chosen
        .iter()
        .filter_map(|pod| pod.node.as_deref())
        .collect();
    assert_eq!(nodes[8..], ["n2", "n2"]);
    assert_eq!(cluster.n_emptied_by(&cluster.choose(19, "consolidate")), 4);
}

#[test]
fn pods_of_other_owners_keep_a_node_from_being_empty() {
    let cluster = Cluster::of([
        ready("a", "n1", ""),
        other("x", "n1", "StatefulSet"),
        ready("b", "n2", ""),
        ready("c", "n2", ""),
        other("y", "n2", "DaemonSet"),
        other("z", "n2", "Node"),
        ready("d", "n3", ""),
        other("v", "n3", "ReplicaSet"),
        other("w", "n3", "Job"),
    ]);
    // One pod empties no node: it is deleted from a node with fewest pods.
    check(&cluster, "consolidate", 1, &["b"]);
    // A DaemonSet's pod and a static pod are on the node because it exists.
    check(&cluster, "consolidate", 2, &["b", "c"]);
    check(&cluster, "consolidate", 3, &["b", "c", "a"]);
}

#[test]
fn a_finished_or_terminating_pod_keeps_no_node() {
    let gone = |name| Pod {
        deletion: Some(seconds_ago(1)),
        ..other(name, "n2", "Job")
    };
    let failed = |name| Pod {
        phase: PodPhase::Failed,
        ..other(name, "n2", "Job")
    };
    let cluster = Cluster::of([
        ready("a", "n1", ""),
        other("x", "n1", "Job"),
        ready("b", "n2", ""),
        gone("y"),
        failed("z"),
    ]);
    check(&cluster, "consolidate", 1, &["b"]);
}

#[test]
fn of_two_preferences_the_first_has_precedence() {
    let cluster = Cluster::of([
        ready("a1", "n1", "a"),
        ready("a2", "n2", "a"),
        ready("a3", "n2", "a"),
        ready("a4", "n2", "a"),
        ready("b1", "n3", "b"),
        ready("b2", "n4", "b"),
        ready("b3", "n4", "b"),
    ]);
    // Zone a has most pods, and n1 is the node of that zone that can be emptied.
    check(&cluster, "spread,consolidate", 1, &["a1"]);
    check(&cluster, "spread", 1, &["a2"]);
    // n1 and n3 can be emptied; n1 is in the fuller zone.
    check(&cluster, "consolidate,spread", 1, &["a1"]);
    check(&cluster, "consolidate,spread", 3, &["a1", "b1", "b2"]);
    check(&cluster, "consolidate", 4, &["a1", "b1", "b2", "b3"]);
    // Zone b could be emptied whole; `spread` takes from both all the same.
    check(&cluster, "spread,consolidate", 3, &["a1", "a2", "b1"]);
}

#[test]
fn a_pod_that_came_meanwhile_keeps_its_node_and_no_other() {
    let mut cluster = Cluster::of([
        ready("a", "n1", ""),
        ready("b", "n2", ""),
        ready("c", "n2", ""),
    ]);
    check(&cluster, "consolidate", 1, &["a"]);
    cluster.all.push(Arc::new(other("x", "n1", "Job")));
    check(&cluster, "consolidate", 2, &["b", "c"]);
}

#[test]
fn a_delete_of_unknown_outcome_is_repeated_and_not_counted() {
    let cluster = Cluster::of([
        ready("a1", "n1", "a"),
        ready("a2", "n1", "a"),
        ready("a3", "n1", "a"),
        ready("b1", "n2", "b"),
        ready("b2", "n2", "b"),
    ]);
    let chosen = cluster.choose_of(&WEB, 2, "spread", &["uid-a3"]);
    // Both zones have two pods left, so upstream's order decides.
    assert_eq!(names(&chosen), ["a3", "a1"]);
    let chosen = cluster.choose_of(&WEB, 3, "consolidate", &["uid-b1"]);
    assert_eq!(names(&chosen), ["b1", "b2", "a1"]);
}

#[test]
fn pods_of_unknown_outcome_do_not_fill_their_zone() {
    let cluster = Cluster::of([
        ready("a1", "n1", "a"),
        ready("a2", "n1", "a"),
        ready("a3", "n1", "a"),
        ready("b1", "n2", "b"),
        ready("b2", "n2", "b"),
        ready("b3", "n2", "b"),
        ready("b4", "n2", "b"),
    ]);
    let chosen = cluster.choose_of(&WEB, 3, "spread", &["uid-b3", "uid-b4"]);
    assert_eq!(names(&chosen).last(), Some(&"a1"), "b has two pods left");
}

#[test]
fn a_pod_of_an_earlier_class_is_not_counted() {
    let not_ready = |name| Pod {
        is_ready: false,
        ..ready(name, "n2", "b")
    };
    let cluster = Cluster::of([
        ready("a1", "n1", "a"),
        ready("a2", "n1", "a"),
        not_ready("b1"),
        not_ready("b2"),
        not_ready("b3"),
        ready("b4", "n2", "b"),
    ]);
    let chosen = cluster.choose(4, "spread");
    assert_eq!(names(&chosen).last(), Some(&"a1"), "b has one pod left");
}

/// Every way to place up to 5 candidates on 3 nodes with up to 2 other pods, in 2 domains with up
/// to 1 other pod, and every number to delete.
#[test]
fn no_choice_of_a_small_cluster_is_better() {
    for n in 1..=5_u32 {
        for placing in 0..6_usize.pow(n) {
            let place = |at: u32| placing / 6_usize.pow(at) % 6;
            let candidate = |at: u32| (place(at) % 3, place(at) / 3);
            let candidates: Vec<_> = (0..n).map(candidate).collect();
            let others = placing % 7;
            check_every_choice(&candidates, [others % 3, others % 2, 0], [others % 2, 0]);
        }
    }
}

#[track_caller]
fn check_every_choice(candidates: &[(usize, usize)], others: [usize; 3], elsewhere: [usize; 2]) {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let (mut on_node, mut in_domain) = (others, elsewhere);
    for (node, domain) in candidates {
        on_node[*node] += 1;
        in_domain[*domain] += 1;
    }
    let judge = |chosen: u32| {
        let (mut nodes, mut domains) = (on_node, in_domain);
        for (at, (node, domain)) in candidates.iter().enumerate() {
            let is_chosen = usize::from(chosen & (1 << at) != 0);
            nodes[*node] -= is_chosen;
            domains[*domain] -= is_chosen;
        }
        let is_emptied = |(before, after): &(&usize, &usize)| **before > 0 && **after == 0;
        let n_emptied = on_node.iter().zip(&nodes).filter(is_emptied).count();
        let those = domains.iter().zip(&in_domain).filter(|it| *it.1 > 0);
        let those = those.map(|it| *it.0);
        let skew = those.clone().max().unwrap_or(0) - those.min().unwrap_or(0);
        (n_emptied, skew)
    };
    let named = candidates.iter().map(|(node, domain)| Candidate {
        node: NAMES[*node],
        domain: NAMES[*domain],
    });
    let named: Vec<_> = named.collect();
    let domains: HashMap<_, _> = NAMES.into_iter().zip(in_domain).collect();
    let names = NAMES.into_iter().map(Into::into);
    let nodes: NodeCounts = names.zip(on_node).collect();
    let subsets = 0..1_u32 << candidates.len();
    for count in 1..candidates.len() {
        let of_this_size = subsets
            .clone()
            .filter(|subset| subset.count_ones() as usize == count);
        let judged: Vec<_> = of_this_size.map(judge).collect();
        let most_emptied = judged.iter().map(|it| it.0).max().expect("a subset");
        let least_skew = judged.iter().map(|it| it.1).min().expect("a subset");
        for order in ORDERS {
            let order_of: ScaleDownOrder = order.parse().expect("an order");
            let chosen = choose(&named, count, order_of, &domains, &nodes);
            let subset = chosen.iter().fold(0_u32, |all, (at, _)| all | 1 << at);
            assert_eq!(subset.count_ones() as usize, count, "{order}");
            let (n_emptied, skew) = judge(subset);
            let what = format!("{order}, {count} of {candidates:?}, {others:?}, {elsewhere:?}");
            if order.starts_with("spread") {
                assert_eq!(skew, least_skew, "{what}");
            } else {
                assert_eq!(n_emptied, most_emptied, "{what}");
            }
        }
    }
}

/// Up to 16 pods on up to 8 nodes in 3 zones, of which the ReplicaSet owns most. Their states,
/// costs and ages differ.
fn random_cluster(rng: &mut Rng) -> Cluster {
    let (n_pods, n_nodes) = (rng.usize(2..=16), rng.usize(1..=8));
    let rarely = rng.usize(2..40);
    let pod = |at: usize| {
        let node = rng.usize(..n_nodes);
        let zone = ["a", "b", "c"][node % 3];
        let (name, node) = (format!("p{at}"), format!("n{node}"));
        let kinds = ["ReplicaSet", "DaemonSet", "Job"];
        let pod = match rng.usize(..10) {
            kind @ 0..3 => other(&name, &node, kinds[kind]),
            _ => ready(&name, &node, zone),
        };
        let is_ready = rng.usize(..rarely) > 0;
        let is_pending = rng.usize(..rarely) == 0;
        Pod {
            is_ready,
            phase: if is_pending {
                PodPhase::Pending
            } else {
                pod.phase
            },
            node: if is_pending && rng.bool() {
                None
            } else {
                pod.node.clone()
            },
            deletion_cost: if rng.usize(..rarely) == 0 {
                rng.i32(-1..2)
            } else {
                0
            },
            ready_transition: Some(seconds_ago(1 << rng.u32(..16))),
            restarts: rng.i32(..2),
            ..pod
        }
    };
    Cluster::of((0..n_pods).map(pod).collect::<Vec<_>>())
}

#[test]
fn no_random_cluster_is_worse_off_than_with_upstreams_order() {
    let (mut n_less_skewed, mut n_more_emptied) = (0, 0);
    for seed in 0..100_000 {
        let rng = &mut Rng::with_seed(seed);
        let cluster = random_cluster(rng);
        let n_owned = cluster.owned.len();
        if n_owned < 2 {
            continue;
        }
        let count = rng.usize(1..n_owned);
        let stock = cluster.choose(count, "off");
        let (skew, n_emptied) = (cluster.skew_without(&stock), cluster.n_emptied_by(&stock));
        // One of either precedence.
        let orders = if seed % 2 == 0 { 0..2 } else { 2..4 };
        for order in &ORDERS[orders] {
            let chosen = cluster.choose(count, order);
            let distinct: BTreeSet<_> = chosen.iter().map(|pod| &pod.uid).collect();
            assert_eq!(distinct.len(), count, "seed {seed}");
            // A class that is deleted whole is deleted as before.
            let state = |pod: &Arc<Pod>| {
                (
                    pod.node.is_some(),
                    pod.phase != PodPhase::Pending,
                    pod.is_ready,
                    pod.deletion_cost,
                )
            };
            let states = |pods: &[Arc<Pod>]| pods.iter().map(state).collect::<Vec<_>>();
            assert_eq!(states(&chosen), states(&stock), "seed {seed}");
            if order.starts_with("spread") {
                let preferred = cluster.skew_without(&chosen);
                assert!(preferred <= skew, "seed {seed}: {preferred} > {skew}");
                n_less_skewed += usize::from(preferred < skew);
            } else {
                let preferred = cluster.n_emptied_by(&chosen);
                assert!(
                    preferred >= n_emptied,
                    "seed {seed}: {preferred} < {n_emptied}"
                );
                n_more_emptied += usize::from(preferred > n_emptied);
            }
        }
    }
    assert!(n_less_skewed > 5000, "only {n_less_skewed} are better");
    assert!(n_more_emptied > 5000, "only {n_more_emptied} are better");
}

#[test]
fn the_choice_does_not_depend_on_the_order_of_the_pods() {
    for seed in 0..300 {
        let rng = &mut Rng::with_seed(seed);
        // With equal times upstream's order has no cycles, so that it is an order at all.
        let alike = |pod: &Arc<Pod>| Pod {
            ready_transition: None,
            restarts: pod.key.name[1..].parse().expect("a number"),
            ..Pod::clone(pod)
        };
        let Cluster { all, .. } = random_cluster(rng);
        let mut cluster = Cluster::of(all.iter().map(alike));
        let n_owned = cluster.owned.len();
        if n_owned < 2 {
            continue;
        }
        let count = rng.usize(1..n_owned);
        for order in ORDERS {
            let chosen = cluster.choose(count, order);
            rng.shuffle(&mut cluster.owned);
            assert_eq!(
                names(&cluster.choose(count, order)),
                names(&chosen),
                "seed {seed}"
            );
        }
    }
}
