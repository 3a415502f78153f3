//! `demo`: shows the controller at work in chapters, and checks each chapter against the server's
//! objects. Runs on the main thread; every wait ends at a deadline or at the stop signal.
//!
//! `demo.txt` has the chapters, a step on each line:
//!
//! | step | does |
//! |---|---|
//! | `= TITLE` | begins a chapter |
//! | `$ COMMAND` | does what this command of kubectl does, where `create` gets its file in place |
//! | `let NAME SET N` | calls the Nth pod of a ReplicaSet, or of `SET@NODE`, so |
//! | `wait`, `check`, `hold` | waits for facts, checks them, checks that they stay for a moment |
//! | `why SET TEXT` | waits for the condition `ReplicaFailure` and the event with this text |
//! | `lose SKIP N` | slows down creates, and loses the responses to N of them |
//! | `kill`, `start` | kills the controller, starts it |
//! | `ok TEXT: FACTS` | checks facts and ends the chapter |

use std::collections::BTreeMap;
use std::io;
use std::io::Write;
use std::iter::repeat_n;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::dev::{Changes, SetFacts, is_complete, sets};
use super::{condition, text};
use crate::api::workload_kind::REPLICA_SET;
use crate::cli::SAMPLE;
use crate::cli::flags::DemoArgs;
use crate::client::{Client, ClientConfig, ClientOptions, Request};
use crate::devserver::{
    ApiRequest, DevServer, DevServerOptions, Handler, KubeletOptions, Response, Tally, serve,
};
use crate::manager::{Manager, ManagerOptions};
use crate::run::{RunError, program, seen_enough, signals};
use crate::stdx::stop::{Cause, Stop};
use crate::telemetry::Health;

const CHAPTERS: &str = include_str!("demo.txt");

/// What the demo is, for a first-time user.
const INTRODUCTION: &str = "\
This process runs an API server in memory, simulated nodes and the ReplicaSet
controller. The server listens on this machine only and ends with the demo:
nothing leaves this machine, and no cluster is touched. Each chapter changes
objects and waits for the controller's reaction. It ends with ok if the API
server's objects are as they should be.
";

/// Interval between two looks at the server's objects.
const LOOK_EVERY: Duration = Duration::from_millis(60);

/// Maximum wait for a reaction; generous, for busy machines.
const PATIENCE: Duration = Duration::from_mins(2);

/// How long facts must hold: what comes too late or too often would arrive within it.
const HOLD: Duration = Duration::from_millis(400);

/// Duration of a create after `lose`, long enough to kill the controller amid them.
const CREATE_TIME: Duration = Duration::from_millis(60);

/// The width of the narrowest usual terminal.
const COLUMNS: usize = 80;

const STOPPED: &str = "stopped before the end";

type Outcome<T> = Result<T, String>;

/// Plays all chapters and reports their outcomes. Blocks for a few minutes at most.
///
/// # Errors
/// If a chapter failed, or if `stop` was given before the end.
pub(super) fn demo(args: &DemoArgs, stop: &Stop) -> Result<(), RunError> {
    signals::stop_in_order();
    let (ready_after, pause) = if args.fast { (100, 20) } else { (400, 600) };
    let server_stop = Stop::new();
    let options = DevServerOptions {
        garbage_collection: true,
        kubelet: Some(KubeletOptions {
            ready_after: Duration::from_millis(ready_after),
            ..KubeletOptions::default()
        }),
        ..DevServerOptions::default()
    };
    let mut server = DevServer::start(&options, &server_stop).map_err(RunError::DevServer)?;
    let link = Arc::new(Link {
        api: server.handler(),
        stop: server_stop.clone(),
        state: Mutex::default(),
    });
    let for_controller = serve("127.0.0.1:0", Arc::clone(&link) as _, &server_stop);
    let mut for_controller = for_controller.map_err(RunError::DevServer)?;
    let unlimited = ClientOptions {
        qps: 0.0,
        ..ClientOptions::default()
    };
    let mut stage = Stage {
        hands: Client::new(&ClientConfig::plain(&server.url()), &unlimited, stop),
        config: ClientConfig::plain(&for_controller.url()),
        server: &server,
        link,
        controller: None,
        stop,
        changes: Changes::default(),
        names: BTreeMap::new(),
        pause: Duration::from_millis(pause),
        begun: Instant::now(),
        chapter: (server.version(), 0, Instant::now()),
    };
    let result = stage.play();
    let stopped = stage.stop_controller().map_err(RunError::Demo);
    drop(stage);
    for_controller.stop();
    server.stop();
    result.and(stopped)
}

