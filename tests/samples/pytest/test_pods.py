"""What happens to pods, and what the package offers to a test, without a client library."""

import os
import shutil
import socket
import subprocess
import sys
import urllib.parse
from pathlib import Path

import pytest
from replicaset_controller import DevServer, DevServerError, is_ready, wait_until

FATE = "dev.replicaset-controller/fate"


def create(namespace, replicas=1, annotations=None):
    labels = {"app": "web"}
    template = {
        "metadata": {"labels": labels, "annotations": annotations or {}},
        "spec": {"containers": [{"name": "web", "image": "example.invalid/web:1"}]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    path = f"/apis/apps/v1/namespaces/{namespace}/replicasets"
    namespace.server.request("POST", path, {"metadata": {"name": "web"}, "spec": spec})


def patch(namespace, path, body):
    path = path.format(namespace)
    return namespace.server.request("PATCH", path, body, "application/merge-patch+json")


def scale(namespace, replicas):
    path = "/apis/apps/v1/namespaces/{}/replicasets/web/scale"
    patch(namespace, path, {"spec": {"replicas": replicas}})


def names(pods):
    return {pod["metadata"]["name"] for pod in pods}


def waiting_reasons(pod):
    states = [it.get("state", {}) for it in pod["status"].get("containerStatuses", [])]
    return [state["waiting"]["reason"] for state in states if "waiting" in state]


def test_pods_become_ready(dev_namespace):
    create(dev_namespace, 3)
    pods = dev_namespace.wait_for_pods(3, "app=web")
    assert all(pod["spec"]["nodeName"] for pod in pods)


def test_a_deployment_rolls_out(dev_namespace):
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}
    spec = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}
    deployments = f"/apis/apps/v1/namespaces/{dev_namespace}/deployments"
    dev_namespace.server.request("POST", deployments, {"metadata": {"name": "web"}, "spec": spec})
    dev_namespace.wait_for_pods(3, "app=web")
    image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "web:2"}]
    dev_namespace.server.request("PATCH", f"{deployments}/web", image, "application/json-patch+json")

    def has_the_new_image():
        pods = dev_namespace.pods("app=web")
        return len(pods) == 3 and {pod["spec"]["containers"][0]["image"] for pod in pods} == {"web:2"}

    wait_until(has_the_new_image, "three pods with the new image")


@pytest.mark.parametrize(
    "fate, is_met",
    [
        ("unscheduled", lambda pod: "nodeName" not in pod["spec"]),
        ("pending", lambda pod: "nodeName" in pod["spec"] and pod["status"]["phase"] == "Pending"),
        ("rejected", lambda pod: pod["status"]["phase"] == "Failed"),
        ("failed", lambda pod: pod["status"]["phase"] == "Failed"),
        ("unknown", lambda pod: pod["status"]["phase"] == "Unknown"),
        ("crash-loop", lambda pod: waiting_reasons(pod) == ["CrashLoopBackOff"]),
        ("unready", lambda pod: pod["status"]["phase"] == "Running" and not is_ready(pod)),
    ],
)
def test_a_fate(dev_namespace, fate, is_met):
    create(dev_namespace, 1, {FATE: fate})
    wait_until(lambda: any(map(is_met, dev_namespace.pods("app=web"))), fate)


def test_a_running_pod_becomes_unready_and_recovers(dev_namespace):
    create(dev_namespace, 2)
    first, _ = dev_namespace.wait_for_pods(2)
    name = first["metadata"]["name"]
    dev_namespace.annotate_pod(name, fate="unready")
    assert names(dev_namespace.wait_for_pods(1, ready=False)) == {name}
    dev_namespace.annotate_pod(name, fate=None)
    dev_namespace.wait_for_pods(2)


def test_a_pod_restarts(dev_namespace):
    create(dev_namespace)
    (pod,) = dev_namespace.wait_for_pods(1)
    dev_namespace.annotate_pod(pod["metadata"]["name"], restarts=3)

    def restarts():
        (pod,) = dev_namespace.pods()
        return sum(it["restartCount"] for it in pod["status"]["containerStatuses"])

    wait_until(lambda: restarts() == 3, "three restarts")


def test_a_deleted_pod_is_replaced(dev_namespace):
    create(dev_namespace)
    (pod,) = dev_namespace.wait_for_pods(1)
    name = pod["metadata"]["name"]
    dev_namespace.server.request("DELETE", f"/api/v1/namespaces/{dev_namespace}/pods/{name}")
    wait_until(lambda: names(dev_namespace.pods(ready=True)) not in ({name}, set()), "another pod")


def test_a_failed_pod_is_replaced(dev_namespace):
    create(dev_namespace)
    (pod,) = dev_namespace.wait_for_pods(1)
    dev_namespace.annotate_pod(pod["metadata"]["name"], fate="failed")
    wait_until(lambda: dev_namespace.pods(ready=True) and len(dev_namespace.pods()) == 2, "another pod")


