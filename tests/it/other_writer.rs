//! A second controller that writes what the daemon controls, played by the test.

use replicaset_controller::client::{Client, ClientOptions, Request};
use serde_json::json;

use crate::support::{PlainPort, TestCluster, admin_config, new_replica_set};

/// A client that writes as kube-controller-manager does.
fn other_controller(cluster: &TestCluster) -> Client {
    let options = ClientOptions {
        user_agent: "kube-controller-manager/v1.37.2 (linux/amd64) kubernetes/0000000".to_owned(),
        ..ClientOptions::default()
    };
    Client::new(&admin_config(), &options, cluster.stop())
}

/// Needs a real API server: the dev server records managers of server-side apply only.
#[test]
fn a_second_controller_is_an_error_from_its_first_writes_on() {
    if !TestCluster::is_real() {
        return;
    }
    let cluster = TestCluster::start();
    let port = PlainPort::free();
    let process = cluster.start_process(&[&port.argument()]);
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    let other = other_controller(&cluster);
    let namespace = cluster.namespace();
    let rs = cluster.replica_set("a");
    let errors = || {
        let log = process.log();
        let lines = log.lines().filter(|line| line.contains("ERROR"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    // Writes of the second in which the daemon took over may be a predecessor's.
    cluster.eventually("the other controller is named", || {
        let pod = json!({
            "metadata": {
                "generateName": "a-",
                "labels": rs["spec"]["template"]["metadata"]["labels"],
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a",
                    "uid": rs["metadata"]["uid"], "controller": true,
                }],
            },
            "spec": rs["spec"]["template"]["spec"],
        });
        let request = Request::post(format!("/api/v1/namespaces/{namespace}/pods"));
        let request = request.body("application/json", pod.to_string());
        other.send(&request).expect("the pod is created");
        !errors().is_empty()
    });
    let line = errors().remove(0);
    for words in [
        "kube-controller-manager created pod a-",
        "--controllers=*,-replicaset-controller",
    ] {
        assert!(line.contains(words), "{line}");
    }
    let page = format!("/debug/replicasets/{namespace}/a");
    let (_, report) = port.get(&page);
    assert!(
        report.contains("kube-controller-manager created"),
        "{report}"
    );
    cluster.eventually("there is an event", || {
        let events = cluster.events_of("a");
        events.iter().any(|event| event["reason"] == "OtherWriter")
    });
    // A restart of the daemon would not stop the other one.
    for probe in ["/healthz", "/readyz", "/livez"] {
        assert_eq!(port.get(probe).0, 200, "{probe}");
    }
    assert_eq!(errors().len(), 1, "one a minute");
}
