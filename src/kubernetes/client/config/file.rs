//! The fields of a kubeconfig file that this client uses (client-go
//! `tools/clientcmd/api/v1/types.go:Config`), and how the file is read. As in Go, null is a zero
//! value everywhere, and unused entries may be incomplete.

use std::collections::HashMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use secrecy::SecretString;
use serde::{Deserialize, Deserializer};

use crate::client::lenient::{documents, list, or_default};
use crate::stdx::bounded_file;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct Kubeconfig {
    #[serde(deserialize_with = "list")]
    pub(super) clusters: Vec<NamedCluster>,
    #[serde(deserialize_with = "list")]
    pub(super) users: Vec<NamedUser>,
    #[serde(deserialize_with = "list")]
    pub(super) contexts: Vec<NamedContext>,
    pub(super) current_context: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NamedCluster {
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) cluster: Cluster,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NamedUser {
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) user: User,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NamedContext {
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) context: Context,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct Cluster {
    pub(super) server: Option<String>,
    pub(super) insecure_skip_tls_verify: Option<bool>,
    pub(super) certificate_authority: Option<String>,
    pub(super) certificate_authority_data: Option<String>,
    pub(super) proxy_url: Option<String>,
    pub(super) disable_compression: Option<bool>,
    pub(super) tls_server_name: Option<String>,
    #[serde(deserialize_with = "list")]
    pub(super) extensions: Vec<Extension>,
}

/// Data of other programs in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Extension {
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    pub(super) extension: serde_json::Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct User {
    pub(super) username: Option<String>,
    #[serde(deserialize_with = "secret")]
    pub(super) password: Option<SecretString>,
    #[serde(deserialize_with = "secret")]
    pub(super) token: Option<SecretString>,
    #[serde(rename = "tokenFile")]
    pub(super) token_file: Option<String>,
    pub(super) client_certificate: Option<String>,
    pub(super) client_certificate_data: Option<String>,
    pub(super) client_key: Option<String>,
    #[serde(deserialize_with = "secret")]
    pub(super) client_key_data: Option<SecretString>,
    #[serde(rename = "as")]
    pub(super) impersonate: Option<String>,
    #[serde(rename = "as-uid")]
    pub(super) impersonate_uid: Option<String>,
    #[serde(rename = "as-groups", deserialize_with = "list")]
    pub(super) impersonate_groups: Vec<String>,
    #[serde(rename = "as-user-extra", deserialize_with = "or_default")]
    pub(super) impersonate_user_extra: HashMap<String, Option<Vec<Option<String>>>>,
    pub(super) auth_provider: Option<AuthProvider>,
    pub(super) exec: Option<Exec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AuthProvider {
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Exec {
    pub(super) api_version: Option<String>,
    pub(super) command: Option<String>,
    #[serde(deserialize_with = "list")]
    pub(super) args: Vec<String>,
    #[serde(deserialize_with = "list")]
    pub(super) env: Vec<Variable>,
    pub(super) install_hint: Option<String>,
    pub(super) interactive_mode: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(super) provide_cluster_info: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Variable {
    pub(super) name: Option<String>,
    pub(super) value: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Context {
    #[serde(deserialize_with = "or_default")]
    pub(super) cluster: String,
    pub(super) user: Option<String>,
    pub(super) namespace: Option<String>,
}

/// Reads the documents of a file; `None` if there is no file. Resolves relative paths in it against
/// the file's folder.
pub(super) fn read(path: &Path) -> Result<Option<Vec<Kubeconfig>>, String> {
    let bytes = match bounded_file::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("it cannot be read: {error}")),
    };
    let documents = documents::<Kubeconfig>(&bytes);
    let mut documents = documents.map_err(|problem| format!("it is not valid: {problem}"))?;
    if let Some(folder) = path.parent() {
        for document in &mut documents {
            document.resolve_paths(folder);
        }
    }
    Ok(Some(documents))
}

impl Kubeconfig {
    /// True if the document has no entries; such a document counts as missing.
    pub(super) fn is_empty(&self) -> bool {
        self.clusters.is_empty() && self.contexts.is_empty() && self.users.is_empty()
    }

    /// Resolves paths relative to the file's folder.
    fn resolve_paths(&mut self, folder: &Path) {
        for NamedCluster { cluster, .. } in &mut self.clusters {
            resolve(folder, &mut cluster.certificate_authority);
        }
        for NamedUser { user, .. } in &mut self.users {
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

/// As Go's `filepath.Join`, which takes `folder/..` away whether or not the folder exists.
fn resolve(folder: &Path, path: &mut Option<String>) {
    let Some(path) = path.as_mut().filter(|path| !path.is_empty()) else {
        return;
    };
    if Path::new(path).is_absolute() {
        return;
    }
    let mut resolved = PathBuf::new();
    for part in folder.join(&*path).components() {
        let last = resolved.components().next_back();
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(last, Some(Component::Normal(_))) => {
                resolved.pop();
            }
            part => resolved.push(part),
        }
    }
    if let Some(resolved) = resolved.to_str() {
        resolved.clone_into(path);
    }
}

fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.map(SecretString::from))
}
