//! Scripted sequences of requests that random ones hardly ever form: pages, quotas, deleting a
//! namespace, server-side apply, malformed requests. Pure.

use serde_json::{Value, json};

use super::objects::Subject;
use super::step::{
    APPLY_PATCH, CONTINUE, GENERATED, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Step,
    version_of,
};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// A valid pod.
pub(super) fn plain_pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "plain"}},
        "spec": {
            "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i:1"}],
        },
    })
}

fn plain_set(name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "set"}},
            "template": {
                "metadata": {"labels": {"app": "set"}},
                "spec": {"containers": [{"name": "c", "image": "i:1"}]},
            },
        },
    })
}

/// Lists the namespace's remaining pods and four new ones, in pages.
pub(super) fn pages(namespace: &str) -> Vec<Step> {
    let pods = Subject::Pods.collection(namespace);
    let new = (0..4).map(|number| Step::post(&pods, plain_pod(&format!("page-{number}"))));
    let mut steps: Vec<Step> = new.collect();
    let page = |limit: &str| Step::get(&pods).query("limit", limit);
    steps.push(page("3"));
    steps.push(page("2").query("continue", CONTINUE));
    // A change between two pages does not show in the second page.
    steps.push(Step::delete(format!("{pods}/page-3"), Value::Null));
    steps.push(page("500").query("continue", CONTINUE));
    let selected = |step: Step| step.query("labelSelector", "app=plain");
    steps.push(selected(page("2")));
    steps.push(selected(page("2").query("continue", CONTINUE)));
    steps.push(page("1"));
    steps.push(
        page("1")
            .query("continue", CONTINUE)
            .query("resourceVersion", "7"),
    );
    steps.push(page("1").query("continue", "no-token"));
    steps.push(Step::get(&pods).query("sendInitialEvents", "true"));
    steps.extend(tables(namespace));
    steps
}

fn tables(namespace: &str) -> Vec<Step> {
    let subjects = [
        Subject::Pods,
        Subject::ReplicaSets,
        Subject::Controllers,
        Subject::Leases,
        Subject::Accounts,
    ];
    let mut steps: Vec<Step> = subjects
        .into_iter()
        .map(|subject| Step::get(subject.collection(namespace)).accept(TABLE))
        .collect();
    let pods = Subject::Pods.collection(namespace);
    steps.push(Step::get(format!("{pods}/page-0")).accept(TABLE));
    steps.push(Step::get(format!("{pods}/nobody")).accept(TABLE));
    let object = ("includeObject", "Object");
    steps.push(
        Step::get(&pods)
            .query(object.0, object.1)
            .query("limit", "2")
            .accept(TABLE),
    );
    steps
}

/// Names that the server generates.
pub(super) fn generated(namespace: &str) -> Vec<Step> {
    let pods = Subject::Pods.collection(namespace);
    let mut steps = Vec::new();
    for prefix in ["gen-", &"long-".repeat(20), "Bad_"] {
        let mut pod = plain_pod("");
        pod["metadata"] = json!({"generateName": prefix});
        steps.push(Step::post(&pods, pod));
        steps.push(Step::get(format!("{pods}/{GENERATED}")));
        steps.push(Step::delete(format!("{pods}/{GENERATED}"), Value::Null));
    }
    let mut pod = plain_pod("given");
    pod["metadata"]["generateName"] = json!("not-used-");
    steps.push(Step::post(&pods, pod));
    steps.push(Step::delete(format!("{pods}/given"), Value::Null));
    steps
}

