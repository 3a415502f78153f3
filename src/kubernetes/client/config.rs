//! Client configuration: the API server's address and the daemon's credentials, from flags,
//! `$KUBECONFIG`, `~/.kube/config`, or the pod's service account. The main thread loads it at
//! startup and reports every problem with files and certificates then. On SIGHUP the thread
//! `signal` reloads credentials and certificates.

mod file;
mod kubeconfig;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, fs};

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use ureq::http::uri::Uri;

use super::access::Access;
use super::credentials::{Authorization, Credentials, Impersonation, Owner};
use super::live_tls::{LiveTls, TlsSource};
use super::proxy;
use super::tls::Hints;
use crate::client::live_tls::Pem;
use crate::stdx::clock::SystemClock;
use crate::stdx::stop::Stop;

#[derive(Clone, Debug, Default)]
pub struct ConfigSource {
    pub kubeconfig: Option<PathBuf>,
    /// `--master`: the server's address, instead of the kubeconfig's. Without `--kubeconfig` and
    /// `--context` no kubeconfig is loaded, so credentials are never sent to a server that they are
    /// not for.
    pub master: Option<String>,
    /// `--context`, instead of the kubeconfig's current context. A kubeconfig must have it.
    pub context: Option<String>,
}

/// The API server's address and the credentials for it. `Debug` never prints secrets.
#[derive(Clone)]
pub struct ClientConfig {
    /// Scheme and authority only.
    pub(super) server: Uri,
    /// The path of the server's URL without a trailing slash, such as `/k8s/clusters/c-1`.
    pub(super) prefix: Arc<str>,
    pub(super) access: Arc<Access>,
    pub(super) proxy: Option<ureq::Proxy>,
    pub(super) hints: &'static Hints,
    /// The server's URL as it is used.
    uri: Uri,
    /// The same, without what may be a password.
    url: String,
    namespace: String,
    origin: String,
    /// The sources that a reload reads again; `None` for [`plain`](Self::plain).
    loaded_from: Option<Arc<(ConfigSource, Environment)>>,
}

#[derive(Default)]
struct Draft {
    server: String,
    tls: TlsSource,
    authorization: Authorization,
    impersonation: Impersonation,
    proxy_url: Option<String>,
    namespace: Option<String>,
    /// Where the draft is from, for errors, such as `kubeconfig /etc/rs.conf, context "it"`.
    place: String,
    /// The same, for the log.
    origin: String,
    user: String,
}

impl ClientConfig {
    /// Finds the configuration as kubectl does: `--kubeconfig`, else the files in `$KUBECONFIG`,
    /// else `~/.kube/config`, else the pod's service account. Reads files, opens no connection.
    pub fn load(source: &ConfigSource) -> Result<Self, ConfigError> {
        Self::load_from(source, &Environment::of_process())
    }

    /// As [`load`](Self::load), with `environment` instead of the process's environment.
    pub fn load_from(
        source: &ConfigSource,
        environment: &Environment,
    ) -> Result<Self, ConfigError> {
        let mut config = Draft::load(source, environment)?.finish(environment)?;
        config.loaded_from = Some(Arc::new((source.clone(), environment.clone())));
        Ok(config)
    }

    /// Reads the kubeconfig and the files that it names again, and replaces the credentials and
    /// certificate authorities of this configuration and of all clients created from it. Runs a
    /// credential plugin and blocks until it exits; `stop` shortens that wait. Returns the changes,
    /// for the log.
    ///
    /// # Errors
    /// What is wrong, or that there is another server or proxy, which needs a restart; the old
    /// settings stay.
    pub fn reload(&self, stop: &Stop) -> Result<String, String> {
        let Some(loaded_from) = &self.loaded_from else {
            return Ok("there is nothing to read".to_owned());
        };
        let (source, environment) = &**loaded_from;
        let checked = Draft::load(source, environment).and_then(|draft| draft.check(environment));
        let checked = checked.map_err(|error| error.to_string())?;
        let problem = |problem| invalid(&checked.place, problem).to_string();
        // INVARIANT: credentials are never sent to a server that they are not for. Clients keep the
        // server and the proxy of their creation.
        if checked.uri != self.uri || checked.proxy != self.proxy {
            let why = "another server or proxy takes effect after a restart";
            return Err(problem(why.to_owned()));
        }
        let replaced = self.access.replace(checked.credentials, checked.tls, stop);
        let changes = replaced.map_err(problem)?;
        let text = if changes.is_empty() {
            "nothing has changed".to_owned()
        } else {
            format!("changed: {}", changes.join(", "))
        };
        Ok(format!("{} ({text})", self.origin))
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
        let empty = Environment::new([], "");
        draft.finish(&empty).expect("the caller gives a valid URL")
    }

    /// Host and port as in the server's URL.
    pub(super) fn authority(&self) -> &str {
        self.server.authority().map_or("", |it| it.as_str())
    }

    /// The server's URL, without what may be a password.
    pub fn server(&self) -> &str {
        &self.url
    }

