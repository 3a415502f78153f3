"""An operator with kopf, and what it does for a custom resource on the server of $KUBECONFIG."""

import threading
import time

import kopf
from kubernetes import client, config

GROUP, VERSION, PLURAL = "example.com", "v1", "shops"
seen = set()


@kopf.on.create(GROUP, VERSION, PLURAL)
def created(name, namespace, body, patch, **_):
    kopf.event(body, type="Normal", reason="Made", message="made")
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    kopf.adopt(child, owner=body)
    client.CoreV1Api().create_namespaced_config_map(namespace, child)
    patch.status["ready"] = True
    seen.add("create")


@kopf.on.update(GROUP, VERSION, PLURAL, field="spec.size")
def updated(new, **_):
    seen.add(f"update {new}")


@kopf.on.delete(GROUP, VERSION, PLURAL)
def deleted(**_):
    seen.add("delete")


@kopf.timer(GROUP, VERSION, PLURAL, interval=0.5)
def ticked(**_):
    seen.add("timer")


def await_that(what, condition):
    for _ in range(600):
        if condition():
            print("ok", what)
            return
        time.sleep(0.1)
    raise AssertionError(f"{what}: {seen}")


config.load_kube_config()
schema = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"size": {"type": "integer", "minimum": 1, "default": 1}},
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
client.ApiextensionsV1Api().create_custom_resource_definition(
    {
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": PLURAL, "kind": "Shop"},
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
)
stop = threading.Event()
operator = threading.Thread(
    target=lambda: kopf.run(standalone=True, namespaces=["default"], stop_flag=stop)
)
operator.start()
try:
    api = client.CustomObjectsApi()
    at = (GROUP, VERSION, "default", PLURAL)
    shop = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Shop", "metadata": {"name": "a"}}
    made = api.create_namespaced_custom_object(*at, {**shop, "spec": {}})
    assert made["spec"] == {"size": 1}, made
    await_that("create", lambda: "create" in seen)
    await_that(
        "status",
        lambda: api.get_namespaced_custom_object(*at, "a").get("status", {}).get("ready"),
    )
    await_that(
        "event",
        lambda: any(
            event.reason == "Made" for event in client.CoreV1Api().list_namespaced_event("default").items
        ),
    )
    api.patch_namespaced_custom_object(*at, "a", {"spec": {"size": 3}})
    await_that("update", lambda: "update 3" in seen)
    await_that("timer", lambda: "timer" in seen)
    api.delete_namespaced_custom_object(*at, "a")
    await_that("delete", lambda: "delete" in seen)
    await_that(
        "the child goes with it",
        lambda: "a"
        not in [it.metadata.name for it in client.CoreV1Api().list_namespaced_config_map("default").items],
    )
finally:
    stop.set()
    operator.join()
print("7 behaviours of kopf")