/// The connection of the controller to the API server.
struct Link {
    api: Arc<dyn Handler>,
    stop: Stop,
    state: Mutex<LinkState>,
}

#[derive(Clone, Default)]
struct LinkState {
    n_requests: usize,
    /// Creates of pods, accepted or not.
    n_creates: usize,
    create_time: Duration,
    /// The creates that take effect, and whose responses get lost.
    lost: Range<usize>,
    is_cut: bool,
}

impl Handler for Link {
    fn handle(&self, request: ApiRequest) -> Response {
        let is_create = request.method == "POST" && request.path.ends_with("/pods");
        let (number, state) = {
            let mut state = self.state.lock();
            state.n_requests += 1;
            state.n_creates += usize::from(is_create);
            (state.n_creates, state.clone())
        };
        if state.is_cut || is_create && self.stop.wait_timeout(state.create_time) {
            return Response::cut();
        }
        let response = self.api.handle(request);
        if is_create && state.lost.contains(&number) {
            return Response::cut();
        }
        response
    }
}

struct Stage<'a> {
    server: &'a DevServer,
    link: Arc<Link>,
    config: ClientConfig,
    /// For the demo's own requests.
    hands: Client,
    controller: Option<(Manager, Stop)>,
    /// The stop signal of the program.
    stop: &'a Stop,
    changes: Changes,
    /// The pods that steps have named.
    names: BTreeMap<String, String>,
    /// Before each command.
    pause: Duration,
    begun: Instant,
    /// The server's version, the number of creates and the time at the begin of the chapter.
    chapter: (u64, usize, Instant),
}

