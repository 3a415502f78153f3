"""Serves external metrics, `load`, `load-1` and so on, whose values change every 15 s:
load.py PORT CERTIFICATE [CHANGES]. After so many changes, 16 by default, they stay at 30."""
import http.server
import json
import random
import ssl
import sys
import time

API = "/apis/external.metrics.k8s.io/v1beta1"
BEGAN = time.monotonic()
CHANGES = int(sys.argv[3]) if len(sys.argv) > 3 else 16


def load_of(metric):
    chance = random.Random(48 + int("0" + metric.removeprefix("load").removeprefix("-")))
    loads = [chance.randint(2, 100) for _ in range(CHANGES)] + [30]
    return loads[min(int((time.monotonic() - BEGAN) / 15), CHANGES)]


def answer(path):
    if path == API:
        metric = {"name": "load", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": API[6:], "resources": [metric]}
    name = path.rsplit("/", 1)[1]
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    value = {"metricName": name, "metricLabels": {}, "timestamp": now, "value": str(load_of(name))}
    return {"kind": "ExternalMetricValueList", "apiVersion": API[6:], "items": [value]}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = json.dumps(answer(self.path.split("?")[0].rstrip("/"))).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
