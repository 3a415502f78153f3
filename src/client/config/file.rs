//! The fields of a kubeconfig file that this client uses (client-go
//! `tools/clientcmd/api/v1/types.go:Config`), and how the file is read.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use secrecy::SecretString;
use serde::{Deserialize, Deserializer};

/// Maximum bytes of a file. One with hundreds of clusters has a few hundred KiB.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// A document of a kubeconfig file.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Kubeconfig {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) clusters: Vec<NamedCluster>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) users: Vec<NamedUser>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) contexts: Vec<NamedContext>,
    pub(super) current_context: Option<String>,
}

/// An entry of `clusters`.
#[derive(Debug, Deserialize)]
pub(super) struct NamedCluster {
    pub(super) name: String,
    pub(super) cluster: Option<Cluster>,
}

/// An entry of `users`.
#[derive(Debug, Deserialize)]
pub(super) struct NamedUser {
    pub(super) name: String,
    pub(super) user: Option<User>,
}

/// An entry of `contexts`.
#[derive(Debug, Deserialize)]
pub(super) struct NamedContext {
    pub(super) name: String,
    pub(super) context: Option<Context>,
}

/// An API server's address and how to connect to it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Cluster {
    pub(super) server: Option<String>,
    pub(super) insecure_skip_tls_verify: Option<bool>,
    pub(super) certificate_authority: Option<String>,
    pub(super) certificate_authority_data: Option<String>,
    pub(super) proxy_url: Option<String>,
    pub(super) disable_compression: Option<bool>,
    pub(super) tls_server_name: Option<String>,
    pub(super) extensions: Option<Vec<Extension>>,
}

/// Data of other programs in the file.
#[derive(Debug, Deserialize)]
pub(super) struct Extension {
    pub(super) name: String,
    #[serde(default)]
    pub(super) extension: serde_json::Value,
}

/// Credentials for an API server. `Debug` never prints secrets.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct User {
    pub(super) username: Option<String>,
    #[serde(default, deserialize_with = "secret")]
    pub(super) password: Option<SecretString>,
    #[serde(default, deserialize_with = "secret")]
    pub(super) token: Option<SecretString>,
    #[serde(rename = "tokenFile")]
    pub(super) token_file: Option<String>,
    pub(super) client_certificate: Option<String>,
    pub(super) client_certificate_data: Option<String>,
    pub(super) client_key: Option<String>,
    #[serde(default, deserialize_with = "secret")]
    pub(super) client_key_data: Option<SecretString>,
    #[serde(rename = "as")]
    pub(super) impersonate: Option<String>,
    #[serde(rename = "as-uid")]
    pub(super) impersonate_uid: Option<String>,
    #[serde(rename = "as-groups")]
    pub(super) impersonate_groups: Option<Vec<String>>,
    #[serde(rename = "as-user-extra")]
    pub(super) impersonate_user_extra: Option<HashMap<String, Vec<String>>>,
    pub(super) auth_provider: Option<AuthProvider>,
    pub(super) exec: Option<Exec>,
}

/// An authentication method that Kubernetes no longer supports.
#[derive(Debug, Deserialize)]
pub(super) struct AuthProvider {
    #[serde(default)]
    pub(super) name: String,
}

/// A credential plugin.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Exec {
    pub(super) api_version: Option<String>,
    pub(super) command: Option<String>,
    pub(super) args: Option<Vec<String>>,
    pub(super) env: Option<Vec<HashMap<String, String>>>,
    pub(super) install_hint: Option<String>,
    pub(super) interactive_mode: Option<InteractiveMode>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) provide_cluster_info: bool,
}

/// Whether a plugin may prompt on the terminal.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) enum InteractiveMode {
    Never,
    IfAvailable,
    Always,
}

/// A cluster, a user and a namespace.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Context {
    #[serde(default)]
    pub(super) cluster: String,
    pub(super) user: Option<String>,
    pub(super) namespace: Option<String>,
}

/// Reads the documents of a file; `None` if there is no file. Resolves relative paths in it against
/// the file's folder.
///
/// # Errors
/// Why the file cannot be used, as text.
pub(super) fn read(path: &Path) -> Result<Option<Vec<Kubeconfig>>, String> {
    let bytes = match read_bytes(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("it cannot be read: {error}")),
    };
    if bytes.len() as u64 > BYTES_MAX {
        return Err(format!("it is longer than {BYTES_MAX} bytes"));
    }
    let text = text(&bytes).ok_or("it is not text in UTF-8 or UTF-16")?;
    let documents = serde_saphyr::from_multiple::<Kubeconfig>(&text);
    let mut documents = documents.map_err(|error| problem(&error.to_string()))?;
    if let Some(folder) = path.parent() {
        for document in &mut documents {
            document.resolve_paths(folder);
        }
    }
    Ok(Some(documents))
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Windows editors mark UTF-16, and sometimes UTF-8, with a byte order mark.
fn text(bytes: &[u8]) -> Option<String> {
    let wide = |unit: fn([u8; 2]) -> u16| {
        let (units, rest) = bytes[2..].as_chunks::<2>();
        let units: Vec<u16> = units.iter().copied().map(unit).collect();
        String::from_utf16(&units).ok().filter(|_| rest.is_empty())
    };
    match bytes {
        [0xff, 0xfe, ..] => wide(u16::from_le_bytes),
        [0xfe, 0xff, ..] => wide(u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => str::from_utf8(rest).ok().map(str::to_owned),
        _ => str::from_utf8(bytes).ok().map(str::to_owned),
    }
}

/// Shortens a YAML error to its first line. The rest quotes the file, which may hold a secret, and
/// advises programmers.
fn problem(error: &str) -> String {
    let line = error.lines().next().unwrap_or_default();
    let line = line.split(", set ").next().unwrap_or_default();
    format!("it is not valid: {}", line.trim_start_matches("error: "))
}

impl Kubeconfig {
    /// True if the document has no entries; such a document counts as missing.
    pub(super) fn is_empty(&self) -> bool {
        self.clusters.is_empty() && self.contexts.is_empty() && self.users.is_empty()
    }

    /// Resolves paths relative to the file's folder.
    fn resolve_paths(&mut self, folder: &Path) {
        let clusters = self.clusters.iter_mut();
        for cluster in clusters.filter_map(|it| it.cluster.as_mut()) {
            resolve(folder, &mut cluster.certificate_authority);
        }
        for user in self.users.iter_mut().filter_map(|it| it.user.as_mut()) {
            resolve(folder, &mut user.client_certificate);
            resolve(folder, &mut user.client_key);
            resolve(folder, &mut user.token_file);
            // A command without a slash is looked up in $PATH (client-go
            // `tools/clientcmd/loader.go:GetAuthInfoFileReferences`).
            if let Some(exec) = &mut user.exec
                && exec.command.as_ref().is_some_and(|it| it.contains('/'))
            {
                resolve(folder, &mut exec.command);
            }
        }
    }
}

fn resolve(folder: &Path, path: &mut Option<String>) {
    if let Some(path) = path.as_mut().filter(|path| !path.is_empty())
        && let Some(resolved) = folder.join(&*path).to_str()
    {
        resolved.clone_into(path);
    }
}

/// Reads `null` as the default, as Go does.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.map(SecretString::from))
}