/// A quota that allows no pods: the requests that create it, the request to repeat until it is
/// rejected (admission reads quotas from a cache), and the requests that follow. A real API server
/// enforces no quota before its status is set.
pub(super) fn quota(namespace: &str) -> (Vec<Step>, Step, Vec<Step>) {
    let pods = Subject::Pods.collection(namespace);
    let quotas = format!("/api/v1/namespaces/{namespace}/resourcequotas");
    let path = format!("{quotas}/none");
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
    let status = json!({"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}});
    let setup = vec![
        Step::post(&quotas, quota),
        Step::put_edited(&path, "/status", status),
    ];
    let rejected = Step::post(&pods, plain_pod("b")).query("dryRun", "All");
    let steps = vec![
        Step::post(&pods, plain_pod("a")),
        rejected.clone(),
        Step::get(&path),
        Step::patch(
            MERGE_PATCH,
            &path,
            json!({"spec": {"hard": {"pods": "-1"}}}),
        ),
        Step::patch(
            MERGE_PATCH,
            &path,
            json!({"spec": {"hard": {"pods": "many"}}}),
        ),
        Step::delete(&path, Value::Null),
    ];
    (setup, rejected, steps)
}

/// Defaults and checks of fields at any depth, evictions, and both groups of events.
pub(super) fn fields(namespace: &str) -> Vec<Step> {
    let pods = Subject::Pods.collection(namespace);
    let sets = Subject::ReplicaSets.collection(namespace);
    let mut full = plain_pod("full");
    full["spec"]["containers"][0] = json!({
        "name": "c", "image": "i:1", "resources": {"limits": {"cpu": "100m"}},
        "ports": [{"containerPort": 80}], "livenessProbe": {"httpGet": {"port": 80}},
        "readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 5},
        "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    });
    full["spec"]["volumes"] = json!([
        {"name": "a"}, {"name": "b", "secret": {"secretName": "s"}},
        {"name": "c", "configMap": {"name": "m", "defaultMode": 256}},
        {"name": "d", "hostPath": {"path": "/x"}}, {"name": "e", "downwardAPI": {}},
        {"name": "f", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
    ]);
    let mut template = plain_set("full", 0);
    template["spec"]["template"]["spec"] = full["spec"].clone();
    let mut gated = plain_pod("gated");
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    let mut protocol = plain_pod("protocol");
    protocol["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "protocol": "tcp"}]);
    let mut lun = plain_pod("lun");
    lun["spec"]["volumes"] = json!([{"name": "v", "fc": {"targetWWNs": ["5"], "lun": "2"}}]);
    let mut typo = plain_set("typo", 0);
    typo["kind"] = json!("Deployment");
    typo["spec"]["template"]["spec"]["containers"][0]["livenessProbe"] =
        json!({"exec": {"comand": ["x"]}});
    let deployments = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    let budgets = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "plain"}}},
    });
    let evict = |name: &str| {
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
        });
        Step::post(format!("{pods}/{name}/eviction"), eviction)
    };
    let runs = json!({"status": {
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
    }});
    let counted = |allowed: i64| {
        json!({"status": {
            "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1,
            "desiredHealthy": 1, "expectedPods": 1,
        }})
    };
    let (full_path, budget_path) = (format!("{pods}/full"), format!("{budgets}/b"));
    vec![
        Step::post(&pods, full),
        Step::post(&sets, template),
        Step::post(&pods, gated),
        Step::post(&pods, protocol),
        Step::post(&pods, lun),
        Step::post(&deployments, typo).query("fieldValidation", "Strict"),
        evict("absent"),
        evict("gated"),
        Step::put_edited(&full_path, "/status", runs),
        Step::post(&budgets, budget),
        evict("full"),
        Step::put_edited(&budget_path, "/status", counted(0)),
        evict("full"),
        Step::put_edited(&budget_path, "/status", counted(1)),
        evict("full"),
        Step::delete(&budget_path, Value::Null),
        Step::delete(format!("{sets}/full"), Value::Null),
    ]
}