    /// The namespace of the context or of the pod; `default` if neither names one.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The source of this configuration, for the log.
    pub fn origin(&self) -> &str {
        &self.origin
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("url", &self.url)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

struct Checked {
    url: String,
    uri: Uri,
    proxy: Option<ureq::Proxy>,
    /// `None` if no connection uses TLS.
    tls: Option<TlsSource>,
    credentials: Credentials,
    namespace: Option<String>,
    place: String,
    origin: String,
}

impl Draft {
    fn load(source: &ConfigSource, environment: &Environment) -> Result<Self, ConfigError> {
        let mut searched = Vec::new();
        if let Some(files) = kubeconfig::find(source, environment, &mut searched)? {
            return kubeconfig::resolve(&files, source, environment);
        }
        // The address and the account of another place would be those of another cluster.
        if let Some(context) = source.context.clone() {
            return Err(ConfigError::Context { context, searched });
        }
        if let Some(url) = &source.master {
            return Ok(Self::of_url("--master", url));
        }
        find(environment, &mut searched).ok_or(ConfigError::NotFound(searched))
    }

    /// The server that the flag `origin` names.
    fn of_url(origin: &str, url: &str) -> Self {
        Self {
            server: url.to_owned(),
            place: format!("{origin} {:?}", proxy::without_password(url)),
            origin: origin.to_owned(),
            ..Self::default()
        }
    }

    /// Checks the draft and builds the configuration.
    fn finish(self, environment: &Environment) -> Result<ClientConfig, ConfigError> {
        let checked = self.check(environment)?;
        let uri = checked.uri;
        let tls = checked
            .tls
            .map(|source| LiveTls::new(&uri, source, Arc::new(SystemClock)));
        let tls = tls.transpose();
        let tls = tls.map_err(|problem| invalid(&checked.place, problem))?;
        let scheme = uri.scheme_str().unwrap_or_default();
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let server = format!("{scheme}://{authority}/");
        Ok(ClientConfig {
            server: server.parse().expect("the parts of a URL make a URL"),
            prefix: uri.path().trim_end_matches('/').into(),
            uri,
            access: Arc::new(Access::new(checked.credentials, tls)),
            proxy: checked.proxy,
            hints: &Hints::KUBECONFIG,
            url: checked.url,
            namespace: checked.namespace.unwrap_or_else(|| "default".to_owned()),
            origin: checked.origin,
            loaded_from: None,
        })
    }

    fn check(self, environment: &Environment) -> Result<Checked, ConfigError> {
        let place = self.place.clone();
        let checked = self.try_check(environment);
        checked.map_err(|problem| invalid(&place, problem))
    }

    fn try_check(mut self, environment: &Environment) -> Result<Checked, String> {
        let url = with_scheme(&self.server, &self.tls);
        // Users may put a password into the URL by mistake; errors must not repeat it.
        let printable = proxy::without_password(&url);
        let uri: Uri = with_clean_path(&url)
            .parse()
            .map_err(|error| format!("{printable:?} is not a URL: {error}"))?;
        let scheme = uri.scheme_str().unwrap_or_default();
        let (Some(host), Some(authority)) = (uri.host(), uri.authority()) else {
            return Err(format!("{printable:?} has no host"));
        };
        let Some(default_port) = default_port(&uri) else {
            return Err(format!(
                "{printable:?} begins with neither https:// nor http://"
            ));
        };
        if authority.as_str().contains('@') {
            return Err(
                "user and password do not belong in the server's URL: give the user a username \
                 and a password"
                    .to_owned(),
            );
        }
        let port =
            proxy::port_of(authority).map_err(|problem| format!("{printable:?} {problem}"))?;
        let port = port.unwrap_or(default_port);
        let configured = self.proxy_url.as_deref();
        let proxy = proxy::choose(configured, environment, scheme, host, port)?;
        let through_tls = |proxy: &ureq::Proxy| proxy.uri().scheme_str() == Some("https");
        if let Some(pem) = &self.tls.certificate_authority {
            pem.read()?;
        }
        self.tls.tls_proxy = proxy.as_ref().is_some_and(through_tls);
        // INVARIANT: a secret is sent through TLS only (client-go
        // `tools/clientcmd/client_config.go:ClientConfig`). Impersonation is none, and is sent as
        // upstream: without it a request would act with the rights of a proxy's user.
        let is_secret =
            self.tls.identity.is_some() || !matches!(self.authorization, Authorization::None);
        let is_withheld = scheme == "http" && is_secret;
        if is_withheld {
            self.authorization = Authorization::None;
            let (origin, user) = (&self.origin, &self.user);
            log::warn!(
                "{origin}: the credentials of {user} are not sent, because anyone on the network \
                 path to {printable} could read them; if the server requires them, give it an \
                 https:// URL"
            );
        }
        let owner = Owner {
            user: self.user,
            origin: self.origin.clone(),
            has_certificate: self.tls.identity.is_some(),
            is_withheld,
        };
        let tls = (scheme == "https" || self.tls.tls_proxy).then_some(self.tls);
        Ok(Checked {
            credentials: Credentials::new(self.authorization, &self.impersonation, owner)?,
            url: printable,
            uri,
            proxy,
            tls,
            namespace: self.namespace,
            place: self.place,
            origin: self.origin,
        })
    }
}

/// Adds a scheme to `host:port`: `https` exactly if TLS settings are present (client-go
/// `rest/url_utils.go:defaultServerUrlFor`).
fn with_scheme(server: &str, tls: &TlsSource) -> String {
    if server.contains("://") {
        return server.to_owned();
    }
    let secure = tls.certificate_authority.is_some() || tls.identity.is_some() || tls.insecure;
    format!("{}://{server}", if secure { "https" } else { "http" })
}

/// What a path of a URL may not contain as it is.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The URL with its path as client-go sends it: escaped, and without empty and relative segments
/// (client-go `rest/url_utils.go:defaultServerUrlFor`, `rest/request.go:Request.URL`).
fn with_clean_path(url: &str) -> String {
    let host = url.find("://").map_or(0, |at| at + 3);
    let Some(at) = url[host..].find('/') else {
        return url.to_owned();
    };
    let (server, path) = url.split_at(host + at);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(utf8_percent_encode(segment, ESCAPED).to_string()),
        }
    }
    format!("{server}/{}", segments.join("/"))
}

