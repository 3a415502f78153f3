"""Everyday calls of the official Python client to the server of $KUBECONFIG."""

import time
from datetime import datetime, timezone

from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException

config.load_kube_config()
core, apps, batch = client.CoreV1Api(), client.AppsV1Api(), client.BatchV1Api()
passed = 0


def ok(what, value=True):
    global passed
    assert value, what
    passed += 1
    print("ok", what)


def await_that(what, condition):
    for _ in range(600):
        if condition():
            return ok(what)
        time.sleep(0.1)
    raise AssertionError(what)


labels = {"app": "web"}
spec = client.V1PodSpec(
    containers=[client.V1Container(name="c", image="example.invalid/c:1")]
)
template = client.V1PodTemplateSpec(metadata=client.V1ObjectMeta(labels=labels), spec=spec)
selector = client.V1LabelSelector(match_labels=labels)
meta = client.V1ObjectMeta(name="web", labels=labels)

sets = client.V1ReplicaSet(
    metadata=meta, spec=client.V1ReplicaSetSpec(replicas=2, selector=selector, template=template)
)
apps.create_namespaced_replica_set("default", sets)
await_that(
    "a ReplicaSet gets ready pods",
    lambda: apps.read_namespaced_replica_set("web", "default").status.ready_replicas == 2,
)
pods = core.list_namespaced_pod("default", label_selector="app=web").items
ok("pods of a selector", len(pods) == 2)
ok("logs", "log of c" in core.read_namespaced_pod_log(pods[0].metadata.name, "default"))
apps.patch_namespaced_replica_set_scale("web", "default", {"spec": {"replicas": 1}})
ok("scale", apps.read_namespaced_replica_set_scale("web", "default").spec.replicas == 1)

for event in watch.Watch().stream(core.list_namespaced_pod, "default", timeout_seconds=30):
    ok("watch", event["object"].metadata.name)
    break

core.create_namespaced_config_map(
    "default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="m"), data={"a": "b"})
)
changed = core.patch_namespaced_config_map("m", "default", {"data": {"c": "d"}})
ok("patch", changed.data == {"a": "b", "c": "d"})
try:
    core.create_namespaced_config_map("default", changed)
    ok("conflict", False)
except ApiException as error:
    ok("conflict", error.status in (409, 500))

template.spec.restart_policy = "Never"
job = client.V1Job(
    metadata=client.V1ObjectMeta(name="job"), spec=client.V1JobSpec(template=template)
)
batch.create_namespaced_job("default", job)
await_that("a Job completes", lambda: batch.read_namespaced_job("job", "default").status.succeeded)

dynamic_client = dynamic.DynamicClient(client.ApiClient())
maps = dynamic_client.resources.get(api_version="v1", kind="ConfigMap")
body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s"}, "data": {"x": "y"}}
applied = maps.server_side_apply(body=body, name="s", namespace="default", field_manager="rig")
ok("server-side apply", applied.data.x == "y")
event = client.EventsV1Event(
    metadata=client.V1ObjectMeta(name="e"),
    event_time=datetime.now(timezone.utc),
    reporting_controller="rig",
    reporting_instance="rig",
    action="Try",
    reason="Tried",
    type="Normal",
    note="a note",
    regarding=client.V1ObjectReference(kind="ConfigMap", name="m", namespace="default"),
)
client.EventsV1Api().create_namespaced_event("default", event)
ok("events.k8s.io", core.read_namespaced_event("e", "default").message == "a note")
core.create_namespaced_pod(
    "default", client.V1Pod(metadata=client.V1ObjectMeta(name="evicted"), spec=spec)
)
core.create_namespaced_pod_eviction(
    "evicted", "default", client.V1Eviction(metadata=client.V1ObjectMeta(name="evicted"))
)
ok("eviction")
apps.delete_namespaced_replica_set("web", "default", propagation_policy="Foreground")
await_that(
    "a foreground deletion",
    lambda: not apps.list_namespaced_replica_set("default").items,
)
print(f"{passed} calls of the Python client")
