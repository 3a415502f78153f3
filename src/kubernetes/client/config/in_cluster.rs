//! The in-cluster configuration of a pod: the API server's address from the environment, token and
//! certificate authority from a mounted directory.

use std::fs;

use super::error::SearchedPlace;
use super::{Authorization, Draft, Environment};
use crate::client::pem::Pem;

const HOST: &str = "KUBERNETES_SERVICE_HOST";
const PORT: &str = "KUBERNETES_SERVICE_PORT";

/// Returns the pod's configuration; `None` if this process does not run in a pod.
pub(super) fn find(environment: &Environment, searched: &mut Vec<SearchedPlace>) -> Option<Draft> {
    let (Some(host), Some(port)) = (
        environment.non_empty_var(HOST),
        environment.non_empty_var(PORT),
    ) else {
        let place = format!("the pod's environment (${HOST}, ${PORT})");
        searched.push(SearchedPlace::new(place, "not set, so this is not a pod"));
        return None;
    };
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    let directory = &environment.service_account;
    let namespace = fs::read_to_string(directory.join("namespace")).ok();
    let namespace = namespace.map(|text| text.trim().to_owned());
    let mut draft = Draft {
        server: format!("https://{host}:{port}"),
        authorization: Authorization::TokenFile {
            path: directory.join("token"),
            until_readable: None,
        },
        namespace: namespace.filter(|text| !text.is_empty()),
        origin: "the pod's service account".to_owned(),
        user: "the pod".to_owned(),
        ..Draft::default()
    };
    let authority = Pem::File {
        name: "certificate authority",
        path: directory.join("ca.crt"),
    };
    // As upstream (client-go `rest/config.go:InClusterConfig`).
    match authority.read() {
        Ok(_) => draft.tls.certificate_authority = Some(authority),
        Err(problem) => log::warn!("{problem}; the system's certificate authorities are used"),
    }
    Some(draft)
}
