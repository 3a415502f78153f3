//! The API server of a test behind TLS, for daemons with credentials, which are sent no other way.

use std::sync::Arc;

use replicaset_controller::http_server::{Server, ServerOptions};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;

use super::TestCluster;

/// More members of a kubeconfig's cluster for [`over_tls`], after a comma.
pub(crate) const UNVERIFIED: &str = ", insecure-skip-tls-verify: true";

/// Serves the cluster's API through the recorder and the faults, until it is dropped.
pub(crate) fn over_tls(cluster: &TestCluster) -> Server {
    let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]);
    let own = own.expect("a certificate");
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key);
    let config = Arc::new(config.expect("they belong together"));
    let options = ServerOptions {
        accept_thread: "tls-accept",
        connection_thread: "tls-conn-",
        limits: None,
        body_bytes: 3 << 20,
        tls: Some(Arc::new(move || Arc::clone(&config))),
        accept_hosts: None,
    };
    let handler = Arc::new(cluster.faults().clone());
    Server::start("127.0.0.1:0", options, handler, cluster.stop()).expect("a free port")
}
