"""A Kubernetes API server for tests, in which pods come, run and fail.

It starts in a moment, needs neither containers nor network, and has nodes that are simulated:

    with DevServer() as server:
        subprocess.run(["kubectl", f"--kubeconfig={server.kubeconfig}", "get", "nodes"], check=True)

Tests with pytest use the fixtures of `replicaset_controller.pytest_plugin` instead.
"""

import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

# Annotations control the simulated nodes: the manual's page "Dev server" lists them.
ANNOTATIONS = "dev.replicaset-controller/"

# Upper bound for a wait that would otherwise never end.
SECONDS = 60

_PROGRAM = "replicaset-controller"


class DevServerError(Exception):
    """The server did not start, or rejected a request."""


def find_binary():
    """The path of the program: $REPLICASET_CONTROLLER, that of this package, or that of $PATH."""
    if named := os.environ.get("REPLICASET_CONTROLLER"):
        return named
    package = Path(__file__).resolve().parent.parent
    folders = [sysconfig.get_path("scripts"), package / "bin"]
    if user := sysconfig.get_preferred_scheme("user"):
        folders.append(sysconfig.get_path("scripts", scheme=user))
    for folder in folders:
        if found := shutil.which(_PROGRAM, path=str(folder)):
            return found
    if found := shutil.which(_PROGRAM):
        return found
    raise DevServerError(
        f"there is no {_PROGRAM} in {', '.join(map(str, folders))} or $PATH: reinstall the package, "
        "or name the program in $REPLICASET_CONTROLLER"
    )


def wait_until(check, what, seconds=SECONDS):
    """Calls `check()` until it returns something true, and returns that."""
    deadline = time.monotonic() + seconds
    while not (found := check()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(0.01)
    return found


class DevServer:
    """A server on a free port of this machine, until `stop()` or the end of the `with` block."""

    def __init__(self, *arguments, folder=None):
        """Starts `replicaset-controller dev` with further `arguments`, such as `--nodes=3`.

        `folder` gets the kubeconfig and what the server prints. Without one, both are deleted with the server.
        """
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="dev-server-")
        self.folder = Path(folder or self._temporary.name)
        self.kubeconfig = self.folder / "kubeconfig"
        self.log = self.folder / "log"
        command = [find_binary(), "dev", "--port=0", "--until-stdin-closes"]
        command += [f"--write-kubeconfig={self.kubeconfig}", *arguments]
        with open(self.log, "wb") as log:
            try:
                # It ends when this process does, however that ends, since that closes the pipe.
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
                )
            except OSError as error:
                raise DevServerError(f"{command[0]} does not run: {error}") from error
        try:
            # The file appears when the server answers.
            wait_until(lambda: self._process.poll() is not None or self.kubeconfig.exists(), "it answers")
            if self._process.poll() is not None:
                raise DevServerError(f"exit code {self._process.returncode}")
        except (DevServerError, TimeoutError) as error:
            said = self.log.read_text(errors="replace").strip()
            self.stop()
            raise DevServerError(f"{' '.join(command)}: {error}\n{said}".rstrip()) from None
        line = next(line for line in self.kubeconfig.read_text().splitlines() if "server:" in line)
        self.url = line.split('"')[1]
        # A proxy of the environment does not reach this machine's ports.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def stop(self):
        """Stops the server, and waits for its end."""
        self._process.terminate()
        self._process.stdin.close()
        try:
            self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._temporary:
            self._temporary.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def client(self):
        """An `ApiClient` of the package `kubernetes`, which must be installed."""
        from kubernetes import client

        configuration = client.Configuration(host=self.url)
        configuration.proxy = None
        return client.ApiClient(configuration)

    def request(self, method, path, body=None, content_type="application/json"):
        """Sends a request with a JSON body, and returns the decoded answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": content_type, "accept": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with self._opener.open(request) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise DevServerError(f"{method} {path}: {error.code} {error.read().decode()}") from error

    def create_namespace(self, name):
        """Creates a namespace."""
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        return Namespace(self, name)


class Namespace(str):
    """A namespace: its name, for any client, with helpers for the pods in it."""

    def __new__(cls, server, name):
        namespace = super().__new__(cls, name)
        namespace.server = server
        return namespace

    def pods(self, selector="", ready=None):
        """The pods that `selector` matches and that are not terminating: all, or those that are ready."""
        query = urllib.parse.urlencode({"labelSelector": selector})
        pods = self.server.request("GET", f"/api/v1/namespaces/{self}/pods?{query}")["items"]
        pods = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return [pod for pod in pods if ready is None or is_ready(pod) == ready]

    def wait_for_pods(self, count, selector="", ready=True, seconds=SECONDS):
        """Waits for exactly `count` such pods, and returns them."""
        found = []

        def has_count():
            found[:] = self.pods(selector, ready)
            return len(found) == count

        try:
            wait_until(has_count, f"{count} pods {selector!r} with ready={ready} in {self}", seconds)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; {self._state()}") from None
        return found

    def _state(self):
        """The pods and the warnings of the namespace, for an error."""
        pods = [
            f"{pod['metadata']['name']} {pod['status'].get('phase')}{' Ready' * is_ready(pod)}"
            for pod in self.pods()
        ]
        events = self.server.request("GET", f"/api/v1/namespaces/{self}/events")["items"]
        warnings = {event["message"] for event in events if event.get("type") == "Warning"}
        return f"pods: {', '.join(pods) or 'none'}; warnings: {'; '.join(sorted(warnings)) or 'none'}"

    def annotate_pod(self, pod, **annotations):
        """Controls how the nodes treat a pod: `fate="unready"`, `restarts=3`, or None to remove one."""
        of = {
            ANNOTATIONS + name.replace("_", "-"): value if value is None else str(value)
            for name, value in annotations.items()
        }
        path = f"/api/v1/namespaces/{self}/pods/{pod}"
        body = {"metadata": {"annotations": of}}
        return self.server.request("PATCH", path, body, "application/merge-patch+json")

    def write_kubeconfig(self, path):
        """Writes a kubeconfig whose context has this namespace."""
        context = {"cluster": "dev", "user": "dev", "namespace": str(self)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            # JavaScript's client takes plain HTTP only so.
            "clusters": [{"name": "dev", "cluster": {"server": self.server.url, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "dev", "user": {}}],
            "contexts": [{"name": "dev", "context": context}],
            "current-context": "dev",
        }
        # JSON is YAML.
        Path(path).write_text(json.dumps(config, indent=2))

    def delete(self):
        """Deletes the namespace, and does not wait for its end."""
        self.server.request("DELETE", f"/api/v1/namespaces/{self}")


def is_ready(pod):
    """True if the pod, as JSON, has the condition Ready."""
    conditions = pod.get("status", {}).get("conditions", [])
    return any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)