impl Stage<'_> {
    fn play(&mut self) -> Result<(), RunError> {
        let begun = self.server.version();
        writeln!(io::stdout(), "{INTRODUCTION}").unwrap_or_default();
        self.start_controller().map_err(RunError::Demo)?;
        let chapters: Vec<&str> = CHAPTERS.split("= ").skip(1).collect();
        let mut failed = Vec::new();
        for (index, chapter) in chapters.iter().enumerate() {
            let (headline, steps) = chapter.split_once('\n').unwrap_or_default();
            let number = format!("{}/{}", index + 1, chapters.len());
            self.say(&format!("{number} {headline}"));
            let n_creates = self.link.state.lock().n_creates;
            self.chapter = (self.server.version(), n_creates, Instant::now());
            match steps.lines().try_for_each(|step| self.step(step)) {
                Err(why) if why == STOPPED => return Err(RunError::Demo(why)),
                Err(why) => {
                    self.say(&format!("  FAILED: {why}"));
                    failed.push(format!("\n  chapter {number} {headline}: {why}"));
                }
                Ok(()) => {}
            }
        }
        let pods = self.server.tally("pods", "", begun);
        let end = format!(
            "\n  pods created  {}\n  pods deleted  {}\n  seconds       {:.1}\n  API requests  {}\n{}",
            pods.added,
            pods.deleted,
            self.begun.elapsed().as_secs_f64(),
            self.link.state.lock().n_requests,
            next_steps(&program())
        );
        let mut out = io::stdout();
        let written = out.write_all(end.as_bytes()).and_then(|()| out.flush());
        seen_enough(written).map_err(RunError::Output)?;
        match failed.concat() {
            none if none.is_empty() => Ok(()),
            failed => Err(RunError::Demo(format!("chapters failed:{failed}"))),
        }
    }

    fn step(&mut self, step: &str) -> Outcome<()> {
        let named = self.names.iter();
        let step = named.fold(step.to_owned(), |step, (name, pod)| step.replace(name, pod));
        let (verb, rest) = step.split_once(' ').unwrap_or((&step, ""));
        let words: Vec<&str> = rest.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|it| it.parse().ok()).unwrap_or(0);
        match verb {
            "$" => {
                self.watch(self.pause, |_| false)?;
                let shown = match rest
                    .strip_prefix("create ")
                    .and_then(|it| it.split_once(" {"))
                {
                    Some((_, json)) => format!("create -f {}.yaml   # {{{json}", words[2]),
                    None => rest.to_owned(),
                };
                self.say(&format!("  $ kubectl {}", shortened_object(shown)));
                self.command(rest)
            }
            "let" => {
                let pods = self.pods(words[1]);
                let pod = pods
                    .get(number(2))
                    .ok_or_else(|| format!("no pod: {rest}"))?;
                self.names
                    .insert(words[0].to_owned(), text(pod, "/metadata/name"));
                Ok(())
            }
            "wait" => self.wait(rest, |it| it.missed(rest).is_none()),
            "check" => self.check(rest),
            "hold" => {
                let is_missed = self.watch(HOLD, |it| it.missed(rest).is_some())?;
                check(!is_missed, || format!("not for long: {rest}"))
            }
            "why" => {
                let (set, why) = rest.split_once(' ').unwrap_or_default();
                let failure = |it: &Self| it.set(set).and_then(|set| set.failure);
                self.wait(rest, |it| failure(it).is_some_and(|it| it.contains(why)))
            }
            "event" => self.wait(rest, |it| {
                let mut events = it.server.objects("events", "").into_iter();
                events
                    .any(|it| it["reason"] == words[0] && text(&it, "/message").contains(words[1]))
            }),
            "lose" => {
                let mut link = self.link.state.lock();
                let begin = link.n_creates + 1 + number(0);
                (link.lost, link.create_time) = (begin..begin + number(1), CREATE_TIME);
                Ok(())
            }
            "kill" => self.kill(),
            "start" => {
                self.say("  $ systemctl restart replicaset-controller");
                self.start_controller()
            }
            _ => {
                self.look()?;
                self.check(rest.rsplit(": ").next().unwrap_or_default())?;
                self.say(&format!("  ok: {rest}"));
                Ok(())
            }
        }
    }

    /// Waits until `holds`, and prints what changes. Returns whether it held within that time.
    fn watch(&mut self, within: Duration, holds: impl Fn(&Self) -> bool) -> Outcome<bool> {
        let deadline = Instant::now() + within;
        loop {
            self.look()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if holds(self) || left.is_zero() {
                return Ok(!left.is_zero());
            }
            self.stop.wait_timeout(left.min(LOOK_EVERY));
        }
    }

    fn wait(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> Outcome<()> {
        let is_there = self.watch(PATIENCE, holds)?;
        check(is_there, || {
            let found = self.missed(what).unwrap_or_default();
            format!(
                "timed out after {} s waiting for: {what} {found}",
                PATIENCE.as_secs()
            )
        })
    }

    fn check(&self, facts: &str) -> Outcome<()> {
        self.missed(facts).map_or(Ok(()), Err)
    }

    /// The first fact that does not hold.
    fn missed(&self, facts: &str) -> Option<String> {
        let missed = |fact: &str| {
            let (key, bound) = fact.split_once('=')?;
            let elapsed = self.chapter.2.elapsed().as_secs();
            let (bound, more) = bound
                .strip_suffix("+s")
                .map_or((bound, 0), |it| (it, elapsed));
            let bound = bound.parse::<u64>().ok()? + more;
            let found = self.fact(key.trim_end_matches(['<', '>']));
            let holds = match key.as_bytes().last() {
                Some(b'<') => found <= Some(bound),
                Some(b'>') => found >= Some(bound),
                _ => found == Some(bound),
            };
            (!holds).then(|| format!("{fact} is not so: {found:?}"))
        };
        facts.split(' ').find_map(missed)
    }

    /// The value of a fact; `None` for the size of a ReplicaSet that is not complete.
    fn fact(&self, key: &str) -> Option<u64> {
        let pods = self.server.tally("pods", "", self.chapter.0);
        let (name, of) = key.split_once('.').unwrap_or((key, ""));
        let is_ready = |pod: &&Value| condition(pod, "Ready").is_some();
        let found = match (name, of) {
            ("created", _) => pods.added,
            ("deleted", _) => pods.deleted,
            ("requests", _) => self.link.state.lock().n_creates - self.chapter.1,
            (_, "pods") => self.pods(name).len(),
            (_, "ready") => self.pods(name).iter().filter(is_ready).count(),
            (_, "failures") => usize::from(self.set(name)?.failure.is_some()),
            (_, "owners") => usize::from(!owner(&self.pod(name)?).is_empty()),
            _ if name.contains('@') => self.pods(name).len(),
            _ => match self.set(name) {
                Some(set) => {
                    let pods = self.pods(name);
                    let is_whole = pods.len() == set.desired && pods.iter().all(|it| is_ready(&it));
                    Some(set.desired).filter(|_| is_whole && is_complete(&set))?
                }
                None => usize::from(self.pod(name).is_some()),
            },
        };
        u64::try_from(found).ok()
    }

    fn set(&self, name: &str) -> Option<SetFacts> {
        sets(self.server).into_iter().find(|set| set.name == name)
    }

    /// The pod of this name, unless it is terminating.
    fn pod(&self, name: &str) -> Option<Value> {
        self.server
            .object("pods", "default", name)
            .filter(|it| !is_terminating(it))
    }

    /// The pods of a ReplicaSet, or of `SET@NODE`, that are not terminating, by name.
    fn pods(&self, of: &str) -> Vec<Value> {
        let (set, node) = of.split_once('@').unwrap_or((of, ""));
        let mut pods = self.server.objects("pods", "");
        pods.retain(|pod| owner(pod) == set && !is_terminating(pod));
        pods.retain(|pod| node.is_empty() || pod["spec"]["nodeName"] == node);
        pods
    }

    /// Prints what has changed.
    fn look(&mut self) -> Outcome<()> {
        if self.stop.is_stopped() {
            return Err(STOPPED.to_owned());
        }
        let stop = self.controller.as_ref().map(|(_, stop)| stop);
        if let Some(Cause::Failed(why)) = stop.and_then(Stop::cause) {
            return Err(format!("the controller failed: {why}"));
        }
        let no_pods = Tally {
            is_complete: true,
            ..Tally::default()
        };
        for line in self.changes.lines(&sets(self.server), &no_pods) {
            self.say(&format!("  {line}"));
        }
        Ok(())
    }

    fn say(&self, text: &str) {
        let line = wrapped(self.begun.elapsed(), text);
        // A closed pipe must not end the demo, whose exit code still counts.
        writeln!(io::stdout(), "{line}").unwrap_or_default();
    }

    /// Does what a command of kubectl does: `VERB RESOURCE NAME [-n NAMESPACE] [-p] [JSON]`.
    fn command(&self, command: &str) -> Outcome<()> {
        let (words, json) = command.split_at(command.find('{').unwrap_or(command.len()));
        let words: Vec<&str> = words.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "-n");
        let namespace = at.map_or("default", |at| words[at + 1]);
        let [verb, resource, name] = [words[0], words[1], words[2]];
        let collection = match resource {
            "pod" => format!("/api/v1/namespaces/{namespace}/pods"),
            "quota" => format!("/api/v1/namespaces/{namespace}/resourcequotas"),
            "ns" => "/api/v1/namespaces".to_owned(),
            _ => format!("/apis/apps/v1/namespaces/{namespace}/replicasets"),
        };
        let path = format!("{collection}/{name}");
        let read = || serde_json::from_str::<Value>(json).map_err(|error| error.to_string());
        let create = |object: &Value| {
            self.send(&Request::post(&*collection).body("application/json", object.to_string()))
        };
        let patch = |patch: &Value| {
            let request = Request::patch(&*path);
            self.send(&request.body("application/merge-patch+json", patch.to_string()))
        };
        let pairs = words.iter().skip(3).map(|word| match word.split_once('=') {
            Some((key, value)) => (key, json!(value)),
            None => (word.trim_end_matches('-'), Value::Null),
        });
        match verb {
            "apply" => {
                let sample = serde_saphyr::from_multiple::<Value>(SAMPLE);
                let sample = sample.map_err(|error| error.to_string())?;
                sample.iter().try_for_each(create)
            }
            "create" => {
                let mut object = object(resource, name);
                merge(&mut object, read()?);
                create(&object)
            }
            "delete" => self.send(&Request::delete(&*path)),
            "annotate" => patch(&json!({"metadata": {"annotations": pairs.collect::<Value>()}})),
            "label" => patch(&json!({"metadata": {"labels": pairs.collect::<Value>()}})),
            "scale" => {
                let replicas = words
                    .last()
                    .and_then(|it| it.rsplit('=').next()?.parse::<u32>().ok());
                patch(&json!({"spec": {"replicas": replicas}}))
            }
            _ => patch(&read()?),
        }
    }

    fn send(&self, request: &Request) -> Outcome<()> {
        let sent = self.hands.send(request).map(drop);
        sent.map_err(|error| format!("{request}: {error}"))
    }

    fn start_controller(&mut self) -> Outcome<()> {
        let (stop, health) = (Stop::new(), Health::default());
        let options = ManagerOptions {
            controllers: vec![&REPLICA_SET],
            kube_api_qps: 0.0,
            ..ManagerOptions::default()
        };
        let manager = Manager::start(&self.config, &options, &health, &stop);
        let manager = manager.map_err(|error| format!("cannot start the controller: {error}"))?;
        self.controller = Some((manager, stop));
        Ok(())
    }

    /// Blocks until the threads of the controller have ended, if it runs.
    fn stop_controller(&mut self) -> Outcome<()> {
        let Some((manager, stop)) = self.controller.take() else {
            return Ok(());
        };
        stop.stop(Cause::Requested("the demo stops it".to_owned()));
        match manager.wait() {
            Ok(Cause::Requested(_)) => Ok(()),
            Ok(Cause::Failed(why)) => Err(format!("the controller failed: {why}")),
            Err(stuck) => Err(format!("threads did not end: {stuck}")),
        }
    }

    /// Ends the controller. As after `kill -9`, the API server receives no more requests from it.
    fn kill(&mut self) -> Outcome<()> {
        self.link.state.lock().is_cut = true;
        self.stop_controller()?;
        let mut link = self.link.state.lock();
        (link.is_cut, link.create_time) = (false, Duration::ZERO);
        drop(link);
        let created = format!("created={}", self.fact("created").unwrap_or(0));
        self.say(&format!("  killed: {created}"));
        self.step(&format!("hold {created}"))
    }
}

