//! The configuration that a pod finds in itself: the API server's address in the environment, token
//! and certificate authority in a mounted directory.

use std::fs;

use super::error::{ConfigError, LookedAt};
use super::{Authorization, Draft, Environment};

const HOST: &str = "KUBERNETES_SERVICE_HOST";
const PORT: &str = "KUBERNETES_SERVICE_PORT";

/// The pod's own configuration; `None` if this is no pod.
///
/// # Errors
/// [`ConfigError::InCluster`] if the environment speaks of a cluster but a file is missing.
pub(super) fn find(
    environment: &Environment,
    looked_at: &mut Vec<LookedAt>,
) -> Result<Option<Draft>, ConfigError> {
    let (Some(host), Some(port)) = (environment.filled(HOST), environment.filled(PORT)) else {
        let place = format!("the pod's environment (${HOST}, ${PORT})");
        looked_at.push(LookedAt::new(place, "not set, so this is not a pod"));
        return Ok(None);
    };
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    let directory = &environment.service_account;
    let authority = directory.join("ca.crt");
    let authority = fs::read(&authority).map_err(|error| {
        ConfigError::InCluster(format!("{} cannot be read: {error}", authority.display()))
    })?;
    let namespace = fs::read_to_string(directory.join("namespace")).ok();
    let namespace = namespace.map(|text| text.trim().to_owned());
    let mut draft = Draft {
        server: format!("https://{host}:{port}"),
        authorization: Authorization::TokenFile(directory.join("token")),
        namespace: namespace.filter(|text| !text.is_empty()),
        origin: "the pod's service account".to_owned(),
        ..Draft::default()
    };
    draft.tls.certificate_authority = Some(authority);
    Ok(Some(draft))
}
