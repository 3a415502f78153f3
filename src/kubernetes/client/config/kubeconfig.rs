//! Kubeconfig files, merged as kubectl merges them: the first file with an entry wins the complete
//! entry. So this file merges nothing; it looks up entries file by file, and errors can name the
//! file.

use std::path::{Path, PathBuf};

use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{PAD, STANDARD};
use base64::{Engine as _, alphabet};
use secrecy::{ExposeSecret, SecretString};

use super::file::{Cluster, Context, Exec, Kubeconfig, User, Variable};
use super::{
    Authorization, ConfigError, ConfigSource, Draft, Environment, Impersonation, file, invalid,
    non_empty,
};
use crate::client::exec_plugin::{ClusterInfo, ExecSettings, Interactive, VERSIONS, find_command};
use crate::client::live_tls::Pem;

/// Go's decoder does not check the bits that padding leaves over.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    PAD.with_decode_allow_trailing_bits(true),
);

pub(super) struct KubeconfigFile {
    path: PathBuf,
    content: Kubeconfig,
}

struct Found<'a, T> {
    /// File and entry.
    place: String,
    entry: String,
    value: &'a T,
}

fn place_of(file: &Path) -> String {
    format!("kubeconfig {}", file.display())
}

/// Returns the files to use, in order of precedence; `None` if there are none. Records in
/// `searched` the places without a configuration.
///
/// # Errors
/// If a file cannot be read or parsed. A missing file is an error only for `--kubeconfig`.
pub(super) fn find(
    source: &ConfigSource,
    environment: &Environment,
    searched: &mut Vec<String>,
) -> Result<Option<Vec<KubeconfigFile>>, ConfigError> {
    if let Some(path) = &source.kubeconfig {
        let files = read(path)?;
        if files.is_empty() {
            let problem = "there is no such file".to_owned();
            return Err(invalid(&place_of(path), problem));
        }
        return Ok(Some(files));
    }
    searched.push("--kubeconfig: not given".to_owned());
    // `--master` without `--context` must not pick up credentials that belong to another server.
    if source.master.is_some() && source.context.is_none() {
        return Ok(None);
    }
    let (place, paths) = if let Some(list) = environment.non_empty_var("KUBECONFIG") {
        let paths = std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty());
        (format!("$KUBECONFIG={list}"), paths.collect::<Vec<_>>())
    } else {
        searched.push("$KUBECONFIG: not set".to_owned());
        let Some(home) = environment.non_empty_var("HOME") else {
            searched.push("~/.kube/config: $HOME is not set".to_owned());
            return Ok(None);
        };
        let path = Path::new(home).join(".kube").join("config");
        (path.display().to_string(), vec![path])
    };
    let mut files = Vec::new();
    for path in paths {
        files.extend(read(&path)?);
    }
    if files.iter().all(|file| file.content.is_empty()) {
        let found = if files.is_empty() {
            "no such file"
        } else {
            "empty"
        };
        searched.push(format!("{place}: {found}"));
        return Ok(None);
    }
    Ok(Some(files))
}

fn read(path: &Path) -> Result<Vec<KubeconfigFile>, ConfigError> {
    let error = |problem| invalid(&place_of(path), problem);
    let Some(mut documents) = file::read(path).map_err(error)? else {
        return Ok(Vec::new());
    };
    if documents.is_empty() {
        documents.push(Kubeconfig::default());
    }
    let file = |content| KubeconfigFile {
        path: path.to_owned(),
        content,
    };
    Ok(documents.into_iter().map(file).collect())
}

/// Resolves the context in `source`, else the current context. Returns the configuration of its
/// cluster and user.
pub(super) fn resolve(
    files: &[KubeconfigFile],
    source: &ConfigSource,
    environment: &Environment,
) -> Result<Draft, ConfigError> {
    let context = context(files, source.context.as_deref())?;
    let cluster = cluster(files, &context)?;
    let mut draft = Draft {
        namespace: non_empty(context.value.namespace.as_ref()).cloned(),
        origin: context.place.clone(),
        place: context.place.clone(),
        ..Draft::default()
    };
    apply_cluster(&mut draft, cluster.value).map_err(|problem| cluster.error(problem))?;
    if let Some(url) = &source.master {
        draft.server.clone_from(url);
    } else if draft.server.is_empty() {
        return Err(cluster.error("it has no server".to_owned()));
    }
    // ORDER: resolve the cluster first, because a credential plugin receives its effective
    // settings.
    if let Some(user) = user(files, &context)? {
        draft.user.clone_from(&user.entry);
        let applied = apply_user(&mut draft, user.value, cluster.value, environment);
        applied.map_err(|problem| user.error(problem))?;
    }
    Ok(draft)
}

