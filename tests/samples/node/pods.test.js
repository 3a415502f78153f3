// Tests with Node's own runner and no client library. `npm install` has installed the package.
'use strict'

const assert = require('node:assert/strict')
const { execFileSync, spawn } = require('node:child_process')
const { once } = require('node:events')
const { existsSync } = require('node:fs')
const { after, before, test } = require('node:test')
const { binary, start, waitUntil } = require('replicaset-controller')

let server
before(async () => { server = await start() })
after(() => server.stop())

function create (namespace, replicas) {
  const labels = { app: 'web' }
  const containers = [{ name: 'web', image: 'example.invalid/web:1' }]
  return server.request('POST', `/apis/apps/v1/namespaces/${namespace}/replicasets`, {
    metadata: { name: 'web' },
    spec: { replicas, selector: { matchLabels: labels }, template: { metadata: { labels }, spec: { containers } } }
  })
}

async function readyPods (namespace) {
  const { items } = await server.request('GET', `/api/v1/namespaces/${namespace}/pods`)
  return items.filter(pod => pod.status.conditions?.some(it => it.type === 'Ready' && it.status === 'True'))
}

test('pods become ready, and one that crashes is not', async () => {
  const namespace = await server.createNamespace()
  await create(namespace, 3)
  const pods = await waitUntil(async () => {
    const pods = await readyPods(namespace)
    return pods.length === 3 && pods
  }, 'three pods are ready')
  await server.annotatePod(namespace, pods[0].metadata.name, { fate: 'crash-loop' })
  await waitUntil(async () => (await readyPods(namespace)).length === 2, 'two pods are ready')
  await server.annotatePod(namespace, pods[0].metadata.name, { fate: null })
})

test('a program finds the server by its kubeconfig', async () => {
  const namespace = await server.createNamespace()
  await create(namespace, 1)
  await waitUntil(async () => (await readyPods(namespace)).length === 1, 'the pod is ready')
  const report = execFileSync(binary(), ['explain', `${namespace}/web`, `--kubeconfig=${server.kubeconfig}`])
  assert.match(String(report), /Converged: 1 of 1 pods are available/)
})

test('a server stops', async () => {
  const other = await start({ args: ['--nodes=1'] })
  assert.equal((await other.request('GET', '/api/v1/nodes')).items.length, 1)
  await other.stop()
  await assert.rejects(other.request('GET', '/api/v1/nodes'))
  assert.ok(!existsSync(other.kubeconfig))
})

test('a server ends with its program', async () => {
  const program = "require('replicaset-controller').start().then(server => console.log(server.url))"
  const child = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'pipe', 'inherit'] })
  const [url] = await once(child.stdout, 'data')
  const answers = () => fetch(`${url}`.trim() + '/version').then(() => true, () => false)
  assert.ok(await answers())
  child.kill('SIGKILL')
  await waitUntil(async () => !await answers(), 'the server is gone')
})

test('a server that does not start says why', async () => {
  await assert.rejects(start({ args: ['--no-such-flag'] }), /--no-such-flag/)
})

test('a rejected request says why', async () => {
  await assert.rejects(server.annotatePod('default', 'missing', { fate: 'failed' }), /404.*not found/)
})
