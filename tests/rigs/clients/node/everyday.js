// Everyday calls of the official JavaScript client to the server of $KUBECONFIG.
import * as k8s from "@kubernetes/client-node";

const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const batch = config.makeApiClient(k8s.BatchV1Api);
const namespace = "default";
let passed = 0;

function ok(what, value = true) {
  if (!value) throw new Error(what);
  passed += 1;
  console.log("ok", what);
}

async function awaitThat(what, condition) {
  for (let n = 0; n < 600; n += 1) {
    if (await condition()) return ok(what);
    await new Promise((done) => setTimeout(done, 100));
  }
  throw new Error(what);
}

const labels = { app: "web" };
const template = {
  metadata: { labels },
  spec: { containers: [{ name: "c", image: "example.invalid/c:1" }] },
};
const set = {
  metadata: { name: "web" },
  spec: { replicas: 2, selector: { matchLabels: labels }, template },
};
const list = () => core.listNamespacedPod({ namespace, labelSelector: "app=web" });

const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/pods`, list);
const added = new Set();
informer.on("add", (pod) => added.add(pod.metadata.name));
await informer.start();

await apps.createNamespacedReplicaSet({ namespace, body: set });
const read = () => apps.readNamespacedReplicaSet({ name: "web", namespace });
await awaitThat("a ReplicaSet gets ready pods", async () => (await read()).status.readyReplicas === 2);
await awaitThat("an informer sees them", () => added.size === 2);
await informer.stop();
const pods = (await list()).items;
const log = await core.readNamespacedPodLog({ name: pods[0].metadata.name, namespace });
ok("logs", log.includes("log of c"));

const objects = k8s.KubernetesObjectApi.makeApiClient(config);
const map = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "m", namespace } };
await objects.create({ ...map, data: { a: "b" } });
const changed = await objects.patch({ ...map, data: { c: "d" } });
ok("strategic merge patch", changed.data.a === "b" && changed.data.c === "d");
const applied = await objects.patch(
  { ...map, data: { e: "f" } },
  undefined,
  undefined,
  "rig",
  true,
  k8s.PatchStrategy.ServerSideApply,
);
ok("server-side apply", applied.data.e === "f");
const scale = await apps.readNamespacedReplicaSetScale({ name: "web", namespace });
scale.spec.replicas = 1;
await apps.replaceNamespacedReplicaSetScale({ name: "web", namespace, body: scale });
ok("scale", (await read()).spec.replicas === 1);
template.spec.restartPolicy = "Never";
await batch.createNamespacedJob({ namespace, body: { metadata: { name: "j" }, spec: { template } } });
const job = () => batch.readNamespacedJob({ name: "j", namespace });
await awaitThat("a Job completes", async () => (await job()).status.succeeded === 1);
try {
  await core.readNamespacedPod({ name: "absent", namespace });
  ok("404", false);
} catch (error) {
  ok("404", error.code === 404);
}
await apps.deleteNamespacedReplicaSet({ name: "web", namespace });
await awaitThat("its pods go", async () =>
  (await list()).items.every((pod) => pod.metadata.ownerReferences?.[0].kind === "Job"),
);
console.log(`${passed} calls of the JavaScript client`);
