//! Credential plugins: a kubeconfig names a program (`exec`) that issues a token or a certificate.
//! This module caches the credential until it expires or the API server rejects it. `credentials`
//! calls it for every request, on the sending thread: one thread runs the program, and the others
//! wait for it.
//!
//! kubectl's `kuberc` can restrict which programs may run; this client ignores it.

mod child;
mod credential;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use child::{ChildError, Limit, POLL_INTERVAL, Program};
use credential::{exec_info, parse, validity};
use jiff::Timestamp;
use parking_lot::Mutex;
use ureq::http::header::HeaderValue;

use super::tls::{Identity, client_config};
use crate::stdx::clock::Clock;
use crate::stdx::stop::Stop;
use crate::telemetry::metrics;
use crate::telemetry::metrics::credentials::ExecPluginCall;

pub(super) use credential::{ClusterInfo, VERSIONS};

#[cfg(any(test, feature = "simulation"))]
pub use credential::read_credential;

/// Maximum run time of a plugin. DIFFERS: upstream has no limit.
const RUN_TIMEOUT: Duration = Duration::from_mins(1);

/// Maximum run time of a plugin that may prompt on the terminal.
const INTERACTIVE_RUN_TIMEOUT: Duration = Duration::from_mins(5);

/// Minimum time from a successful run to the next, even if the credential expired at once or the
/// API server rejects it. DIFFERS: upstream runs the plugin for every request then.
const RERUN_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum pause after a failed run. The first pause is [`RERUN_INTERVAL`]; each failure doubles
/// it. Requests during the pause fail with the same error. DIFFERS: upstream runs the plugin for
/// each of them.
const FAILURE_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Whether the plugin may use the terminal (client-go
/// `tools/clientcmd/api/types.go:ExecInteractiveMode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interactive {
    Never,
    /// Only if standard input is a terminal.
    IfAvailable,
    /// Standard input must be a terminal.
    Always,
}

#[derive(Clone)]
pub(super) struct ExecSettings {
    /// One of [`VERSIONS`].
    pub(super) version: &'static str,
    pub(super) command: String,
    /// The file of `command`.
    pub(super) program: String,
    pub(super) arguments: Vec<String>,
    /// The plugin's complete environment except for `KUBERNETES_EXEC_INFO`.
    pub(super) environment: Vec<(String, String)>,
    pub(super) install_hint: Option<String>,
    pub(super) interactive: Interactive,
    /// The cluster information for the plugin; `None` if the kubeconfig does not provide it.
    pub(super) cluster: Option<ClusterInfo>,
}

/// The credential that a plugin issued.
#[derive(Clone)]
pub(super) struct Issued {
    /// As a header.
    pub(super) token: Option<HeaderValue>,
    pub(super) identity: Option<Identity>,
    /// `None`: it never expires.
    expires: Option<Timestamp>,
    /// Number of this plugin's credential, from 1.
    pub(super) number: u64,
}

pub(super) struct ExecPlugin {
    settings: ExecSettings,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Held by the thread that runs the plugin.
    running: Mutex<()>,
}

#[derive(Default)]
struct State {
    issued: Option<Arc<Issued>>,
    is_rejected: bool,
    not_before: Option<Instant>,
    /// The error of the last run, if it failed, and the pause after it.
    failure: Option<(String, Duration)>,
}

impl ExecPlugin {
    pub(super) fn new(settings: ExecSettings, clock: Arc<dyn Clock>) -> Self {
        Self {
            settings,
            clock,
            state: Mutex::default(),
            running: Mutex::default(),
        }
    }

    pub(super) fn command(&self) -> &str {
        &self.settings.command
    }

