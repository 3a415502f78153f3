//! A server given by its URL, without a kubeconfig: another daemon, for `explain --server`.

use std::path::PathBuf;

use super::{ClientConfig, ConfigError, Draft, Environment};
use crate::client::credentials::Authorization;
use crate::client::pem::Pem;
use crate::client::proxy;

/// How to connect to a server that no kubeconfig names.
#[derive(Clone, Debug, Default)]
pub struct DirectSource {
    /// The server's URL.
    pub url: String,
    /// File with the bearer token.
    pub token_file: Option<PathBuf>,
    /// File with the certificate authority of the server, in PEM; the system's if `None`.
    pub certificate_authority: Option<PathBuf>,
    /// Accept any server certificate.
    pub insecure_skip_tls_verify: bool,
}

impl ClientConfig {
    /// Creates the configuration for a server outside of any kubeconfig. Reads files, opens no
    /// connection.
    ///
    /// # Errors
    /// [`ConfigError::Master`], which names the problem.
    pub fn direct(source: &DirectSource) -> Result<Self, ConfigError> {
        let master = |problem| ConfigError::Master {
            url: proxy::without_password(&source.url),
            problem,
        };
        let mut draft = Draft {
            server: source.url.clone(),
            origin: "--server".to_owned(),
            user: "--token-file".to_owned(),
            ..Draft::default()
        };
        // A daemon's pages that want a token are served through TLS only.
        if source.token_file.is_some() && !draft.server.contains("://") {
            draft.server.insert_str(0, "https://");
        }
        draft.tls.insecure = source.insecure_skip_tls_verify;
        if let Some(file) = &source.certificate_authority {
            draft.tls.certificate_authority = Some(Pem::File {
                name: "--certificate-authority",
                path: file.clone(),
            });
        }
        if let Some(file) = &source.token_file {
            draft.authorization = Authorization::TokenFile {
                path: file.clone(),
                until_readable: None,
            };
        }
        draft.finish(&Environment::of_process()).map_err(master)
    }
}
