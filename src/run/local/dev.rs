//! `dev`: dev server, simulated nodes and controller in one process, until stopped. The main thread
//! prints one line per change to standard output: targets of ReplicaSets and ReplicationControllers
//! and when they are reached, and the number of pods created and deleted.

use std::collections::BTreeMap;
use std::io;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::files::Document;
use super::{condition, files, text};
use crate::api::WorkloadKind;
use crate::api::workload_kind::ALL;
use crate::cli::flags::{ControllerName, DevArgs};
use crate::client::ClientConfig;
use crate::deployment;
use crate::devserver::{DevServer, DevServerOptions, KubeletOptions, Tally, simulated_controllers};
use crate::manager::{Manager, ManagerOptions};
use crate::run::{RunError, finish, manager_options, program, signals};
use crate::stdx::escape::{escaped, shell_word};
use crate::stdx::stop::{Cause, Stop};
use crate::stdx::{stderr, thread};
use crate::telemetry::Health;

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
    let (documents, errors) = files::read(&args.data, args.save);
    // The server must outlive the controller, which writes its last events at the stop.
    let server_stop = Stop::new();
    let mut server = start_server(args, &server_stop)?;
    load(&server, &documents, errors)?;
    signals::stop_in_order();
    if args.until_stdin_closes {
        stop_with_stdin(stop).map_err(RunError::DevServer)?;
    }
    let url = local_url(&server, args);
    if let Some(path) = &args.write_kubeconfig {
        files::write_kubeconfig(path, &url).map_err(|error| {
            RunError::Usage(format!("cannot write {}: {error}", path.display()))
        })?;
    }
    let before = server.version();
    introduce(args, &url, documents.len());
    let [own, _] = controllers(args);
    let manager = if own.is_empty() {
        None
    } else {
        let options = ManagerOptions {
            deployments: own.contains(&deployment::CONTROLLER),
            ..manager_options(&args.client, &args.controller, &args.opt_ins)
        };
        let config = ClientConfig::plain(&url);
        // Required by the manager; `dev` serves no health pages.
        let health = Health::default();
        Some(Manager::start(&config, &options, &health, stop)?)
    };
    let cause = print_changes(&server, before, &[stop, &server_stop]);
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

/// Gives `stop` when standard input closes. Nothing ends this wait before; the process takes the
/// thread with it.
fn stop_with_stdin(stop: &Stop) -> io::Result<()> {
    let stopping = stop.clone();
    let thread = thread::try_spawn("dev-stdin", stop, move || {
        io::copy(&mut io::stdin(), &mut io::sink()).unwrap_or_default();
        stopping.stop(Cause::Requested("standard input was closed".to_owned()));
    });
    thread.map(drop)
}

/// Returns the file for the state at the end, with `--save`.
fn save_to(args: &DevArgs) -> Result<Option<&Path>, RunError> {
    match args.data.as_slice() {
        _ if !args.save => Ok(None),
        [path] if !path.is_dir() => Ok(Some(path)),
        _ => {
            let why = "--save needs exactly one --data flag that names a file";
            Err(RunError::Usage(why.to_owned()))
        }
    }
}

/// The names of the controllers of the daemon that run, and of the simulated ones that do.
fn controllers(args: &DevArgs) -> [Vec<&'static str>; 2] {
    let own = args
        .controller
        .enabled()
        .into_iter()
        .map(|kind| kind.controller);
    let deployments = args.controller.is_enabled(ControllerName::Deployments);
    let own = own
        .chain(deployments.then_some(deployment::CONTROLLER))
        .filter(|_| !args.no_controller);
    let is_enabled =
        |name: &&'static str| args.controller.is_enabled(ControllerName::Simulated(name));
    let simulated = simulated_controllers().filter(is_enabled);
    [own.collect(), simulated.collect()]
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
        garbage_collection: true,
        controllers: controllers(args)
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect(),
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
        Err(RunError::Usage(errors.join("\n")))
    }
}

