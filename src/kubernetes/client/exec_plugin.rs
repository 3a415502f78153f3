//! Credential plugins: a kubeconfig names a program (`exec`) that issues a token or a certificate.
//! This room keeps the credential until it expires or the API server rejects it. `credentials`
//! calls it for every request, on the sending thread: one thread runs the program, and the others
//! wait for it.
//!
//! kubectl's `kuberc` can restrict which programs may run; this client ignores it.

mod child;
mod credential;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use child::{ChildError, Limit, POLL_INTERVAL, Program};
use credential::{ExecCredential, exec_info, parse, validity};
use jiff::Timestamp;
use parking_lot::{Condvar, Mutex};
use secrecy::ExposeSecret;
use ureq::http::header::HeaderValue;

use super::credentials::bearer;
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
    pub(super) arguments: Vec<String>,
    /// The plugin's complete environment except for `KUBERNETES_EXEC_INFO`.
    pub(super) environment: Vec<(String, String)>,
    pub(super) install_hint: Option<String>,
    pub(super) interactive: Interactive,
    /// The cluster information for the plugin; `None` if the kubeconfig does not provide it.
    pub(super) cluster: Option<ClusterInfo>,
}

pub(super) struct Issued {
    pub(super) token: Option<HeaderValue>,
    pub(super) identity: Option<Identity>,
    expires: Option<Timestamp>,
    /// Number of this plugin's credential, from 1.
    pub(super) number: u64,
}

pub(super) struct ExecPlugin {
    settings: ExecSettings,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Notified when a run has ended.
    ran: Condvar,
}

#[derive(Default)]
struct State {
    issued: Option<Arc<Issued>>,
    /// The API server has rejected `issued`.
    is_rejected: bool,
    /// A thread is running the plugin.
    is_running: bool,
    /// Earliest time of the next run.
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
            ran: Condvar::new(),
        }
    }

    /// The program's name, for the log.
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
        loop {
            // Check the limit before locking, since the check takes the stop's lock.
            let is_over = limit.is_over();
            let mut state = self.state.lock();
            let now = self.clock.now();
            if let Some(issued) = state.issued.as_ref().filter(|_| !state.is_rejected)
                && !issued.has_expired(self.clock.wall())
            {
                return Ok(Arc::clone(issued));
            }
            // A plugin that fails or issues expired credentials must not run for every request.
            if state.not_before.is_some_and(|then| now < then) {
                return state.fallback_credential(&self.settings.command);
            }
            if !state.is_running {
                state.is_running = true;
                break;
            }
            if is_over {
                return state.fallback_credential(&self.settings.command);
            }
            self.ran.wait_for(&mut state, POLL_INTERVAL);
        }
        let running = Running(self);
        let issued = self.run(stop);
        let state = self.settle(issued);
        // ORDER: store the credential before `is_running` is cleared, or another thread would run
        // the plugin again.
        drop(running);
        state
    }

    /// Call after the API server rejected credential `number`: the next request runs the plugin.
    pub(super) fn refuse(&self, number: u64) {
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

    fn settle(&self, issued: Result<ExecCredential, String>) -> Result<Arc<Issued>, String> {
        let issued = issued.and_then(|issued| {
            let token = issued.token.as_ref();
            let token = token
                .map(|token| bearer(token.expose_secret()))
                .transpose()?;
            // An identity that no connection can present must not replace one that works.
            if let Some(identity) = &issued.identity {
                client_config(None, Some(identity))?;
            }
            Ok((token, issued.identity, issued.expires))
        });
        let command = &self.settings.command;
        let now = self.clock.now();
        let mut state = self.state.lock();
        let (token, identity, expires) = match issued {
            Ok(parts) => parts,
            Err(problem) => {
                let pause = state
                    .failure
                    .take()
                    .map_or(RERUN_INTERVAL, |(_, pause)| pause * 2);
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
        let issued = Arc::new(Issued {
            token,
            identity,
            expires,
            number: state.issued.as_ref().map_or(0, |issued| issued.number) + 1,
        });
        let old = state.issued.take();
        *state = State {
            issued: Some(Arc::clone(&issued)),
            // `Running` clears this flag when it is dropped.
            is_running: true,
            not_before: Some(now + RERUN_INTERVAL),
            ..State::default()
        };
        drop(state);
        record_certificates(old.as_deref(), &issued);
        let until = expires.map_or("indefinitely".to_owned(), |end| format!("until {end}"));
        log::info!("credential plugin {command:?} issued a credential that is valid {until}");
        Ok(issued)
    }

    fn run_timeout(&self) -> Duration {
        match self.settings.interactive {
            Interactive::Never => RUN_TIMEOUT,
            Interactive::IfAvailable | Interactive::Always => INTERACTIVE_RUN_TIMEOUT,
        }
    }

    fn run(&self, stop: &Stop) -> Result<ExecCredential, String> {
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
            command: &settings.command,
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
        let issued = output.map_err(|error| match error {
            ChildError::NotFound(problem) => (ExecPluginCall::NotFound, self.not_found(&problem)),
            ChildError::Failed { code, problem } => {
                let call = code.map_or(ExecPluginCall::ClientInternalError, |code| {
                    ExecPluginCall::ExecutionError(code)
                });
                (call, problem)
            }
        });
        let issued = issued.and_then(|output| {
            let issued = parse(&output, settings.version);
            issued.map_err(|problem| (ExecPluginCall::ClientInternalError, problem))
        });
        let call = issued
            .as_ref()
            .map_or_else(|(call, _)| *call, |_| ExecPluginCall::NoError);
        metrics::global().credentials.exec_plugin_called(call);
        issued.map_err(|(_, problem)| problem)
    }

    fn not_found(&self, problem: &str) -> String {
        let problem = format!("it cannot be run: {problem}");
        match &self.settings.install_hint {
            Some(hint) => format!("{problem}; {}", hint.trim()),
            None => problem,
        }
    }
}

/// Marks that this thread runs the plugin. Dropping it, also in a panic, releases the waiting
/// threads.
struct Running<'a>(&'a ExecPlugin);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_running = false;
        self.0.ran.notify_all();
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
            (None, None) => Err(plugin_error(command, "it takes too long")),
        }
    }
}

/// Records in the metrics when the new certificate expires and the age of the old one (client-go
/// `plugin/pkg/client/auth/exec/exec.go:refreshCredsLocked`).
fn record_certificates(old: Option<&Issued>, new: &Issued) {
    let validity = |issued: &Issued| validity(&issued.identity.as_ref()?.0);
    let metrics = &metrics::global().credentials;
    metrics.set_exec_plugin_expiry(validity(new).map(|(_, end)| end));
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

impl Issued {
    fn has_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|end| now > end)
    }
}

/// Checks that the program `command` exists: at its path, if it has a slash, else in `search_path`.
pub(super) fn find_command(
    command: &str,
    search_path: &str,
    hint: Option<&str>,
) -> Result<(), String> {
    let is_found = if command.contains('/') {
        Path::new(command).exists()
    } else {
        std::env::split_paths(search_path).any(|folder| folder.join(command).exists())
    };
    match (is_found, hint) {
        (true, _) => Ok(()),
        (false, None) => Err(format!(
            "its credential plugin {command:?} (exec) does not exist"
        )),
        (false, Some(hint)) => Err(format!(
            "its credential plugin {command:?} (exec) does not exist; {}",
            hint.trim()
        )),
    }
}

#[cfg(test)]
mod tests;
