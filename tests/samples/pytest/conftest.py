"""Fixtures: an API server with pods for the whole run, and a namespace of its own for each test."""

import os
import subprocess
import time
import uuid

import pytest
from kubernetes import client, config

BINARY = os.environ.get("REPLICASET_CONTROLLER", "replicaset-controller")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """A client of an API server that runs until the last test has ended."""
    kubeconfig = tmp_path_factory.mktemp("cluster") / "kubeconfig"
    command = [BINARY, "dev", "--port=0", f"--write-kubeconfig={kubeconfig}", "--pod-ready-after=0s"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            # The file appears when the server answers.
            deadline = time.monotonic() + 30
            while not kubeconfig.exists():
                assert server.poll() is None, f"{command} exited with {server.returncode}"
                assert time.monotonic() < deadline, f"{kubeconfig} was not written"
                time.sleep(0.01)
            yield config.new_client_from_config(str(kubeconfig))
        finally:
            server.terminate()


@pytest.fixture
def namespace(cluster):
    """A new namespace. Nobody waits for its end: the server goes with all of them."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    core = client.CoreV1Api(cluster)
    core.create_namespace({"metadata": {"name": name}})
    yield name
    core.delete_namespace(name)


def eventually(check, what, seconds=30):
    """Waits until `check()` returns something true, and returns it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := check():
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")
