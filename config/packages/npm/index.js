// Starts the dev server of replicaset-controller: a Kubernetes API server for tests, in which pods come,
// run and fail. Needs nothing but Node.js.
'use strict'

const { spawn } = require('node:child_process')
const { existsSync, mkdtempSync, readFileSync, rmSync } = require('node:fs')
const { tmpdir } = require('node:os')
const { join } = require('node:path')
const { setTimeout: sleep } = require('node:timers/promises')

// Upper bound for a wait that would otherwise never end.
const SECONDS = 60

/** The path of the program: $REPLICASET_CONTROLLER, or that of this package for this machine. */
function binary () {
  return process.env.REPLICASET_CONTROLLER ||
    join(__dirname, `${process.platform}-${process.arch}`, 'replicaset-controller')
}

/**
 * Starts a server on a free port. `options.args` are further arguments of `replicaset-controller dev`.
 * Resolves to a server with `url`, `kubeconfig` (a path), `request()`, `createNamespace()`,
 * `annotatePod()` and `stop()`.
 */
async function start ({ args = ['--pod-ready-after=0s'] } = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'dev-server-'))
  const kubeconfig = join(folder, 'kubeconfig')
  const command = ['dev', '--port=0', '--until-stdin-closes', `--write-kubeconfig=${kubeconfig}`, ...args]
  // It ends when this process does, however that ends, since that closes the pipe to it.
  const child = spawn(binary(), command, { stdio: ['pipe', 'pipe', 'pipe'] })
  let said = ''
  const collect = chunk => { said = (said + chunk).slice(-8192) }
  child.stdout.on('data', collect)
  child.stderr.on('data', collect)
  let end
  const ended = new Promise(resolve => {
    child.once('error', error => resolve(end = error.message))
    child.once('close', code => resolve(end = end || `exit code ${code}`))
  })

  async function stop () {
    child.kill('SIGTERM')
    await ended
    rmSync(folder, { recursive: true, force: true })
  }

  try {
    // The file appears when the server answers.
    await waitUntil(() => end || existsSync(kubeconfig), 'the dev server answers')
    if (end) throw new Error(end)
  } catch (error) {
    await stop()
    throw new Error(`${[binary(), ...command].join(' ')}: ${error.message}\n${said}`)
  }
  const url = /server: "(.*)"/.exec(readFileSync(kubeconfig, 'utf8'))[1]

  /** Sends a request with a JSON body, and returns the decoded answer. */
  async function request (method, path, body, contentType = 'application/json') {
    const headers = { 'content-type': contentType, accept: 'application/json' }
    const response = await fetch(url + path, { method, headers, body: body && JSON.stringify(body) })
    const text = await response.text()
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`)
    return JSON.parse(text)
  }

  /** Creates a namespace, and returns its name. */
  async function createNamespace (prefix = 'test-') {
    const created = await request('POST', '/api/v1/namespaces', { metadata: { generateName: prefix } })
    return created.metadata.name
  }

  /** Controls how the nodes treat a pod: `{ fate: 'unready' }`; null removes an annotation. */
  function annotatePod (namespace, pod, annotations) {
    const of = Object.fromEntries(Object.entries(annotations).map(
      ([name, value]) => [`dev.replicaset-controller/${name}`, value === null ? null : String(value)]))
    const path = `/api/v1/namespaces/${namespace}/pods/${pod}`
    return request('PATCH', path, { metadata: { annotations: of } }, 'application/merge-patch+json')
  }

  return { url, kubeconfig, request, createNamespace, annotatePod, stop }
}

/** Calls `check()`, which may be async, until it returns something true, and returns that. */
async function waitUntil (check, what, seconds = SECONDS) {
  const deadline = Date.now() + seconds * 1000
  for (;;) {
    const found = await check()
    if (found) return found
    if (Date.now() > deadline) throw new Error(`not within ${seconds} s: ${what}`)
    await sleep(10)
  }
}

module.exports = { start, waitUntil, binary }