fn context<'a>(
    files: &'a [KubeconfigFile],
    requested: Option<&str>,
) -> Result<Found<'a, Context>, ConfigError> {
    let current = || {
        let names = files.iter().map(|file| &file.content.current_context);
        names.flatten().find(|name| !name.is_empty())
    };
    let requested = requested.filter(|name| !name.is_empty());
    let Some(name) = requested.or_else(|| current().map(String::as_str)) else {
        let names = names_of_contexts(files);
        let problem =
            format!("it has no current-context; choose a context with --context; {names}");
        return Err(invalid(&place_of(&files[0].path), problem));
    };
    lookup(files, "context", name, |content| {
        let named = content.contexts.iter().filter(|entry| entry.name == name);
        named.map(|entry| &entry.context)
    })?
    .ok_or_else(|| {
        let names = names_of_contexts(files);
        let problem = format!("context {name:?} not found; {names}");
        invalid(&place_of(&files[0].path), problem)
    })
}

fn cluster<'a>(
    files: &'a [KubeconfigFile],
    context: &Found<'a, Context>,
) -> Result<Found<'a, Cluster>, ConfigError> {
    let name = &context.value.cluster;
    let found = lookup(files, "cluster", name, |content| {
        let named = content.clusters.iter().filter(|entry| entry.name == *name);
        named.map(|entry| &entry.cluster)
    })?;
    found.ok_or_else(|| context.error(format!("its cluster {name:?} does not exist")))
}

fn user<'a>(
    files: &'a [KubeconfigFile],
    context: &Found<'a, Context>,
) -> Result<Option<Found<'a, User>>, ConfigError> {
    let Some(name) = non_empty(context.value.user.as_ref()) else {
        return Ok(None);
    };
    let found = lookup(files, "user", name, |content| {
        let named = content.users.iter().filter(|entry| entry.name == *name);
        named.map(|entry| &entry.user)
    })?;
    let found = found.ok_or_else(|| context.error(format!("its user {name:?} does not exist")));
    found.map(Some)
}

/// Returns the only entry that `named` selects in the first file that has one.
fn lookup<'a, T: 'a, I: Iterator<Item = &'a T>>(
    files: &'a [KubeconfigFile],
    kind: &str,
    name: &str,
    named: impl Fn(&'a Kubeconfig) -> I,
) -> Result<Option<Found<'a, T>>, ConfigError> {
    for KubeconfigFile { path, content } in files {
        let mut values = named(content);
        let Some(value) = values.next() else { continue };
        let entry = format!("{kind} {name:?}");
        let found = Found {
            place: format!("{}, {entry}", place_of(path)),
            entry,
            value,
        };
        // As kubectl, which thus finds the users of two files that were pasted together.
        return match values.next() {
            None => Ok(Some(found)),
            Some(_) => Err(found.error("there are two; rename or remove one of them".to_owned())),
        };
    }
    Ok(None)
}

fn names_of_contexts(files: &[KubeconfigFile]) -> String {
    let names = files.iter().flat_map(|file| &file.content.contexts);
    let names: Vec<_> = names.map(|context| context.name.as_str()).collect();
    match names.as_slice() {
        [] => "the kubeconfig has no contexts".to_owned(),
        names => format!("contexts: {}", names.join(", ")),
    }
}

impl<T> Found<'_, T> {
    fn error(&self, problem: String) -> ConfigError {
        invalid(&self.place, problem)
    }
}

