"""A test with pods that come and go, one with pods that fail, and one with a custom resource."""

import pytest
from kubernetes import client, watch
from renew import ready_pods, renew
from replicaset_controller import wait_until


def replica_set(replicas, annotations=None):
    labels = {"app": "web"}
    return {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": annotations or {}},
                "spec": {"containers": [{"name": "web", "image": "example.invalid/web:1"}]},
            },
        },
    }


def test_every_pod_is_renewed(dev_client, dev_namespace):
    core, apps = client.CoreV1Api(dev_client), client.AppsV1Api(dev_client)
    apps.create_namespaced_replica_set(dev_namespace, replica_set(3))
    pods = lambda: ready_pods(core, dev_namespace, "app=web")
    wait_until(lambda: len(pods()) == 3, "three pods are ready")
    before = {pod.metadata.uid for pod in pods()}

    assert renew(core, dev_namespace, "app=web") == 3

    after = {pod.metadata.uid for pod in pods()}
    assert len(after) == 3
    assert not before & after


def test_a_pod_without_successor_is_reported(dev_client, dev_namespace):
    core, apps = client.CoreV1Api(dev_client), client.AppsV1Api(dev_client)
    apps.create_namespaced_replica_set(dev_namespace, replica_set(1))
    wait_until(lambda: ready_pods(core, dev_namespace, "app=web"), "the pod is ready")
    # From now on, new pods crash. A patch, since the controller may write status meanwhile.
    fate = {"dev.replicaset-controller/fate": "crash-loop"}
    template = {"metadata": {"annotations": fate}}
    change = {"spec": {"template": template}}
    apps.patch_namespaced_replica_set("web", dev_namespace, change)

    with pytest.raises(TimeoutError):
        renew(core, dev_namespace, "app=web", seconds=1)


def test_a_custom_resource_is_watched(dev_client, dev_namespace):
    names = {"plural": "shops", "singular": "shop", "kind": "Shop", "listKind": "ShopList"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    client.ApiextensionsV1Api(dev_client).create_custom_resource_definition(
        {
            "metadata": {"name": "shops.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": names,
                "versions": [version],
            },
        }
    )
    shops = client.CustomObjectsApi(dev_client)
    where = ("example.com", "v1", dev_namespace, "shops")
    shop = {"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "corner"}}
    shops.create_namespaced_custom_object(*where, {**shop, "spec": {"size": 1}})

    shops.patch_namespaced_custom_object(*where, "corner", {"spec": {"size": 2}})

    events = watch.Watch().stream(
        shops.list_namespaced_custom_object, *where, resource_version="0", timeout_seconds=10
    )
    first = next(events)
    assert (first["type"], first["object"]["spec"]) == ("ADDED", {"size": 2})