fn save(server: &DevServer, path: &Path) -> Result<(), RunError> {
    let objects = server.dump();
    files::write(path, &objects).map_err(|source| RunError::Save {
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
        "none; pods stay Pending unless something else runs them".to_owned()
    } else {
        let who = if args.no_scheduler {
            "; another scheduler assigns pods"
        } else {
            ""
        };
        format!("{n_nodes}; pods become Ready after {after:?}{who}")
    };
    say(&format!("nodes         {nodes}"));
    let [own, simulated] = controllers(args).map(|names| match names[..] {
        [] => "none".to_owned(),
        _ => names.join(", "),
    });
    say(&format!("controllers   {own}"));
    say("built in      pod lifecycle, namespace deletion, quotas, garbage collection");
    say(&format!("simulated     {simulated}"));
    say("stored only   ConfigMaps, Secrets, custom resources and more");
    if n_documents > 0 {
        say(&format!("loaded        {n_documents} objects"));
    }
    let kubectl = match &args.write_kubeconfig {
        Some(path) => {
            let path = path.display().to_string();
            format!("kubectl --kubeconfig={}", shell_word(&path))
        }
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
fn print_changes(server: &DevServer, before: u64, stops: &[&Stop; 2]) -> Cause {
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
            let now = Timestamp::now().strftime("%H:%M:%S");
            for line in changes.lines(&sets(server), &pods) {
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

/// A ReplicaSet or ReplicationController. Read without the controller's code, so that the demo
/// checks the controller and not itself.
#[derive(Clone, Debug, Default)]
pub(super) struct SetFacts {
    /// In lower case, as in kubectl.
    kind: String,
    namespace: String,
    pub(super) name: String,
    uid: String,
    pub(super) desired: usize,
    pub(super) current: usize,
    pub(super) ready: usize,
    available: usize,
    /// True if the controller has observed the current generation.
    is_observed: bool,
    /// The message of the condition `ReplicaFailure`, if it is true.
    pub(super) failure: Option<String>,
}

/// All sets of the server.
pub(super) fn sets(server: &DevServer) -> Vec<SetFacts> {
    let of_kind = |kind: &WorkloadKind| {
        let sets = server.objects(kind.resource, "").into_iter();
        let facts = |set| read_set(kind.kind.to_lowercase(), &set);
        sets.map(facts).collect::<Vec<_>>()
    };
    ALL.into_iter().flat_map(of_kind).collect()
}

fn read_set(kind: String, set: &Value) -> SetFacts {
    let count = |pointer: &str| {
        let found = set.pointer(pointer).and_then(Value::as_u64);
        found.and_then(|it| it.try_into().ok()).unwrap_or(0)
    };
    let failure = condition(set, "ReplicaFailure");
    SetFacts {
        kind,
        namespace: text(set, "/metadata/namespace"),
        name: text(set, "/metadata/name"),
        uid: text(set, "/metadata/uid"),
        desired: count("/spec/replicas"),
        current: count("/status/replicas"),
        ready: count("/status/readyReplicas"),
        available: count("/status/availableReplicas"),
        is_observed: set["metadata"]["generation"] == set["status"]["observedGeneration"],
        failure: failure.map(|entry| text(entry, "/message")),
    }
}

/// Remembers the printed state, so that each change is printed once.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// By kind, namespace and name.
    known: BTreeMap<(String, String, String), SetFacts>,
}

impl Changes {
    /// Returns lines for the changes in `sets`, which are all sets, and for the pods counted since.
    pub(super) fn lines(&mut self, sets: &[SetFacts], pods: &Tally) -> Vec<String> {
        let mut lines = Vec::new();
        for set in sets {
            let key = (set.kind.clone(), set.namespace.clone(), set.name.clone());
            let before = self.known.get(&key).filter(|known| known.uid == set.uid);
            describe(set, before, &mut lines);
            self.known.insert(key, set.clone());
        }
        self.known.retain(|(kind, namespace, name), known| {
            let is_there = sets.iter().any(|set| set.uid == known.uid);
            if !is_there {
                lines.push(format!("{kind} {namespace}/{name}: deleted"));
            }
            is_there
        });
        let more = if pods.is_complete { "" } else { "more than " };
        match (pods.added, pods.deleted) {
            (0, 0) => {}
            (added, 0) => lines.push(format!("pods: {more}{added} created")),
            (0, deleted) => lines.push(format!("pods: {more}{deleted} gone")),
            (added, deleted) => {
                lines.push(format!("pods: {more}{added} created, {more}{deleted} gone"));
            }
        }
        lines
    }
}

/// True if all replicas are available, and the status shows that.
pub(super) fn is_complete(set: &SetFacts) -> bool {
    let counts = [set.current, set.ready, set.available];
    set.is_observed && counts.iter().all(|count| *count == set.desired)
}

fn describe(set: &SetFacts, before: Option<&SetFacts>, lines: &mut Vec<String>) {
    let desired = set.desired;
    let mut say = |what: String| {
        let (kind, namespace, name) = (&set.kind, &set.namespace, &set.name);
        lines.push(format!("{kind} {namespace}/{name}: {what}"));
    };
    match before {
        None => say(format!("new, desired: {}", count(desired))),
        Some(known) if known.desired != desired => {
            say(format!("scaled from {} to {desired}", known.desired));
        }
        Some(_) => {}
    }
    let failed_before = before.and_then(|known| known.failure.as_ref());
    match (failed_before, &set.failure) {
        (None, Some(why)) => say(format!("blocked: {why}")),
        (Some(_), None) => say("no longer blocked".to_owned()),
        _ => {}
    }
    let was_complete = before.is_some_and(|known| is_complete(known) && known.desired == desired);
    if is_complete(set) && !was_complete {
        say(match desired {
            0 => "has no pods, as desired".to_owned(),
            1 => "its pod is available".to_owned(),
            _ => format!("all {desired} pods are available"),
        });
    } else if was_complete && !is_complete(set) {
        say(format!("{} of {} available", set.available, count(desired)));
    }
}

fn count(pods: usize) -> String {
    match pods {
        1 => "1 pod".to_owned(),
        _ => format!("{pods} pods"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Changes, SetFacts, Tally, is_complete, read_set, simulated_controllers};
    use crate::cli::flags::SIMULATED;

    fn set(desired: usize, available: usize) -> SetFacts {
        SetFacts {
            kind: "replicaset".to_owned(),
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            uid: "u".to_owned(),
            desired,
            current: available,
            ready: available,
            available,
            is_observed: true,
            failure: None,
        }
    }

    fn tally(added: usize, deleted: usize) -> Tally {
        Tally {
            added,
            deleted,
            is_complete: true,
            ..Tally::default()
        }
    }

    #[test]
    fn the_flag_accepts_all_simulated_controllers() {
        assert!(simulated_controllers().eq(SIMULATED));
    }

    #[test]
    fn a_set_is_complete_with_a_matching_status() {
        let set = |ready: u64, observed: u64| {
            let set = json!({
                "metadata": {"namespace": "n", "name": "web", "uid": "u", "generation": 2},
                "spec": {"replicas": 1},
                "status": {"replicas": 1, "readyReplicas": ready, "availableReplicas": ready,
                    "observedGeneration": observed},
            });
            is_complete(&read_set("replicaset".to_owned(), &set))
        };
        assert!(set(1, 2));
        assert!(!set(0, 2));
        assert!(!set(1, 1));
    }

    #[test]
    fn each_change_is_said_once() {
        let mut changes = Changes::default();
        let mut check = |sets: &[SetFacts], pods: Tally, expected: &[&str]| {
            let prefixed = |line: &&str| match line.strip_prefix("rs ") {
                Some(rest) => format!("replicaset default/web: {rest}"),
                None => (*line).to_owned(),
            };
            let expected: Vec<String> = expected.iter().map(prefixed).collect();
            assert_eq!(changes.lines(sets, &pods), expected);
        };
        check(&[], tally(0, 0), &[]);
        check(&[set(3, 0)], tally(0, 0), &["rs new, desired: 3 pods"]);
        check(&[set(3, 1)], tally(3, 0), &["pods: 3 created"]);
        check(&[set(3, 3)], tally(0, 0), &["rs all 3 pods are available"]);
        check(&[set(3, 3)], tally(0, 0), &[]);
        check(
            &[set(3, 2)],
            tally(1, 1),
            &["rs 2 of 3 pods available", "pods: 1 created, 1 gone"],
        );
        let blocked = SetFacts {
            failure: Some("quota".to_owned()),
            ..set(5, 3)
        };
        check(
            std::slice::from_ref(&blocked),
            tally(0, 0),
            &["rs scaled from 3 to 5", "rs blocked: quota"],
        );
        check(&[blocked], tally(0, 0), &[]);
        check(
            &[set(5, 5)],
            tally(2, 0),
            &[
                "rs no longer blocked",
                "rs all 5 pods are available",
                "pods: 2 created",
            ],
        );
        let mut successor = set(1, 0);
        successor.uid = "v".to_owned();
        check(
            &[successor],
            tally(0, 5),
            &["rs new, desired: 1 pod", "pods: 5 gone"],
        );
        check(&[], tally(0, 0), &["rs deleted"]);
    }
}