fn apply_cluster(draft: &mut Draft, cluster: &Cluster) -> Result<(), String> {
    draft.server = cluster.server.clone().unwrap_or_default();
    draft.proxy_url = non_empty(cluster.proxy_url.as_ref()).cloned();
    draft.tls.server_name = non_empty(cluster.tls_server_name.as_ref()).cloned();
    draft.tls.insecure = cluster.insecure_skip_tls_verify.unwrap_or(false);
    draft.tls.certificate_authority = data_or_file(
        "certificate-authority",
        cluster.certificate_authority_data.as_deref(),
        cluster.certificate_authority.as_deref(),
    )?;
    if draft.tls.insecure && draft.tls.certificate_authority.is_some() {
        return Err(
            "insecure-skip-tls-verify and a certificate-authority exclude each other; \
             remove one of them"
                .to_owned(),
        );
    }
    Ok(())
}

fn apply_user(
    draft: &mut Draft,
    user: &User,
    cluster: &Cluster,
    environment: &Environment,
) -> Result<(), String> {
    let certificate = data_or_file(
        "client-certificate",
        user.client_certificate_data.as_deref(),
        user.client_certificate.as_deref(),
    )?;
    draft.authorization = authorization(user)?;
    let key_data = user.client_key_data.as_ref();
    let key_data = key_data.map(ExposeSecret::expose_secret);
    let key_file = user.client_key.as_deref();
    if let Some(certificate) = certificate {
        let key = data_or_file("client-key", key_data, key_file)?;
        let key = key.ok_or("it has a client-certificate but no client-key")?;
        draft.tls.identity = Some((certificate, key));
    } else if matches!(draft.authorization, Authorization::None) {
        draft.authorization = plugin(user, cluster, draft, environment)?;
        // Beside other credentials a key without a certificate has no effect, as upstream.
        let has_key = [key_data, key_file]
            .iter()
            .flatten()
            .any(|it| !it.is_empty());
        if matches!(draft.authorization, Authorization::None) && has_key {
            return Err("it has a client-key but no client-certificate".to_owned());
        }
    }
    let extra = user.impersonate_user_extra.iter();
    let extra = extra.flat_map(|(name, values)| {
        let pair = move |value: &Option<String>| (name.clone(), value.clone().unwrap_or_default());
        values.iter().flatten().map(pair)
    });
    let mut extra: Vec<_> = extra.collect();
    extra.sort();
    draft.impersonation = Impersonation {
        user: non_empty(user.impersonate.as_ref()).cloned(),
        uid: non_empty(user.impersonate_uid.as_ref()).cloned(),
        groups: user.impersonate_groups.clone(),
        extra,
    };
    Ok(())
}

/// A token file wins over a token, as long as it can be read (client-go
/// `transport/round_trippers.go:NewBearerAuthWithRefreshRoundTripper`).
fn authorization(user: &User) -> Result<Authorization, String> {
    let token = user.token.as_ref().filter(|token| is_filled(token));
    let token = match (non_empty(user.token_file.as_ref()), token) {
        (Some(path), token) => Some(Authorization::TokenFile {
            path: path.into(),
            until_readable: token.cloned(),
        }),
        (None, Some(token)) => Some(Authorization::Token(token.clone())),
        (None, None) => None,
    };
    let name = non_empty(user.username.as_ref());
    let password = user
        .password
        .as_ref()
        .filter(|password| is_filled(password));
    match (token, name, password) {
        (Some(token), None, None) => Ok(token),
        (None, None, None) => Ok(Authorization::None),
        (None, name, password) => Ok(Authorization::Basic(
            name.cloned().unwrap_or_default(),
            password.cloned().unwrap_or_default(),
        )),
        (Some(_), _, _) => Err(
            "username and password, and a token exclude each other; remove one of them".to_owned(),
        ),
    }
}

/// The credential plugin of a user without other credentials.
fn plugin(
    user: &User,
    cluster: &Cluster,
    draft: &Draft,
    environment: &Environment,
) -> Result<Authorization, String> {
    match (&user.exec, &user.auth_provider) {
        (Some(exec), _) => {
            let settings = settings(exec, cluster, draft, environment)?;
            Ok(Authorization::Plugin(Box::new(settings)))
        }
        (None, Some(provider)) => Err(format!(
            "it uses the auth-provider {:?}, which Kubernetes no longer supports; give it an exec \
             plugin, a client certificate, a token or a tokenFile",
            provider.name
        )),
        (None, None) => Ok(Authorization::None),
    }
}

