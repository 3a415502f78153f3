//! The commands of every tutorial on Deployments, with the Deployment controller beside the other.

use serde_json::json;

use super::{Rig, kubectls};

impl Rig {
    /// Waits until the rollout of `web` is complete, and returns the sizes of its ReplicaSets, in
    /// ascending order.
    #[track_caller]
    fn roll_out(&self) -> Vec<i64> {
        let out = self.run("rollout status deployment web --timeout=5m");
        assert!(
            out.ends_with("deployment \"web\" successfully rolled out\n"),
            "{out}"
        );
        self.sizes()
    }

    fn sizes(&self) -> Vec<i64> {
        let sets = self.server.objects("replicasets", "default");
        let sizes = sets.iter().map(|set| set["spec"]["replicas"].as_i64());
        let mut sizes: Vec<i64> = sizes.flatten().collect();
        sizes.sort_unstable();
        sizes
    }

    /// The revisions in `kubectl rollout history`.
    fn revisions(&self) -> Vec<String> {
        let out = self.run("rollout history deployment web");
        let words = out
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        let is_number = |word: &&str| word.parse::<u32>().is_ok();
        words.filter(is_number).map(str::to_owned).collect()
    }

    #[track_caller]
    fn set_image(&self, version: u8) {
        let image = format!("none=example.invalid/none:{version}");
        let out = self.run(&format!("set image deployment web {image}"));
        assert_eq!(out, "deployment.apps/web image updated\n");
    }

    fn progress_reason(&self) -> String {
        let reason = r#"{.status.conditions[?(@.type=="Progressing")].reason}"#;
        self.run(&format!("get deployment web -o jsonpath={reason}"))
    }
}

fn go_through_a_tutorial(rig: &Rig) {
    // `run` fails on a warning: the Deployment is not only stored.
    rig.run("create deployment web --image=example.invalid/none:0 --replicas=3");
    assert_eq!(rig.roll_out(), [3]);
    let deployment = rig.json("get deployment web");
    let status = &deployment["status"];
    for count in [
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
    ] {
        assert_eq!(status[count], 3, "{count} in {status}");
    }
    assert_eq!(rig.progress_reason(), "NewReplicaSetAvailable");

    rig.run("scale deployment web --replicas=5");
    assert_eq!(rig.roll_out(), [5]);
    assert_eq!(rig.revisions(), ["1"]);

    rig.set_image(1);
    assert_eq!(rig.roll_out(), [0, 5]);
    assert_eq!(rig.revisions(), ["1", "2"]);
    assert_eq!(
        rig.run("rollout undo deployment web"),
        "deployment.apps/web rolled back\n"
    );
    assert_eq!(rig.roll_out(), [0, 5]);
    assert_eq!(rig.revisions(), ["2", "3"]);

    rig.run("rollout pause deployment web");
    rig.set_image(2);
    rig.run("scale deployment web --replicas=2");
    rig.waiting
        .eventually_eq("the sizes", &vec![0, 2], || rig.sizes());
    assert_eq!(rig.progress_reason(), "DeploymentPaused");
    rig.run("rollout resume deployment web");
    assert_eq!(rig.roll_out(), [0, 0, 2]);
    rig.run("rollout restart deployment web");
    assert_eq!(rig.roll_out(), [0, 0, 0, 2]);
    assert_eq!(rig.revisions(), ["2", "3", "4", "5"]);
    rig.run("rollout undo deployment web --to-revision=2");
    assert_eq!(rig.roll_out(), [0, 0, 0, 2]);
    let image = "{.spec.template.spec.containers[0].image}";
    let image = rig.run(&format!("get deployment web -o jsonpath={image}"));
    assert_eq!(image, "example.invalid/none:1");
    let events = rig.run("get events --field-selector=reason=ScalingReplicaSet");
    assert!(events.contains("Scaled up replica set web-"), "{events}");

    rig.run("delete deployment web");
    rig.waiting
        .eventually_eq("the sizes", &vec![], || rig.sizes());
    rig.eventually_n_pods(0);

    // As templating tools write what they leave blank.
    let mut blank = crate::support::new_replica_set("web", 1);
    blank["kind"] = json!("Deployment");
    blank["spec"]["template"]["spec"]["containers"][0]["resources"] = json!(null);
    rig.manifest("blank.json", &blank);
    rig.run("apply --server-side -f blank.json");
    assert_eq!(rig.roll_out(), [1]);
}

#[test]
fn a_deployment_rolls_out_scales_pauses_and_rolls_back() {
    for kubectl in kubectls() {
        go_through_a_tutorial(&Rig::start(kubectl, true));
    }
}
