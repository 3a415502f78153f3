//! The command `explain`: prints one report, or the table of all objects that have not converged,
//! from a running daemon or from the API server. It only sends reads.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::{RunError, print};
use crate::api::workload_kind::{ALL, REPLICA_SET};
use crate::api::{ObjectKey, Status, WorkloadKind};
use crate::cli::ExplainArgs;
use crate::cli::flags::{ExplainTarget, OutputFormat};
use crate::client::{
    Client, ClientConfig, ClientError, ClientOptions, ConfigSource, DirectSource, Request,
};
use crate::explain::{ApiError, ApiFacts, Table, read_deployment, read_table, report};
use crate::run::signals;
use crate::stdx::escape::{escaped_json, escaped_lines};
use crate::stdx::stop::Stop;

/// Maximum wait for each part of a response; a person waits for it.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Prints the report or the table. Blocks for a few requests; `stop` ends the waits between them.
pub fn explain(args: &ExplainArgs, stop: &Stop) -> Result<(), RunError> {
    let target = args.target().map_err(RunError::Usage)?;
    let (config, default_namespace) = if let Some(url) = &args.server {
        let config = ClientConfig::direct(&DirectSource {
            url: url.clone(),
            token_file: args.token_file.clone(),
            certificate_authority: args.certificate_authority.clone(),
            insecure_skip_tls_verify: args.insecure_skip_tls_verify,
        })?;
        (config, "default".to_owned())
    } else {
        let config = ClientConfig::load(&ConfigSource {
            kubeconfig: args.kubeconfig.clone(),
            master: args.master.clone(),
            context: args.context.clone(),
        })?;
        let namespace = config.namespace().to_owned();
        (config, namespace)
    };
    let client = client(&config, stop);
    let is_daemon = args.server.is_some();
    let text = match target {
        ExplainTarget::Object {
            kind,
            namespace,
            name,
        } => {
            let namespace = namespace.unwrap_or(default_namespace);
            let key = ObjectKey::new(&*namespace, &*name);
            if is_daemon {
                ask_daemon(&client, kind, &key, args.output)?
            } else {
                ask_api(&client, kind, &key, args.output)?
            }
        }
        ExplainTarget::All(kind) => {
            let kinds = kind.map_or(ALL.to_vec(), |kind| vec![kind]);
            let table = if is_daemon {
                table_of_daemon(&client, &kinds, args.namespace.as_deref())?
            } else {
                let default = (!args.all_namespaces).then_some(&*default_namespace);
                let namespace = args.namespace.as_deref().or(default);
                let table = read_table(&client, &kinds, namespace);
                table.map_err(|source| RunError::Explain {
                    what: format!("the objects of the API server at {}", config.server()),
                    source: Box::new(source),
                })?
            };
            rendered(&table, args.output)
        }
    };
    print(&text).map_err(RunError::Output)
}

fn rendered(content: &(impl Serialize + ToString), output: OutputFormat) -> String {
    match output {
        OutputFormat::Text => content.to_string(),
        OutputFormat::Json => {
            let json = serde_json::to_string_pretty(content);
            escaped_json(&json.expect("the content has text keys")).into_owned() + "\n"
        }
    }
}

fn client(config: &ClientConfig, stop: &Stop) -> Client {
    let options = ClientOptions {
        read_only: true,
        request_timeout: REQUEST_TIMEOUT,
        ..ClientOptions::default()
    };
    // All files are read. From here on `stop` ends every wait.
    signals::stop_in_order();
    Client::new(config, &options, stop)
}

fn ask_daemon(
    client: &Client,
    kind: &WorkloadKind,
    key: &ObjectKey,
    output: OutputFormat,
) -> Result<String, RunError> {
    let path = format!("/debug/{}/{}/{}", kind.resource, key.namespace, key.name);
    let request = Request::get(path).accept(match output {
        OutputFormat::Text => "text/plain",
        OutputFormat::Json => "application/json",
    });
    let failed = |error: ClientError| RunError::Explain {
        what: format!("{key} with the daemon at {}", client.config().server()),
        source: of_daemon(error),
    };
    let mut body = client.send(&request).map_err(failed)?.body;
    if output == OutputFormat::Json {
        body.push(b'\n');
    }
    let text = String::from_utf8_lossy(&body);
    Ok(match output {
        OutputFormat::Text => escaped_lines(&text).into_owned(),
        OutputFormat::Json => escaped_json(&text).into_owned(),
    })
}

/// Turns a client's error into that of a request to a daemon.
fn of_daemon(error: ClientError) -> Box<dyn std::error::Error + Send + Sync> {
    match error {
        ClientError::Transport(it) => format!("no response from the daemon: {}", it.message).into(),
        error if error.status().is_some_and(|status| status.code() == 401) => format!(
            "{error}: the token is missing, not valid, or of another API server than the daemon's \
             (the first record of its log)"
        )
        .into(),
        error => Box::new(error),
    }
}

fn ask_api(
    client: &Client,
    kind: &'static WorkloadKind,
    key: &ObjectKey,
    output: OutputFormat,
) -> Result<String, RunError> {
    let failed = |source| RunError::Explain {
        what: format!("{key} with the API server at {}", client.config().server()),
        source: Box::new(source),
    };
    let read = match ApiFacts::read(client, kind, key) {
        // A Deployment whose controller has created no ReplicaSet yet.
        Err(ApiError::NotFound { .. }) if kind == &REPLICA_SET => {
            let report = read_deployment(client, key).map_err(failed)?;
            return Ok(rendered(&report, output));
        }
        read => read.map_err(failed)?,
    };
    let report = report(&read.facts, &read.sources, Timestamp::now());
    Ok(rendered(&report, output))
}

/// A daemon has no page for a kind that it does not control. One of the kinds must have one.
fn table_of_daemon(
    client: &Client,
    kinds: &[&'static WorkloadKind],
    namespace: Option<&str>,
) -> Result<Table, RunError> {
    let is_missing = |status: &Status| status.code() == 404;
    let mut whole = Table::default();
    for (at, kind) in kinds.iter().enumerate() {
        let path = format!("/debug/{}", kind.resource);
        let mut request = Request::get(path).accept("application/json");
        if let Some(namespace) = namespace {
            request = request.query("namespace", namespace);
        }
        let failed = |source| RunError::Explain {
            what: format!(
                "the {}s of the daemon at {}",
                kind.kind,
                client.config().server()
            ),
            source,
        };
        match client.send(&request) {
            Ok(response) => {
                let table = serde_json::from_slice(&response.body);
                whole.merge(table.map_err(|error| failed(Box::new(error)))?);
            }
            Err(error)
                if (at + 1 < kinds.len() || !whole.looked_at.is_empty())
                    && error.status().is_some_and(is_missing) => {}
            Err(error) => return Err(failed(of_daemon(error))),
        }
    }
    Ok(whole)
}