fn check(holds: bool, what: impl FnOnce() -> String) -> Outcome<()> {
    if holds { Ok(()) } else { Err(what()) }
}

/// The name of a pod's controller; empty if it has none.
fn owner(pod: &Value) -> String {
    let owners = pod["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten();
    let owner = owners.find(|owner| owner["controller"] == true);
    owner.map_or(String::new(), |owner| text(owner, "/name"))
}

fn is_terminating(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

/// The object that `create` begins with.
fn object(resource: &str, name: &str) -> Value {
    let pod = json!({"containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}]});
    let labels = json!({"app": name});
    let spec = match resource {
        "pod" => pod,
        "rs" => json!({
            "replicas": 0, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        }),
        _ => json!({}),
    };
    json!({"metadata": {"name": name}, "spec": spec})
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn next_steps(program: &str) -> String {
    format!(
        "\nNext steps:\n  {program} dev    keeps such a cluster running for kubectl\n  \
         {program} --kubeconfig=FILE --dry-run    reports what it would do in yours\n"
    )
}

/// The arguments of kubectl, with as much of an object as fits in a line.
fn shortened_object(mut command: String) -> String {
    const SHOWN: usize = COLUMNS - r"  0.0 s    $ kubectl ... \".len();
    if command.contains('{') && command.len() > SHOWN {
        command.truncate(SHOWN);
        command.push_str("...");
    }
    command
}

/// A line broken between words before column 80; a command as a shell reads it.
fn wrapped(at: Duration, text: &str) -> String {
    let mut line = format!("{:5.1} s  ", at.as_secs_f64());
    let words = text.trim_start();
    let indent = line.len() + text.len() - words.len();
    line.extend(repeat_n(' ', indent - line.len()));
    let mut whole = String::new();
    let more = if words.starts_with('$') { " \\" } else { "" };
    for word in words.split_inclusive(' ') {
        let is_full = line.len() + word.trim_end().len() + more.len() > COLUMNS;
        if is_full && line.len() > indent {
            whole.push_str(line.trim_end());
            whole.push_str(more);
            whole.push('\n');
            line = " ".repeat(indent);
        }
        line += word;
    }
    whole + line.trim_end()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{COLUMNS, INTRODUCTION, next_steps, shortened_object, wrapped};

    #[test]
    fn the_end_names_commands_as_they_can_be_typed() {
        let text = next_steps("target/debug/replicaset-controller");
        assert!(
            text.contains("  target/debug/replicaset-controller dev "),
            "{text}"
        );
    }

    #[test]
    fn a_long_object_is_shown_by_its_beginning() {
        let command = |object: &str| shortened_object(format!("patch rs a -p {object}"));
        assert_eq!(command("{\"a\":1}"), "patch rs a -p {\"a\":1}");
        let long = format!(
            "  $ kubectl {}",
            command(&format!("{{{}}}", "x".repeat(99)))
        );
        let line = wrapped(Duration::ZERO, &long);
        assert!(line.ends_with("xxx...") && !line.contains('\n'), "{line}");
        assert!(line.len() <= COLUMNS, "{line}");
    }

    #[test]
    fn lines_break_between_words_and_keep_the_indent() {
        let words = |n| ["word"; 14][..n].join(" ");
        assert_eq!(
            wrapped(Duration::ZERO, &format!("  {}", "word ".repeat(20))),
            format!("  0.0 s    {}\n           {}", words(14), words(6))
        );
        let command = format!("  $ kubectl {}", "word ".repeat(20));
        assert_eq!(
            wrapped(Duration::ZERO, &command),
            format!(
                "  0.0 s    $ kubectl {} \\\n           {}",
                words(11),
                words(9)
            )
        );
        assert!(INTRODUCTION.lines().all(|line| line.len() <= COLUMNS));
    }
}
