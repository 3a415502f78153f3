"""The program under test: it renews the pods of a ReplicaSet one by one."""

import time


def ready_pods(core, namespace, selector):
    pods = core.list_namespaced_pod(namespace, label_selector=selector).items
    return [
        pod
        for pod in pods
        if pod.metadata.deletion_timestamp is None
        and any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or [])
    ]


def renew(core, namespace, selector, seconds=30):
    """Deletes each pod, and waits for its successor before it goes on."""
    pods = ready_pods(core, namespace, selector)
    for pod in pods:
        core.delete_namespaced_pod(pod.metadata.name, namespace)
        deadline = time.monotonic() + seconds
        while len(ready_pods(core, namespace, selector)) < len(pods):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{pod.metadata.name} has no successor")
            time.sleep(0.02)
    return len(pods)