/// The lifecycle of a namespace.
pub(super) fn namespaces(namespace: &str) -> Vec<Step> {
    let all = "/api/v1/namespaces";
    let name = format!("{namespace}-end");
    let path = format!("{all}/{name}");
    let pods = Subject::Pods.collection(&name);
    let set = Subject::ReplicaSets.collection(&name);
    let new = json!({"metadata": {"name": name, "labels": {"run": namespace}}});
    vec![
        Step::post(&pods, plain_pod("early")),
        Step::post(all, new.clone()),
        Step::post(all, new.clone()),
        Step::post(all, json!({"metadata": {"name": "Bad_Name"}})),
        Step::get(&path),
        Step::get(all).query("labelSelector", format!("run={namespace}")),
        Step::get(all).query("fieldSelector", format!("metadata.name={name}")),
        Step::patch(
            MERGE_PATCH,
            &path,
            json!({"metadata": {"labels": {"more": "1"}}}),
        ),
        Step::put_edited(&path, "", json!({"metadata": {"annotations": {"a": "b"}}})),
        Step::put_edited(&path, "", json!({"metadata": {"resourceVersion": "1"}})),
        Step::post(&set, plain_set("stays", 2)),
        Step::delete(&path, json!({"preconditions": {"resourceVersion": "1"}})),
        Step::delete(format!("{all}/default"), Value::Null),
        Step::delete(&path, Value::Null),
        Step::post(&set, plain_set("late", 2)),
        Step::post(&pods, plain_pod("late")),
        Step::get(format!("{set}/stays")),
        Step::post(all, new),
        Step::delete(&path, Value::Null),
        Step::get(&path),
        Step::delete(format!("{set}/stays"), Value::Null),
        Step::put_edited(&path, "/finalize", json!({"spec": {"finalizers": null}})),
        Step::get(&path),
    ]
}

/// Server-side apply by two field managers.
pub(super) fn apply(namespace: &str) -> Vec<Step> {
    let sets = Subject::ReplicaSets.collection(namespace);
    let path = format!("{sets}/applied");
    let apply = |edit: Value, manager: &str| {
        let mut set = plain_set("applied", 2);
        super::side::merge(&mut set, &edit);
        Step::patch(APPLY_PATCH, &path, set).query("fieldManager", manager)
    };
    let labelled = |value: &str| json!({"metadata": {"labels": {"by": value}}});
    let image = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "c", "image": "i:2", "env": [{"name": "A", "value": "1"}]},
    ]}}}});
    let other = |replicas: i64| {
        let part = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "applied"},
            "spec": {"replicas": replicas},
        });
        Step::patch(APPLY_PATCH, &path, part).query("fieldManager", "two")
    };
    let yaml = "apiVersion: v1\nkind: Pod\nmetadata: {name: yaml}\nspec:\n  \
                automountServiceAccountToken: false\n  containers: [{name: c, image: 'i:1'}]\n";
    let pod = format!("{}/yaml", Subject::Pods.collection(namespace));
    vec![
        apply(json!({}), "one").query("dryRun", "All"),
        apply(labelled("one"), "one"),
        apply(labelled("one"), "one"),
        apply(labelled("uno"), "one"),
        apply(json!({}), "one"),
        apply(image, "one"),
        apply(json!({"metadata": {"name": "different"}}), "one"),
        other(5),
        other(5).query("force", "true"),
        apply(json!({"spec": {"replicas": 5}}), "one"),
        apply(json!({"spec": {"replicas": null}}), "one"),
        other(6),
        apply(json!({}), ""),
        apply(json!({"kind": "Pod"}), "one"),
        apply(json!({"metadata": {"resourceVersion": "1"}}), "one"),
        apply(json!({"metadata": {"managedFields": [{}]}}), "one"),
        apply(json!({}), "one")
            .text("]")
            .query("fieldManager", "one"),
        Step::patch(APPLY_PATCH, &pod, Value::Null)
            .text(yaml)
            .query("fieldManager", "one"),
        Step::patch(MERGE_PATCH, &path, json!({"spec": {"replicas": 1}})).query("force", "true"),
    ]
}

