//! The command `explain`: one report, from a running daemon or from the API server, on standard
//! output. Reads only.

use std::time::Duration;

use jiff::Timestamp;

use super::{RunError, print};
use crate::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use crate::api::{ObjectKey, WorkloadKind};
use crate::cli::ExplainArgs;
use crate::cli::flags::OutputFormat;
use crate::client::{Client, ClientConfig, ClientOptions, ConfigSource, DirectSource, Request};
use crate::explain::{ApiFacts, report};
use crate::run::signals;
use crate::stdx::escape::escaped_lines;
use crate::stdx::stop::Stop;

/// How long a server may take for each part of an answer; a person waits for it.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Prints the report. Blocks for a few requests; `stop` ends the waits between them.
///
/// # Errors
/// [`RunError::Usage`] if the object is not named well, [`RunError::Explain`] if it is not there or
/// nobody can be asked.
pub fn explain(args: &ExplainArgs, stop: &Stop) -> Result<(), RunError> {
    let target = args.target().map_err(RunError::Usage)?;
    let kind = if target.is_replication_controller {
        &REPLICATION_CONTROLLER
    } else {
        &REPLICA_SET
    };
    let key = |default: &str| {
        let namespace = target.namespace.as_deref().unwrap_or(default);
        ObjectKey::new(namespace, &*target.name)
    };
    let text = if let Some(url) = &args.server {
        let config = ClientConfig::direct(&DirectSource {
            url: url.clone(),
            token_file: args.token_file.clone(),
            certificate_authority: args.certificate_authority.clone(),
            insecure_skip_tls_verify: args.insecure_skip_tls_verify,
        })?;
        ask_daemon(&client(&config, stop)?, kind, &key("default"), args.output)?
    } else {
        let config = ClientConfig::load(&ConfigSource {
            kubeconfig: args.kubeconfig.clone(),
            master: args.master.clone(),
            context: args.context.clone(),
        })?;
        let key = key(config.namespace());
        ask_api(&client(&config, stop)?, kind, &key, args.output)?
    };
    print(&text).map_err(RunError::Output)
}

fn client(config: &ClientConfig, stop: &Stop) -> Result<Client, RunError> {
    let options = ClientOptions {
        read_only: true,
        request_timeout: REQUEST_TIMEOUT,
        ..ClientOptions::default()
    };
    // The files are read, and every wait from here on ends at `stop`.
    signals::stop_in_order();
    Client::new(config, &options, stop).map_err(RunError::Client)
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
    let failed = |source| RunError::Explain {
        what: format!(
            "the daemon at {} about {} {key}",
            client.config().server(),
            kind.kind
        ),
        source: Box::new(source),
    };
    let mut body = client.send(&request).map_err(failed)?.body;
    if output == OutputFormat::Json {
        body.push(b'\n');
    }
    let text = String::from_utf8_lossy(&body);
    Ok(match output {
        OutputFormat::Text => escaped_lines(&text).into_owned(),
        OutputFormat::Json => text.into_owned(),
    })
}

fn ask_api(
    client: &Client,
    kind: &'static WorkloadKind,
    key: &ObjectKey,
    output: OutputFormat,
) -> Result<String, RunError> {
    let failed = |source| RunError::Explain {
        what: client.config().server().to_owned(),
        source: Box::new(source),
    };
    let read = ApiFacts::read(client, kind, key).map_err(failed)?;
    let report = report(&read.facts, &read.sources, Timestamp::now());
    Ok(match output {
        OutputFormat::Text => report.to_string(),
        OutputFormat::Json => {
            let json = serde_json::to_string_pretty(&report);
            json.expect("a report has text keys") + "\n"
        }
    })
}