fn is_filled(secret: &SecretString) -> bool {
    !secret.expose_secret().is_empty()
}

/// Returns the contents of `NAME-data`, else the file `NAME`, which must be readable.
pub(super) fn data_or_file(
    name: &'static str,
    data: Option<&str>,
    path: Option<&str>,
) -> Result<Option<Pem>, String> {
    if let Some(data) = data.filter(|data| !data.is_empty()) {
        let compact: String = data.split_ascii_whitespace().collect();
        // Drop the decoder's error, which would print a byte of what may be a key.
        let bytes = BASE64.decode(compact).ok();
        return bytes
            .map(|bytes| Some(Pem::Data(bytes)))
            .ok_or_else(|| format!("{name}-data is not valid base64"));
    }
    let Some(path) = path.filter(|path| !path.is_empty()) else {
        return Ok(None);
    };
    let pem = Pem::File {
        name,
        path: path.into(),
    };
    pem.read()?;
    Ok(Some(pem))
}

/// The cluster extension that plugins receive (client-go
/// `tools/clientcmd/client_config.go:clusterExtensionKey`).
const CLUSTER_EXTENSION: &str = "client.authentication.k8s.io/exec";

/// Returns the plugin settings of a user if `exec` is complete. `draft` holds the settings of
/// `cluster`, with `--master` applied.
pub(super) fn settings(
    exec: &Exec,
    cluster: &Cluster,
    draft: &Draft,
    environment: &Environment,
) -> Result<ExecSettings, String> {
    let command = non_empty(exec.command.as_ref()).ok_or("its exec has no command")?;
    let api_version = non_empty(exec.api_version.as_ref()).map_or("", String::as_str);
    let version = VERSIONS.into_iter().find(|version| *version == api_version);
    let version = version.ok_or_else(|| {
        format!(
            "its exec has the apiVersion {api_version:?}; supported: {}",
            VERSIONS.join(" and ")
        )
    })?;
    let interactive = match non_empty(exec.interactive_mode.as_ref()).map(String::as_str) {
        Some("Never") => Interactive::Never,
        Some("Always") => Interactive::Always,
        Some("IfAvailable") => Interactive::IfAvailable,
        // Optional in v1beta1 only.
        None if version != VERSIONS[0] => Interactive::IfAvailable,
        other => {
            return Err(format!(
                "its exec has the interactiveMode {:?}; supported: Never, IfAvailable and Always",
                other.unwrap_or_default()
            ));
        }
    };
    let mut variables = environment.vars.clone();
    for Variable { name, value } in &exec.env {
        let name = non_empty(name.as_ref()).ok_or("its exec has a variable without a name")?;
        variables.insert(name.clone(), value.clone().unwrap_or_default());
    }
    let search_path = environment.var("PATH").unwrap_or_default();
    let install_hint = non_empty(exec.install_hint.as_ref()).cloned();
    let program = find_command(command, search_path, install_hint.as_deref())?;
    Ok(ExecSettings {
        version,
        command: command.clone(),
        program,
        arguments: exec.args.clone(),
        environment: variables.into_iter().collect(),
        install_hint,
        interactive,
        cluster: if exec.provide_cluster_info {
            Some(cluster_info(cluster, draft)?)
        } else {
            None
        },
    })
}

fn cluster_info(cluster: &Cluster, draft: &Draft) -> Result<ClusterInfo, String> {
    let tls = &draft.tls;
    let extensions = cluster.extensions.iter();
    let mut extensions = extensions.filter(|extension| extension.name == CLUSTER_EXTENSION);
    let authority = tls.certificate_authority.as_ref();
    let authority = authority.map(|pem| Ok::<_, String>(STANDARD.encode(pem.read()?)));
    Ok(ClusterInfo {
        server: draft.server.clone(),
        tls_server_name: tls.server_name.clone(),
        insecure: tls.insecure,
        certificate_authority_data: authority.transpose()?,
        proxy_url: non_empty(cluster.proxy_url.as_ref()).cloned(),
        disable_compression: cluster.disable_compression.unwrap_or(false),
        config: extensions
            .next()
            .map(|extension| extension.extension.clone()),
    })
}