/// Malformed requests.
pub(super) fn malformed(namespace: &str) -> Vec<Step> {
    let pods = Subject::Pods.collection(namespace);
    let pod = format!("{pods}/p-odd");
    let post = |text: &str| Step::post(&pods, Value::Null).text(text);
    let typed = |mut step: Step, content_type: &'static str| {
        step.content_type = content_type;
        step
    };
    let valid = || plain_pod("p-odd");
    let with_typo = || {
        let mut pod = valid();
        pod["spec"]["containers"][0]["imagee"] = json!("x");
        pod["spec"]["zone"] = json!("x");
        pod
    };
    let cost = |cost: &str| {
        let annotations = json!({"controller.kubernetes.io/pod-deletion-cost": cost});
        json!({"metadata": {"annotations": annotations}})
    };
    let with_cost = |value: &str| {
        let mut pod = valid();
        pod["metadata"]["annotations"] = cost(value)["metadata"]["annotations"].clone();
        pod
    };
    let mut unnamed = valid();
    unnamed["metadata"] = json!({});
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let mut steps = vec![
        post(""),
        post("{"),
        post("[]"),
        post("7"),
        post("\"text\""),
        post("{\"metadata\": []}"),
        post("{\"metadata\": {\"name\": 7}}"),
        Step::post(&pods, unnamed),
        typed(Step::post(&pods, valid()), "text/plain"),
        typed(Step::post(&pods, valid()), MERGE_PATCH),
        Step::post(&pods, valid()).query("dryRun", "Some"),
        Step::post(&pods, valid()).query("fieldValidation", "Sometimes"),
        Step::post(&pods, with_typo()).query("fieldValidation", "Strict"),
        Step::post(&pods, with_cost("01")),
        Step::post(&pods, with_cost("-1")).query("dryRun", "All"),
        Step::post(&pods, valid()).query("fieldManager", "m".repeat(129)),
        Step::post(&pods, valid()).query("dryRun", "All"),
        Step::get(&pod),
        Step::post(&pods, valid()),
        Step::post(&pod, valid()),
        Step::put(&pods, valid()),
        Step::put(format!("{pods}/p-missing"), plain_pod("p-missing")),
        Step::put(&pod, json!({})),
        Step::put(&pod, plain_pod("another")),
        Step::put(&pod, Value::Null).text("{"),
        Step::patch("application/unknown", &pod, patch.clone()),
        Step::patch("", &pod, patch),
        Step::patch(MERGE_PATCH, &pod, cost("x")),
        Step::patch(MERGE_PATCH, &pod, json!([])),
        Step::patch(MERGE_PATCH, &pod, Value::Null).text("{"),
        Step::patch(STRATEGIC_MERGE_PATCH, &pod, json!([])),
        Step::patch(STRATEGIC_MERGE_PATCH, &pod, json!({"$patch": "melt"})),
        Step::patch(JSON_PATCH, &pod, json!({})),
        Step::patch(JSON_PATCH, &pod, json!([{"op": "remove", "path": "/spec"}])),
        Step::patch(MERGE_PATCH, format!("{pods}/nobody"), json!({})),
        Step::patch(MERGE_PATCH, &pod, json!({"kind": "ReplicaSet"})),
        Step::patch(MERGE_PATCH, &pod, json!({"apiVersion": "v7"})),
        Step::patch(MERGE_PATCH, &pod, json!({"metadata": {"name": "another"}})),
        Step::patch(MERGE_PATCH, &pod, json!({"metadata": null})),
    ];
    steps.extend(not_served(namespace, &pod));
    steps
}