    /// Returns a valid credential: the last one, or the result of a run. Blocks on that run, this
    /// thread's or another's, for at most a minute (five if the plugin is interactive); five
    /// seconds once `stop` is triggered. An expired credential stays in use while the plugin issues
    /// no other and the API server has not rejected it.
    pub(super) fn credential(&self, stop: &Stop) -> Result<Arc<Issued>, String> {
        // Waiting threads allow slightly more than the run itself, so that they see its result.
        let mut limit = Limit::new(self.run_timeout() + RERUN_INTERVAL, stop);
        let mut running = None;
        loop {
            // ORDER: look only after the last run has ended, which stores what it issued first.
            if let Some(known) = self.known() {
                return known;
            }
            if running.is_some() {
                return self.settle(self.run(stop));
            }
            running = self.running.try_lock_for(POLL_INTERVAL);
            if running.is_none() && limit.is_over() {
                return self
                    .state
                    .lock()
                    .fallback_credential(&self.settings.command);
            }
        }
    }

    /// What requests get without a run of the plugin; `None` if it has to run.
    fn known(&self) -> Option<Result<Arc<Issued>, String>> {
        let state = self.state.lock();
        let wall = self.clock.wall();
        let is_valid = |issued: &&Arc<Issued>| issued.expires.is_none_or(|end| wall <= end);
        if let Some(issued) = state.issued.as_ref().filter(is_valid)
            && !state.is_rejected
        {
            return Some(Ok(Arc::clone(issued)));
        }
        // A plugin that fails or issues expired credentials must not run for every request.
        let is_paused = state.not_before.is_some_and(|then| self.clock.now() < then);
        is_paused.then(|| state.fallback_credential(&self.settings.command))
    }

    /// Call after the API server rejected credential `number`: the next request runs the plugin.
    pub(super) fn note_rejected(&self, number: u64) {
        let mut state = self.state.lock();
        if state
            .issued
            .as_ref()
            .is_some_and(|issued| issued.number == number)
        {
            state.is_rejected = true;
        }
    }

    /// The last credential, even if it has expired or was rejected.
    pub(super) fn last_issued(&self) -> Option<Arc<Issued>> {
        self.state.lock().issued.clone()
    }

    /// Keeps what a run issued, or notes its failure. Returns what requests get.
    fn settle(&self, issued: Result<Issued, String>) -> Result<Arc<Issued>, String> {
        let issued = issued.and_then(|issued| {
            // An identity that no connection can present must not replace one that works.
            let identity = issued.identity.as_ref();
            let checked = identity.map(|identity| client_config(None, Some(identity)));
            checked.transpose().map(|_| issued)
        });
        let command = &self.settings.command;
        let now = self.clock.now();
        let mut state = self.state.lock();
        let mut issued = match issued {
            Ok(issued) => issued,
            Err(problem) => {
                let earlier = state.failure.take();
                let pause = earlier.map_or(RERUN_INTERVAL, |(_, pause)| pause * 2);
                let pause = pause.min(FAILURE_PAUSE_MAX);
                state.failure = Some((problem.clone(), pause));
                state.not_before = Some(now + pause);
                let fallback = state.fallback_credential(command);
                drop(state);
                log::error!(
                    error:% = problem, then:% = format_args!("next attempt in {pause:?}");
                    "credential plugin {command:?}"
                );
                return fallback;
            }
        };
        let old = state.issued.take();
        issued.number = old.as_ref().map_or(0, |old| old.number) + 1;
        let issued = Arc::new(issued);
        *state = State {
            issued: Some(Arc::clone(&issued)),
            not_before: Some(now + RERUN_INTERVAL),
            ..State::default()
        };
        drop(state);
        record_certificates(old.as_deref(), &issued);
        let end = issued.expires.map(|end| format!("until {end}"));
        let until = end.unwrap_or_else(|| "indefinitely".to_owned());
        log::info!("credential plugin {command:?} issued a credential that is valid {until}");
        Ok(issued)
    }

    fn run_timeout(&self) -> Duration {
        match self.settings.interactive {
            Interactive::Never => RUN_TIMEOUT,
            Interactive::IfAvailable | Interactive::Always => INTERACTIVE_RUN_TIMEOUT,
        }
    }

