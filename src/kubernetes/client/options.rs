//! Timeouts, limits and other settings of a client, apart from the server's address and
//! credentials.

use std::sync::Arc;
use std::time::Duration;

use super::fence::Fence;
use crate::stdx::build;

/// Settings of a [`Client`](super::Client).
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Requests per second; no limit if not above zero. Watches are not limited (kubernetes
    /// `cmd/kube-controller-manager/app/options`: `--kube-api-qps`).
    pub qps: f32,
    /// Requests that may be sent at once after a quiet time (`--kube-api-burst`).
    pub burst: u32,
    /// Maximum idle connections kept open. Set it to the number of threads that send requests at
    /// once; each request above it pays for a new TLS handshake.
    pub connections: usize,
    /// Maximum time until the response begins, and again until it is complete.
    pub request_timeout: Duration,
    /// Maximum silence of a watch. Bookmarks arrive about once a minute, so the connection of a
    /// watch that is silent for this long is dead.
    pub watch_silence_timeout: Duration,
    /// Refuses every request but a read before it is sent, so that nothing can change the cluster.
    /// The dry run relies on this.
    pub read_only: bool,
    /// The `User-Agent` header, for the API server's logs: visible ASCII and spaces.
    pub user_agent: String,
    /// Consulted before a [`Client`](super::Client) sends anything, reads included: a daemon that
    /// may not write has no use for reads either. [`StreamClient`](super::StreamClient)s, which
    /// only read, ignore it. `None`: no restriction.
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
            read_only: false,
            user_agent: user_agent(),
            fence: None,
        }
    }
}

/// `replicaset-controller/<version> (<os>/<arch>) kubernetes/<commit>/replicaset-controller`, with
/// seven characters of the commit and the controller's name at the end (client-go
/// `rest/config.go:DefaultKubernetesUserAgent`, `AddUserAgent`).
fn user_agent() -> String {
    let (version, platform) = (build::VERSION, build::platform());
    let commit = build::short_commit().unwrap_or("unknown");
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
