"""Fixtures: one server for all tests of a run, and for each test that asks for it a namespace."""

import itertools
import sys

import pytest

from . import DevServer, DevServerError

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def dev_server_arguments():
    """Arguments of `replicaset-controller dev`; a `conftest.py` overrides them."""
    return ["--pod-ready-after=0s"]


@pytest.fixture(scope="session")
def dev_server(dev_server_arguments, tmp_path_factory):
    """A `DevServer`, which stops after the last test."""
    server, failure = None, ""
    try:
        server = DevServer(*dev_server_arguments, folder=tmp_path_factory.mktemp("dev-server"))
    except DevServerError as error:
        failure = str(error)
    if server is None:
        pytest.fail(f"the dev server does not start: {failure}", pytrace=False)
    with server:
        yield server


@pytest.fixture(scope="session")
def dev_client(dev_server):
    """An `ApiClient` of the package `kubernetes`."""
    return dev_server.client()


@pytest.fixture
def dev_namespace(dev_server):
    """A `Namespace` for this test, which is deleted after it."""
    namespace = dev_server.create_namespace(f"test-{next(_NUMBERS)}")
    yield namespace
    namespace.delete()


@pytest.fixture
def dev_kubeconfig(dev_namespace, tmp_path, monkeypatch):
    """The path of a kubeconfig with the test's namespace, which $KUBECONFIG names during the test."""
    path = str(tmp_path / "kubeconfig")
    dev_namespace.write_kubeconfig(path)
    monkeypatch.setenv("KUBECONFIG", path)
    # The package `kubernetes` reads the variable when it is imported, and not again: without this, a
    # test would reach the cluster of the person who runs it.
    imported = sys.modules.get("kubernetes.config.kube_config")
    if imported:
        monkeypatch.setattr(imported, "KUBE_CONFIG_DEFAULT_LOCATION", path)
    return path