    fn run(&self, stop: &Stop) -> Result<Issued, String> {
        let settings = &self.settings;
        let interactive = match settings.interactive {
            Interactive::Never => false,
            Interactive::IfAvailable => child::has_terminal(),
            Interactive::Always if child::has_terminal() => true,
            Interactive::Always => {
                return Err(
                    "its interactiveMode is Always, and standard input is not a terminal"
                        .to_owned(),
                );
            }
        };
        let info = exec_info(settings.version, interactive, settings.cluster.as_ref());
        let exec_info_var = [("KUBERNETES_EXEC_INFO", info.as_str())];
        let variables = settings.environment.iter();
        let environment = variables
            .map(|(name, value)| (name.as_str(), value.as_str()))
            // The daemon may have inherited a variable of this name.
            .filter(|(name, _)| *name != exec_info_var[0].0);
        let program = Program {
            command: &settings.program,
            arguments: &settings.arguments,
            environment: environment.chain(exec_info_var).collect(),
            interactive,
            timeout: if interactive {
                INTERACTIVE_RUN_TIMEOUT
            } else {
                RUN_TIMEOUT
            },
        };
        log::debug!("running the credential plugin {:?}", settings.command);
        let output = child::run(&program, stop);
        let issued = output.and_then(|output| {
            let issued = parse(&output, settings.version);
            issued.map_err(ChildError::failed)
        });
        let call = match &issued {
            Ok(_) => ExecPluginCall::NoError,
            Err(error) => error.call,
        };
        metrics::global().credentials.exec_plugin_called(call);
        issued.map_err(|ChildError { call, problem }| match call {
            ExecPluginCall::NotFound => self.not_found(&problem),
            _ => problem,
        })
    }

    fn not_found(&self, problem: &str) -> String {
        let problem = format!("it cannot be run: {problem}");
        match &self.settings.install_hint {
            Some(hint) => format!("{problem}; {}", hint.trim()),
            None => problem,
        }
    }
}

impl State {
    /// Returns the last credential while the plugin issues no other, even if it has expired: the
    /// API server decides whether it is valid. Fails if there is none, or if the API server has
    /// rejected it and the last run failed.
    fn fallback_credential(&self, command: &str) -> Result<Arc<Issued>, String> {
        match (&self.issued, &self.failure) {
            (Some(_), Some((problem, _))) if self.is_rejected => {
                Err(plugin_error(command, problem))
            }
            (Some(issued), _) => Ok(Arc::clone(issued)),
            (None, Some((problem, _))) => Err(plugin_error(command, problem)),
            (None, None) => Err(plugin_error(command, "it did not finish in time")),
        }
    }
}

/// Records in the metrics when the new certificate expires and the age of the old one (client-go
/// `plugin/pkg/client/auth/exec/exec.go:refreshCredsLocked`).
fn record_certificates(old: Option<&Issued>, new: &Arc<Issued>) {
    let validity = |issued: &Issued| validity(&issued.identity.as_ref()?.0);
    let metrics = &metrics::global().credentials;
    if let Some((_, end)) = validity(new) {
        metrics.exec_plugin_issued(new, end);
    }
    let is_different = |old: &&Issued| old.identity != new.identity;
    if let Some((begin, _)) = old.filter(is_different).and_then(validity)
        && let Ok(age) = SystemTime::now().duration_since(begin)
    {
        metrics.exec_plugin_certificate_rotated(age);
    }
}

fn plugin_error(command: &str, problem: &str) -> String {
    format!("credential plugin {command:?}: {problem}")
}

/// The file of the program `command`: that path, if it has a slash, else one in `search_path`.
pub(super) fn find_command(
    command: &str,
    search_path: &str,
    hint: Option<&str>,
) -> Result<String, String> {
    let found = if command.contains('/') {
        Some(command.into()).filter(|path: &PathBuf| path.exists())
    } else {
        // As Go, which takes no program of a relative folder.
        let folders = std::env::split_paths(search_path).filter(|it| it.is_absolute());
        let mut files = folders.map(|folder| folder.join(command));
        files.find(|file| file.exists())
    };
    if let Some(file) = found {
        return Ok(file.to_string_lossy().into_owned());
    }
    let hint = hint.map_or_else(String::new, |hint| format!("; {}", hint.trim()));
    Err(format!(
        "its credential plugin {command:?} (exec) does not exist{hint}"
    ))
}

#[cfg(test)]
mod tests;
