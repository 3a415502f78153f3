#!/usr/bin/env python3
"""Follows the pods and ReplicaSets of a cluster for the rigs, and judges what it saw.

objects.py watch FILE      writes each event to FILE, until it is killed; $CONTROL_PLANE_URL,
                           $CONTROL_PLANE_CA and $TOKEN give access
objects.py startup FILE    pod startup in seconds as SIG Scalability measures it, from the creation
                           timestamp until the watch shows that all containers run: count p50 p99;
                           and from the first ReplicaSet to the last pod created
objects.py surplus FILE    the most pods above spec.replicas that one create left: all, and created
                           while spec.replicas was lower for 5 s
objects.py protected FILE AUDIT      pods that a ReplicaSet controller deleted though they were
                                     marked `scale-down: never`
objects.py rest FILE AUDIT SINCE     seconds from SINCE, by the epoch, to the last write of pods and
                                     ReplicaSets by a ReplicaSet controller
"""
import collections
import datetime
import json
import os
import ssl
import sys
import threading
import time
import urllib.request

PATHS = {"pods": "/api/v1/pods", "replicasets": "/apis/apps/v1/replicasets"}
FINISHED = ("Failed", "Succeeded")
LOCK = threading.Lock()


def line(kind, event):
    """What the judges need of an event, on one line."""
    thing = event["object"]
    meta, spec, status = thing["metadata"], thing["spec"], thing.get("status", {})
    owners = [owner["uid"] for owner in meta.get("ownerReferences", []) if owner.get("controller")]
    containers = status.get("containerStatuses", [])
    return {
        "kind": kind,
        "type": event["type"],
        "version": int(meta["resourceVersion"]),
        "seen": time.time(),
        "uid": meta["uid"],
        "name": meta["name"],
        "created": meta["creationTimestamp"],
        "owner": owners[0] if owners else None,
        "replicas": spec.get("replicas"),
        "active": "deletionTimestamp" not in meta and status.get("phase") not in FINISHED,
        "runs": status.get("phase") == "Running" and all("running" in c["state"] for c in containers),
        "protected": meta.get("annotations", {}).get("replicaset-controller/scale-down") == "never",
    }


def follow(kind, output):
    """The API server ends the watch of a slow client; the next one starts at the last version."""
    context = ssl.create_default_context(cafile=os.environ["CONTROL_PLANE_CA"])
    url = os.environ["CONTROL_PLANE_URL"] + PATHS[kind] + "?watch=true&timeoutSeconds=86400"
    version = ""
    while True:
        request = urllib.request.Request(url + version)
        request.add_header("Authorization", "Bearer " + os.environ["TOKEN"])
        with urllib.request.urlopen(request, context=context) as answer:
            for raw in answer:
                event = json.loads(raw)
                if event["type"] == "ERROR":
                    print(f"the watch of {kind} ended: {event['object']}", file=sys.stderr)
                    os._exit(1)
                version = "&resourceVersion=" + event["object"]["metadata"]["resourceVersion"]
                with LOCK:
                    print(json.dumps(line(kind, event)), file=output, flush=True)
        time.sleep(1)


def watch(path):
    with open(path, "w", encoding="utf-8") as output:
        threads = [threading.Thread(target=follow, args=(kind, output)) for kind in PATHS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def events(path):
    """In the order of the store, to which all resource versions belong."""
    with open(path, encoding="utf-8") as text:
        return sorted(map(json.loads, filter(lambda raw: raw.endswith("\n"), text)), key=lambda e: e["version"])


def startup(path):
    latencies = {}
    seen = collections.defaultdict(list)
    for event in events(path):
        if event["type"] == "ADDED":
            seen[event["kind"]].append(event["seen"])
        if event["kind"] == "pods" and event["runs"] and event["uid"] not in latencies:
            created = datetime.datetime.fromisoformat(event["created"]).timestamp()
            latencies[event["uid"]] = event["seen"] - created
    ordered = sorted(latencies.values())
    if ordered:
        p50, p99 = (ordered[int(len(ordered) * part)] for part in (0.50, 0.99))
        print(f"{len(ordered)} {p50:.1f} {p99:.1f} {seen['pods'][-1] - seen['replicasets'][0]:.1f}")


def surplus(path):
    active = collections.defaultdict(set)
    wanted = collections.defaultdict(list)
    most = late = 0
    for event in events(path):
        if event["kind"] == "replicasets":
            wanted[event["uid"]].append((event["seen"], event["replicas"]))
            continue
        pods = active[event["owner"]]
        if not event["active"] or event["type"] == "DELETED":
            pods.discard(event["uid"])
            continue
        pods.add(event["uid"])
        history = wanted.get(event["owner"])
        if event["type"] != "ADDED" or not history:
            continue
        most = max(most, len(pods) - history[-1][1])
        # Since when each value held: a value counts until 5 s after the next one.
        ends = [seen for seen, _ in history[1:]] + [event["seen"]]
        recent = [value for (_, value), end in zip(history, ends) if end > event["seen"] - 5]
        late = max(late, len(pods) - max(recent + [history[-1][1]]))
    print(most, late)


def writes(audit):
    """What the ReplicaSet controller wrote, by the log of the API server."""
    with open(audit, encoding="utf-8") as text:
        for raw in text:
            if "replicaset-controller" not in raw or not raw.endswith("\n"):
                continue
            entry = json.loads(raw)
            thing = entry.get("objectRef", {})
            if entry["verb"] not in ("get", "list", "watch") and thing.get("resource") in PATHS:
                yield entry


def protected(path, audit):
    ended = {}
    for event in events(path):
        if event["kind"] == "pods" and event["uid"] not in ended:
            if event["type"] == "DELETED" or not event["active"]:
                ended[event["uid"]] = event
    marked = {event["name"] for event in ended.values() if event["protected"]}
    deletes = [e for e in writes(audit) if e["verb"] == "delete" and e["responseStatus"]["code"] == 200]
    print(sum(e["objectRef"]["name"] in marked for e in deletes))


def rest(_, audit, since):
    times = [datetime.datetime.fromisoformat(e["stageTimestamp"]).timestamp() for e in writes(audit)]
    print(max(0, round(max(times, default=0) - float(since))))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
