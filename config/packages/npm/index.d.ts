/** A running dev server. */
export interface DevServer {
  /** Its address: `http://127.0.0.1:PORT`. */
  readonly url: string
  /** The path of a kubeconfig for it. */
  readonly kubeconfig: string
  /** Sends a request with a JSON body, and returns the decoded answer. */
  request(method: string, path: string, body?: unknown, contentType?: string): Promise<any>
  /** Creates a namespace, and returns its name. */
  createNamespace(prefix?: string): Promise<string>
  /** Controls how the nodes treat a pod: `{ fate: 'unready' }`; null removes an annotation. */
  annotatePod(namespace: string, pod: string, annotations: Record<string, string | number | null>): Promise<any>
  /** Stops the server, and waits for its end. */
  stop(): Promise<void>
}

/** Starts a server on a free port; `args` are further arguments of `replicaset-controller dev`. */
export function start(options?: { args?: string[] }): Promise<DevServer>

/** Calls `check()` until it returns something true, and returns that. */
export function waitUntil<T>(check: () => T | Promise<T>, what: string, seconds?: number): Promise<T>

/** The path of the program. */
export function binary(): string
