//! `dev`: dev server, simulated nodes and controller in one process, until stopped. The main thread
//! prints one line per change to standard output.

mod changes;
mod documents;
mod kubeconfig;

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use self::changes::Changes;
use self::documents::Document;
use super::world::World;
use crate::cli::flags::DevArgs;
use crate::client::ClientConfig;
use crate::devserver::{DevServer, DevServerOptions, KubeletOptions};
use crate::manager::Manager;
use crate::run::{RunError, finish, manager_options, program, signals};
use crate::stdx::escape::escaped;
use crate::stdx::stderr;
use crate::stdx::stop::{Cause, Stop};
use crate::telemetry::{Health, metrics};

/// Interval of the checks for changes.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Time until a simulated pod terminates, unless its grace period is shorter.
const TERMINATE_AFTER: Duration = Duration::from_secs(1);

/// Serves until `stop` is given. Then it stops the controller, writes the state with `--save`, and
/// stops the server.
///
/// # Errors
/// If the address is in use, a file is not valid, or the daemon failed.
pub(super) fn dev(args: &DevArgs, stop: &Stop) -> Result<(), RunError> {
    let save_to = save_to(args)?;
    let (documents, errors) = documents::read(&args.data, args.save);
    // The server must outlive the controller, which writes its last events at the stop.
    let server_stop = Stop::new();
    let mut server = start_server(args, &server_stop)?;
    load(&server, &documents, errors)?;
    signals::stop_in_order();
    let url = local_url(&server, args);
    if let Some(path) = &args.write_kubeconfig {
        kubeconfig::write(path, &url).map_err(|error| {
            RunError::Files(format!("cannot write {}: {error}", path.display()))
        })?;
    }
    let before = server.version();
    introduce(args, &url, documents.len());
    let manager = if args.no_controller {
        None
    } else {
        let options = manager_options(&args.client, &args.controller, &args.opt_ins);
        let config = ClientConfig::plain(&url);
        // Required by the manager; `dev` serves no health pages.
        let health = Health::new(metrics::global());
        Some(Manager::start(&config, &options, &health, stop)?)
    };
    let cause = tell_changes(&server, before, &[stop, &server_stop]);
    stop.stop(cause.clone());
    let mut result = match (manager, cause) {
        (Some(manager), _) => finish(manager),
        (None, Cause::Requested(_)) => Ok(()),
        (None, Cause::Failed(why)) => Err(RunError::Failed(why)),
    };
    if let Some(path) = save_to.filter(|_| result.is_ok()) {
        result = save(&server, path);
    }
    server.stop();
    result
}

/// Returns the file for the state at the end, with `--save`.
fn save_to(args: &DevArgs) -> Result<Option<&Path>, RunError> {
    match args.data.as_slice() {
        _ if !args.save => Ok(None),
        [path] if !path.is_dir() => Ok(Some(path)),
        _ => {
            let why = "--save needs exactly one --data flag that names a file";
            Err(RunError::Files(why.to_owned()))
        }
    }
}

fn start_server(args: &DevArgs, stop: &Stop) -> Result<DevServer, RunError> {
    let address = args.insecure_listen.unwrap_or(Ipv4Addr::LOCALHOST.into());
    let kubelet = KubeletOptions {
        n_nodes: args.nodes.into(),
        ready_after: args.pod_ready_after,
        terminate_after: TERMINATE_AFTER,
        schedules: !args.no_scheduler,
    };
    let address = SocketAddr::new(address, args.port);
    let options = DevServerOptions {
        listen: address.to_string(),
        insecure_listen: args.insecure_listen.is_some(),
        accept_hosts: args.accept_hosts.clone(),
        // `dev` can run for weeks, and nothing reads the recorded requests.
        recorder_length: 0,
        garbage_collection: true,
        kubelet: (!args.no_kubelet).then_some(kubelet),
        ..DevServerOptions::default()
    };
    DevServer::start(&options, stop).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => RunError::DevServerInUse(address),
        _ => RunError::DevServer(error),
    })
}