def test_a_scale_down_deletes_the_cheapest_pod(dev_namespace):
    create(dev_namespace, 3)
    cheap, *others = dev_namespace.wait_for_pods(3)
    cost = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1"}}}
    patch(dev_namespace, f"/api/v1/namespaces/{{}}/pods/{cheap['metadata']['name']}", cost)
    scale(dev_namespace, 2)
    assert names(dev_namespace.wait_for_pods(2)) == names(others)


def test_a_scale_to_zero_and_back(dev_namespace):
    create(dev_namespace, 2)
    before = names(dev_namespace.wait_for_pods(2))
    scale(dev_namespace, 0)
    dev_namespace.wait_for_pods(0, ready=None)
    scale(dev_namespace, 2)
    assert not before & names(dev_namespace.wait_for_pods(2))


def test_a_pod_whose_labels_change_is_released(dev_namespace):
    create(dev_namespace)
    (pod,) = dev_namespace.wait_for_pods(1)
    released = f"/api/v1/namespaces/{{}}/pods/{pod['metadata']['name']}"
    patch(dev_namespace, released, {"metadata": {"labels": {"app": "debug"}}})
    dev_namespace.wait_for_pods(1, "app=web")
    (pod,) = dev_namespace.pods("app=debug")
    wait_until(lambda: "ownerReferences" not in dev_namespace.pods("app=debug")[0]["metadata"], "no owner")


def test_namespaces_are_separate(dev_server, dev_namespace):
    create(dev_namespace)
    dev_namespace.wait_for_pods(1)
    other = dev_server.create_namespace(f"{dev_namespace}-other")
    assert other.pods() == []


def test_a_program_finds_the_namespace_by_its_kubeconfig(dev_namespace, dev_kubeconfig):
    assert os.environ["KUBECONFIG"] == dev_kubeconfig
    create(dev_namespace)
    dev_namespace.wait_for_pods(1)
    module = [sys.executable, "-m", "replicaset_controller", "explain", "web"]
    report = subprocess.run(module, capture_output=True, text=True, check=True)
    assert f"ReplicaSet {dev_namespace}/web" in report.stdout


def test_a_client_that_was_imported_before_finds_the_server(dev_server, dev_kubeconfig):
    config = pytest.importorskip("kubernetes.config")
    client = config.new_client_from_config()
    assert client.configuration.host == dev_server.url


def test_the_sample_of_the_manual_runs(dev_namespace, request):
    pytest.importorskip("kubernetes")
    dev_client = request.getfixturevalue("dev_client")
    page = Path(__file__).parents[3] / "src" / "manual" / "dev.md"
    sample = page.read_text().split("```python\n")[1].split("```")[0]
    exec(sample + "\ntest_a_pod_crashes(dev_namespace, dev_client)", dict(locals()))


def test_a_mistyped_fate_is_an_error(dev_namespace):
    create(dev_namespace)
    (pod,) = dev_namespace.wait_for_pods(1)
    with pytest.raises(DevServerError, match="crash-loop"):
        dev_namespace.annotate_pod(pod["metadata"]["name"], fate="crashloop")


def test_a_wait_says_what_there_is(dev_namespace):
    create(dev_namespace)
    dev_namespace.wait_for_pods(1)
    with pytest.raises(TimeoutError, match="web-.* Running"):
        dev_namespace.wait_for_pods(9, seconds=0)


def test_the_plugin_of_kubectl_is_installed(dev_kubeconfig):
    plugin = shutil.which("kubectl-rs_explain", path=os.path.dirname(sys.executable))
    report = subprocess.run([plugin, "--help"], capture_output=True, text=True, check=True)
    assert "Usage: kubectl rs-explain" in report.stdout


def test_two_servers_run_side_by_side(dev_server):
    with DevServer("--nodes=1") as other:
        assert other.url != dev_server.url
        assert len(other.request("GET", "/api/v1/nodes")["items"]) == 1
    assert not other.folder.exists()


def test_a_server_ends_with_its_program():
    program = "import sys, replicaset_controller as it; s = it.DevServer(); print(s.url, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        address = urllib.parse.urlsplit(process.stdout.readline().strip())
        socket.create_connection((address.hostname, address.port)).close()
        process.kill()

    def is_gone():
        try:
            socket.create_connection((address.hostname, address.port)).close()
        except ConnectionRefusedError:
            return True

    wait_until(is_gone, "the server is gone")


def test_a_server_that_does_not_start_says_why():
    with pytest.raises(DevServerError, match="--no-such-flag"):
        DevServer("--no-such-flag")


def test_a_rejected_request_says_why(dev_namespace):
    with pytest.raises(DevServerError, match="404.*not found"):
        dev_namespace.annotate_pod("missing", fate="failed")
