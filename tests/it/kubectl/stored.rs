//! Kinds that the dev server only stores, and what it says where it has no behaviour.

use serde_json::{Value, json};

use super::{Rig, rows, texts, with_each_kubectl};

impl Rig {
    /// Runs a command line that succeeds with a warning. Returns kubectl's output and the warning.
    #[track_caller]
    fn run_with_warning(&self, line: &str) -> (String, String) {
        let output = self.output(line);
        let (out, err) = texts(&output);
        assert!(output.status.success(), "kubectl {line}\n{out}{err}");
        assert!(err.starts_with("Warning: "), "kubectl {line}\n{err}");
        (out, err)
    }
}

#[test]
fn kinds_without_behaviour_are_created_and_listed() {
    with_each_kubectl(|rig| {
        let create = "create deployment web --image=example.invalid/none:0 --replicas=2 --port=80";
        let (out, warning) = rig.run_with_warning(create);
        assert_eq!(out, "deployment.apps/web created\n");
        let expected = "the dev server stores deployments but runs no controller for them";
        assert!(warning.contains(expected), "{warning}");
        let deployment = rig.json("get deployment web");
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["ports"][0]["containerPort"], 80);
        assert_eq!(container["image"], "example.invalid/none:0");

        assert_eq!(rig.run("expose deployment web"), "service/web exposed\n");
        rig.run("create service nodeport other --tcp=80:8080");
        let ports = rig.run("get service other -o jsonpath={.spec.ports[0].targetPort}");
        assert_eq!(ports, "8080");
        let out = rig.run("create configmap settings --from-literal=k=v");
        assert_eq!(out, "configmap/settings created\n");
        rig.run("create secret generic key --from-literal=k=v");
        assert_eq!(rig.run("get secret key -o jsonpath={.data.k}"), "dg==");
        rig.run_with_warning("create job once --image=example.invalid/none:0");
        rig.run("create role reader --verb=get --resource=pods");
        rig.run("create rolebinding readers --role=reader --user=a");
        rig.run("create poddisruptionbudget web --selector=app=web --min-available=50%");

        let all = rig.run("get all");
        for name in ["deployment.apps/web", "service/web", "job.batch/once"] {
            assert!(all.contains(name), "no {name} in\n{all}");
        }
        let table = rig.run("get deployments");
        let table = rows(&table);
        assert_eq!(
            table[0],
            ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]
        );
        assert_eq!(table[1][..4], ["web", "0/2", "0", "0"]);
        assert_eq!(
            rig.run("scale deployment web --replicas=3"),
            "deployment.apps/web scaled\n"
        );
        rig.run("set image deployment web none=example.invalid/none:1");
        assert!(
            rig.run("describe deployment web")
                .contains("example.invalid/none:1")
        );
        rig.run("delete deployment,service web");
        assert_eq!(rig.server.object("deployments", "default", "web"), None);
    });
}

#[test]
fn apply_prunes_what_is_no_longer_there() {
    with_each_kubectl(|rig| {
        let map = |name: &str| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "labels": {"set": "one"}}, "data": {"k": "v"},
            })
        };
        let list = |items: Vec<Value>| json!({"apiVersion": "v1", "kind": "List", "items": items});
        rig.manifest("maps.json", &list(vec![map("a"), map("b")]));
        let apply = "apply -f maps.json --prune -l set=one --prune-allowlist=core/v1/ConfigMap";
        rig.run(apply);
        rig.manifest("maps.json", &list(vec![map("b")]));
        let out = rig.run(apply);
        assert_eq!(out, "configmap/b unchanged\nconfigmap/a pruned\n");
        assert_eq!(rig.server.object("configmaps", "default", "a"), None);
    });
}

#[test]
fn a_definition_and_its_objects_are_applied() {
    with_each_kubectl(|rig| {
        rig.manifest(
            "crd.json",
            &json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "widgets.example.com"},
                "spec": {
                    "group": "example.com", "scope": "Namespaced",
                    "names": {
                        "plural": "widgets", "kind": "Widget", "shortNames": ["wd"],
                        "categories": ["all"],
                    },
                    "versions": [{
                        "name": "v1", "served": true, "storage": true,
                        "schema": {"openAPIV3Schema": {
                            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                        }},
                        "additionalPrinterColumns": [
                            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                    }],
                },
            }),
        );
        rig.run("apply -f crd.json");
        rig.run("wait --for=condition=Established crd/widgets.example.com --timeout=5m");
        let widget = |size: i64| {
            json!({
                "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
                "spec": {"size": size},
            })
        };
        rig.manifest("widget.json", &widget(3));
        let out = rig.run("apply -f widget.json");
        assert_eq!(out, "widget.example.com/w created\n");
        rig.manifest("widget.json", &widget(4));
        let out = rig.run("apply -f widget.json");
        assert_eq!(out, "widget.example.com/w configured\n");
        assert_eq!(
            rig.run("apply --server-side --force-conflicts -f widget.json"),
            "widget.example.com/w serverside-applied\n"
        );
        let table = rig.run("get wd");
        let table = rows(&table);
        assert_eq!(table[0], ["NAME", "SIZE"]);
        assert_eq!(table[1][..2], ["w", "4"]);
        assert!(rig.run("get all").contains("widget.example.com/w"));
        rig.run("delete -f crd.json");
        let error = rig.fail("get widgets");
        assert!(error.contains("no group example.com"), "{error}");
    });
}

#[test]
fn reviews_answer_for_everyone() {
    with_each_kubectl(|rig| {
        assert_eq!(rig.run("auth can-i create pods"), "yes\n");
        assert_eq!(rig.run("auth can-i get /metrics"), "yes\n");
        assert!(rig.run("auth can-i --list").contains("*.*"));
        assert!(rig.run("auth whoami").contains("system:anonymous"));
        rig.run("create serviceaccount robot");
        assert_eq!(rig.run("create token robot").split('.').count(), 3);
    });
}

#[test]
fn kubectl_shows_what_pods_cannot_do() {
    with_each_kubectl(|rig| {
        rig.create_set("web", 1);
        for (line, why) in [
            (
                "exec rs/web -- true",
                "without containers: no command can run in one",
            ),
            (
                "attach rs/web",
                "without containers: there is nothing to attach to",
            ),
            (
                "port-forward rs/web 0:80",
                "without containers: no port is open",
            ),
        ] {
            let error = rig.fail(line);
            assert!(error.contains(why), "kubectl {line}\n{error}");
        }
    });
}