/// Paths, methods and options that are not served.
fn not_served(namespace: &str, pod: &str) -> Vec<Step> {
    let namespace_path = format!("/api/v1/namespaces/{namespace}");
    let delete = |text: &str| Step::delete(pod, json!({})).text(text);
    let version = version_of(pod);
    vec![
        Step::get(format!("{namespace_path}/nothings")),
        Step::get(format!("{pod}/nothing")),
        Step::get(format!("{pod}/scale")),
        Step::get(format!("/apis/apps/v9/namespaces/{namespace}/replicasets")),
        Step::get("/apis/nothing.example/v1/things"),
        Step::post("/api/v1/pods", plain_pod("p-odd")),
        Step::get("/api/v1/pods/p-odd"),
        Step::get("/nothing"),
        Step::get("/healthz"),
        Step::get("/readyz"),
        Step::get("/livez"),
        Step::put(namespace_path, json!({"metadata": {"name": "another"}})),
        Step::get(pod).query("resourceVersion", "0"),
        Step::get(pod).query("resourceVersion", version),
        Step::get(pod).query("resourceVersion", "x"),
        Step::get(pod)
            .query("watch", "true")
            .query("timeoutSeconds", "x"),
        delete("{"),
        delete("[]"),
        Step::delete(pod, json!({"gracePeriodSeconds": "soon"})),
        Step::delete(
            pod,
            json!({"propagationPolicy": "Orphan", "orphanDependents": false}),
        ),
        Step::delete(pod, json!({"dryRun": ["Some"]})),
        Step::delete(pod, json!({}))
            .query("gracePeriodSeconds", "0")
            .query("dryRun", "All"),
        Step::delete(pod, json!({"kind": "Pod", "apiVersion": "v1"})),
        Step::delete(pod, Value::Null).query("propagationPolicy", "Foreground"),
        Step::patch(MERGE_PATCH, pod, json!({"metadata": {"finalizers": null}})),
        Step::get(pod),
    ]
}

/// A watch to compare.
pub(super) struct Watched {
    pub(super) watch: Step,
    /// Requests to send first, which cause the last event.
    pub(super) before: Vec<Step>,
    /// The name of the last event's object, or the last event's type.
    pub(super) last: &'static str,
}

/// Watches from the resource version at the start of the test.
pub(super) fn watches(namespace: &str) -> Vec<Watched> {
    let from_start = |subject: Subject| {
        let step = Step::get(subject.collection(namespace));
        step.query("watch", "1")
            .query("timeoutSeconds", "10")
            .query("resourceVersion", "{version start}")
    };
    let pods = Subject::Pods.collection(namespace);
    let pod = |name: &str, edit: Value| {
        let mut pod = plain_pod(name);
        super::side::merge(&mut pod, &edit);
        vec![Step::post(&pods, pod)]
    };
    let watch = |watch: Step, before: Vec<Step>, last: &'static str| Watched {
        watch,
        before,
        last,
    };
    let labels = |value: &str| json!({"metadata": {"labels": {"app": value}}});
    let running = json!({"status": {"phase": "Running"}});
    let mut started = pod("end-2", json!({}));
    started.push(Step::patch(
        MERGE_PATCH,
        format!("{pods}/end-2/status"),
        running,
    ));
    let mut set = plain_set("end-4", 0);
    set["metadata"]["labels"] = json!({"app": "a"});
    let of = |subject: Subject, object: Value| {
        let before = vec![Step::post(subject.collection(namespace), object)];
        watch(from_start(subject), before, "end")
    };
    let all = Step::get(&pods)
        .query("watch", "true")
        .query("timeoutSeconds", "10");
    vec![
        watch(from_start(Subject::Pods), pod("end-0", json!({})), "end-0"),
        watch(
            from_start(Subject::Pods).query("labelSelector", "app=a"),
            pod("end-1", labels("a")),
            "end-1",
        ),
        watch(
            from_start(Subject::Pods).query("fieldSelector", "status.phase=Running"),
            started,
            "end-2",
        ),
        watch(
            from_start(Subject::Pods)
                .query("fieldSelector", "spec.nodeName=n1")
                .query("labelSelector", "app"),
            pod("end-3", json!({"spec": {"nodeName": "n1"}})),
            "end-3",
        ),
        watch(
            from_start(Subject::ReplicaSets).query("labelSelector", "app=a"),
            vec![Step::post(Subject::ReplicaSets.collection(namespace), set)],
            "end-4",
        ),
        of(
            Subject::Leases,
            json!({"metadata": {"name": "end"}, "spec": {}}),
        ),
        of(Subject::Accounts, json!({"metadata": {"name": "end"}})),
        watch(
            all.query("sendInitialEvents", "true")
                .query("resourceVersionMatch", "NotOlderThan")
                .query("allowWatchBookmarks", "true"),
            Vec::new(),
            "BOOKMARK",
        ),
    ]
}
