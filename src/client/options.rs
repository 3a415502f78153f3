//! How the client behaves, apart from where the API server is. Filled by whoever makes one.

use std::sync::Arc;
use std::time::Duration;

use super::fence::Fence;
use crate::stdx::build;

/// How a [`Client`](super::Client) behaves.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Requests per second; no limit if not above zero. Watches don't count
    /// (kubernetes `cmd/kube-controller-manager/app/options`: `--kube-api-qps`).
    pub qps: f32,
    /// Requests that may go at once after a quiet time (`--kube-api-burst`).
    pub burst: u32,
    /// Idle connections that are kept open: as many as threads send requests at once, else each request
    /// above that number pays for a new TLS handshake.
    pub connections: usize,
    /// How long the server may take to begin its answer, and again to complete it.
    pub request_timeout: Duration,
    /// How long a watch may be silent. Bookmarks come about once a minute, so a silence this long
    /// means that the connection is dead although nobody said so.
    pub watch_silence_timeout: Duration,
    /// How long a whole streamed list may take.
    pub list_timeout: Duration,
    /// Sends nothing that could change the cluster: every request but a read is refused here, before
    /// it is sent. What a dry run rests on.
    pub read_only: bool,
    /// What the daemon calls itself in the API server's logs.
    pub user_agent: String,
    /// Asked before anything is sent by a [`Client`](super::Client), reads included: who may not write
    /// has nothing to read for. Its [`StreamClient`](super::StreamClient)s, which only read, go on.
    /// `None`: everything may be sent at any time.
    pub fence: Option<Arc<dyn Fence>>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            qps: 20.0,
            burst: 30,
            connections: 64,
            request_timeout: Duration::from_mins(1),
            watch_silence_timeout: Duration::from_mins(5),
            list_timeout: Duration::from_mins(10),
            read_only: false,
            user_agent: user_agent(),
            fence: None,
        }
    }
}

/// `replicaset-controller/<version> (<os>/<arch>) kubernetes/<commit>/replicaset-controller`, with
/// seven characters of the commit, and at the end the controller
/// (client-go `rest/config.go:DefaultKubernetesUserAgent`, `AddUserAgent`).
fn user_agent() -> String {
    let (version, platform) = (build::VERSION, build::platform());
    let commit = build::COMMIT
        .and_then(|commit| commit.get(..7))
        .unwrap_or("unknown");
    format!(
        "replicaset-controller/{version} ({platform}) kubernetes/{commit}/replicaset-controller"
    )
}

#[cfg(test)]
mod tests {
    use super::user_agent;
    use crate::stdx::build;

    #[test]
    fn the_user_agent_has_the_form_of_client_go() {
        let (version, platform) = (env!("CARGO_PKG_VERSION"), build::platform());
        let expected = format!("replicaset-controller/{version} ({platform}) kubernetes/");
        let agent = user_agent();
        assert!(agent.starts_with(&expected), "{agent}");
        assert!(agent.ends_with("/replicaset-controller"), "{agent}");
    }
}
