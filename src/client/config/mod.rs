//! Where the API server is and how to appear before it: flags, `$KUBECONFIG`, `~/.kube/config`, or
//! the pod's service account. Loaded once at the start, on the main thread; everything that can be
//! wrong with files and certificates is found here.

mod direct;
pub(super) mod environment;
mod error;
mod in_cluster;
mod kubeconfig;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub use direct::DirectSource;
pub use environment::Environment;
pub use error::{ConfigError, LookedAt};
use ureq::http::uri::Uri;

use super::credentials::{Authorization, Credentials, Impersonation};
use super::proxy;
use super::tls::{Tls, TlsSource};

/// What the command line says about the API server.
#[derive(Clone, Debug, Default)]
pub struct ConfigSource {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`: the server's address, in place of the kubeconfig's. Without `--kubeconfig` and
    /// `--context` no kubeconfig is looked for, so that credentials never go to a server that they
    /// are not for.
    pub master: Option<String>,
    /// `--context`, in place of the kubeconfig's current one.
    pub context: Option<String>,
}

/// Where the API server is and how to appear before it. Secrets never show in `Debug`.
#[derive(Clone)]
pub struct ClientConfig {
    /// Scheme and authority only.
    pub(super) server: Uri,
    /// The path in the server's URL without a slash at its end, such as `/k8s/clusters/c-1`.
    pub(super) prefix: Arc<str>,
    pub(super) tls: Option<Tls>,
    pub(super) credentials: Credentials,
    pub(super) proxy: Option<ureq::Proxy>,
    url: String,
    namespace: String,
    origin: String,
}

/// Everything that a configuration is made of, before it is checked.
#[derive(Default)]
struct Draft {
    server: String,
    tls: TlsSource,
    authorization: Authorization,
    impersonation: Impersonation,
    proxy_url: Option<String>,
    namespace: Option<String>,
    origin: String,
}

impl ClientConfig {
    /// Finds the configuration as kubectl does: `--kubeconfig`, else the files in `$KUBECONFIG`,
    /// else `~/.kube/config`, else the pod's service account. Reads files, opens no connection.
    ///
    /// # Errors
    /// [`ConfigError`], which says where it looked or what to mend.
    pub fn load(source: &ConfigSource) -> Result<Self, ConfigError> {
        Self::load_from(source, &Environment::of_process())
    }

    /// As [`load`](Self::load), with other surroundings than this process's.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_from(
        source: &ConfigSource,
        environment: &Environment,
    ) -> Result<Self, ConfigError> {
        let mut looked_at = Vec::new();
        if let Some(files) = kubeconfig::find(source, environment, &mut looked_at)? {
            return kubeconfig::resolve(&files, source, environment);
        }
        if let Some(url) = &source.master {
            let draft = Draft {
                server: url.clone(),
                origin: "--master".to_owned(),
                ..Draft::default()
            };
            return draft.finish(environment).map_err(|problem| {
                let url = url.clone();
                ConfigError::Master { url, problem }
            });
        }
        if let Some(draft) = in_cluster::find(environment, &mut looked_at)? {
            return draft.finish(environment).map_err(ConfigError::InCluster);
        }
        Err(ConfigError::NotFound(looked_at))
    }

    /// A server without TLS and credentials, such as the dev server at `http://127.0.0.1:8001`.
    ///
    /// # Panics
    /// If `url` is not a URL.
    pub fn plain(url: &str) -> Self {
        let draft = Draft {
            server: url.to_owned(),
            origin: "a plain address".to_owned(),
            ..Draft::default()
        };
        let nothing = Environment::new([], "");
        draft
            .finish(&nothing)
            .expect("the caller gives a valid URL")
    }

    /// The server's URL.
    pub fn server(&self) -> &str {
        &self.url
    }

    /// The namespace of the context or of the pod; `default` if neither says.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Where this configuration is from, for people.
    pub fn origin(&self) -> &str {
        &self.origin
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("url", &self.url)
            .field("origin", &self.origin)
            .field("tls", &self.tls.is_some())
            .field("credentials", &self.credentials)
            .field("proxy", &self.proxy)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Draft {
    /// Checks everything and puts it together. The error is for people, and says nothing of where
    /// this draft is from.
    fn finish(self, environment: &Environment) -> Result<ClientConfig, String> {
        let url = with_scheme(&self.server, &self.tls);
        let uri: Uri = url
            .parse()
            .map_err(|error| format!("{url:?} is not a URL: {error}"))?;
        let scheme = uri.scheme_str().unwrap_or_default();
        let (Some(host), Some(authority)) = (uri.host(), uri.authority()) else {
            return Err(format!("{url:?} has no host"));
        };
        let default_port = match scheme {
            "https" => 443,
            "http" => 80,
            _ => return Err(format!("{url:?} begins with neither https:// nor http://")),
        };
        if authority.as_str().contains('@') {
            return Err("user and password do not belong into the server's URL".to_owned());
        }
        let port = uri.port_u16().unwrap_or(default_port);
        let configured = self.proxy_url.as_deref();
        let proxy = proxy::choose(configured, environment, scheme, host, port)?;
        let tls = if scheme == "https" {
            let tls = Tls::new(host, &self.tls)?;
            let through_tls = |proxy: &ureq::Proxy| proxy.uri().scheme_str() == Some("https");
            Some(if proxy.as_ref().is_some_and(through_tls) {
                tls.with_tls_proxy()?
            } else {
                tls
            })
        } else {
            None
        };
        let server = format!("{scheme}://{authority}/");
        Ok(ClientConfig {
            server: server.parse().expect("the parts of a URL make a URL"),
            prefix: uri.path().trim_end_matches('/').into(),
            tls,
            credentials: Credentials::new(self.authorization, &self.impersonation)?,
            proxy,
            url,
            namespace: self.namespace.unwrap_or_else(|| "default".to_owned()),
            origin: self.origin,
        })
    }
}

/// `host:port` alone means TLS exactly if there is something to do TLS with
/// (client-go `rest/url_utils.go:defaultServerUrlFor`).
fn with_scheme(server: &str, tls: &TlsSource) -> String {
    if server.contains("://") {
        return server.to_owned();
    }
    let secure = tls.certificate_authority.is_some() || tls.identity.is_some() || tls.insecure;
    format!("{}://{server}", if secure { "https" } else { "http" })
}