/// Loads the documents. `errors` are those of the files that could not be read.
fn load(
    server: &DevServer,
    documents: &[Document],
    mut errors: Vec<String>,
) -> Result<(), RunError> {
    let objects: Vec<Value> = documents
        .iter()
        .map(|document| document.object.clone())
        .collect();
    let rejected = server.load(&objects).err().unwrap_or_default();
    let rejected = rejected.iter().map(|rejected| {
        let origin = &documents[rejected.index].origin;
        format!("{origin}: {}", rejected.why)
    });
    errors.extend(rejected);
    if errors.is_empty() {
        Ok(())
    } else {
        Err(RunError::Files(errors.join("\n")))
    }
}

fn save(server: &DevServer, path: &Path) -> Result<(), RunError> {
    let objects = server.dump();
    documents::write(path, &objects).map_err(|source| RunError::Save {
        path: path.to_owned(),
        source,
    })?;
    say(&format!(
        "saved {} objects to {}",
        objects.len(),
        path.display()
    ));
    Ok(())
}

/// Returns the server's URL for clients on this machine.
fn local_url(server: &DevServer, args: &DevArgs) -> String {
    let url = server.url();
    match args.insecure_listen {
        Some(IpAddr::V4(address)) if address.is_unspecified() => {
            url.replace("0.0.0.0", "127.0.0.1")
        }
        Some(IpAddr::V6(address)) if address.is_unspecified() => url.replace("[::]", "[::1]"),
        _ => url,
    }
}

fn introduce(args: &DevArgs, url: &str, n_documents: usize) {
    let address = args
        .insecure_listen
        .filter(|address| !address.is_loopback());
    if let Some(address) = address {
        // Printed past the log, which may be silenced.
        let text = format!(
            "WARNING: every client that reaches {address} has full access without authentication\n"
        );
        stderr::write(&text).unwrap_or_default();
    }
    say(&format!("API server    {url}"));
    let (n_nodes, after) = (args.nodes, args.pod_ready_after);
    let nodes = if args.no_kubelet {
        "none; pods stay as they are".to_owned()
    } else {
        let who = if args.no_scheduler {
            "; another scheduler assigns pods"
        } else {
            ""
        };
        format!("{n_nodes}; pods become Ready after {after:?}{who}")
    };
    say(&format!("nodes         {nodes}"));
    let controller = if args.no_controller {
        "none"
    } else {
        "running"
    };
    say(&format!("controller    {controller}"));
    say("acts on       ReplicaSets, ReplicationControllers, pods, namespaces, quotas, owners");
    say("only stores   Deployments, Services, ConfigMaps, Secrets, custom resources and more");
    if n_documents > 0 {
        say(&format!("loaded        {n_documents} objects"));
    }
    let kubectl = match &args.write_kubeconfig {
        Some(path) => format!("kubectl --kubeconfig={}", path.display()),
        None => format!("kubectl --server={url}"),
    };
    say(&format!("to list       {kubectl} get rs,pods"));
    let program = program();
    say(&format!(
        "to start      {program} sample | {kubectl} apply -f -"
    ));
    say("to stop       Ctrl-C");
}

/// Prints changes until one of the stop signals is given, and returns its cause.
fn tell_changes(server: &DevServer, before: u64, stops: &[&Stop; 2]) -> Cause {
    let [stop, server_stop] = stops;
    let mut changes = Changes::default();
    let (mut cursor, mut looked_at) = (before, None);
    loop {
        if let Some(cause) = stop.cause().or_else(|| server_stop.cause()) {
            return cause;
        }
        let version = server.version();
        if looked_at.replace(version) != Some(version) {
            let pods = server.tally("pods", "", cursor);
            cursor = pods.version.max(cursor);
            let mut sets = server.objects("replicasets", "");
            sets.extend(server.objects("replicationcontrollers", ""));
            let world = World::read(&sets, &[], &[]);
            let now = Timestamp::now().strftime("%H:%M:%S");
            for line in changes.lines(&world.sets, &pods) {
                say(&format!("{now}  {line}"));
            }
        }
        stop.wait_timeout(LOOK_EVERY);
    }
}

/// Prints a line. A reader may close the pipe or stop reading; the server continues.
fn say(line: &str) {
    stderr::write_out(&format!("{}\n", escaped(line)));
}