/// The port of a URL that names none; `None` if it has another scheme.
pub(super) fn default_port(url: &Uri) -> Option<u16> {
    match url.scheme_str()? {
        "https" => Some(443),
        "http" => Some(80),
        _ => None,
    }
}

fn non_empty(text: Option<&String>) -> Option<&String> {
    text.filter(|text| !text.is_empty())
}

/// How to connect to a server that no kubeconfig names.
#[derive(Clone, Debug, Default)]
pub struct DirectSource {
    pub url: String,
    pub token_file: Option<PathBuf>,
    /// File with the certificate authority of the server, in PEM; the system's if `None`.
    pub certificate_authority: Option<PathBuf>,
    pub insecure_skip_tls_verify: bool,
}

impl ClientConfig {
    /// Creates the configuration for a server outside of any kubeconfig. Reads files, opens no
    /// connection.
    pub fn direct(source: &DirectSource) -> Result<Self, ConfigError> {
        let mut draft = Draft::of_url("--server", &source.url);
        "--token-file".clone_into(&mut draft.user);
        // A daemon's pages that require a token are served through TLS only.
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
        let config = draft.finish(&Environment::of_process())?;
        Ok(Self {
            hints: &Hints::FLAGS,
            ..config
        })
    }
}

/// Directory of a pod's service account (client-go `rest/config.go:InClusterConfig`).
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Environment variables, and the directory with the pod's service account.
#[derive(Clone, Debug)]
pub struct Environment {
    vars: BTreeMap<String, String>,
    service_account: PathBuf,
}

impl Environment {
    pub fn of_process() -> Self {
        let vars = std::env::vars_os().map(|(name, value)| {
            let text = |s: std::ffi::OsString| s.to_string_lossy().into_owned();
            (text(name), text(value))
        });
        Self {
            vars: vars.collect(),
            service_account: PathBuf::from(SERVICE_ACCOUNT),
        }
    }

    /// An environment with these variables and this service account directory.
    pub fn new<'a>(
        vars: impl IntoIterator<Item = (&'a str, &'a str)>,
        service_account: impl Into<PathBuf>,
    ) -> Self {
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Self {
            vars: vars.into_iter().map(own).collect(),
            service_account: service_account.into(),
        }
    }

    pub fn var(&self, name: &str) -> Option<&str> {
        self.vars.get(name).map(String::as_str)
    }

    fn non_empty_var(&self, name: &str) -> Option<&str> {
        self.var(name).filter(|value| !value.is_empty())
    }
}

/// Why the client has no API server address or no credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No source names an API server.
    #[error(
        "no configuration for an API server was found; looked at\n  {}",
        .0.join("\n  ")
    )]
    NotFound(Vec<String>),
    /// `--context` names a context, and there is no kubeconfig to have it.
    #[error(
        "no kubeconfig has the --context {context:?}; looked at\n  {}",
        .searched.join("\n  ")
    )]
    Context {
        context: String,
        /// Where a kubeconfig was looked for.
        searched: Vec<String>,
    },
    #[error("{place}: {problem}")]
    Invalid {
        /// File and entry, or flag.
        place: String,
        /// What is wrong with it, and how to fix it.
        problem: String,
    },
}

fn invalid(place: &str, problem: String) -> ConfigError {
    let place = place.to_owned();
    ConfigError::Invalid { place, problem }
}

const HOST: &str = "KUBERNETES_SERVICE_HOST";
const PORT: &str = "KUBERNETES_SERVICE_PORT";

/// Returns the pod's configuration; `None` if this process does not run in a pod.
fn find(environment: &Environment, searched: &mut Vec<String>) -> Option<Draft> {
    let (Some(host), Some(port)) = (
        environment.non_empty_var(HOST),
        environment.non_empty_var(PORT),
    ) else {
        searched.push(format!(
            "the pod's environment (${HOST}, ${PORT}): not set, so this is not a pod"
        ));
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
        place: "in-cluster configuration".to_owned(),
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

#[cfg(test)]
mod tests;
