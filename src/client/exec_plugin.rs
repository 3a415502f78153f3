//! Credential plugins: a program that a kubeconfig names (`exec`) gives a token or a certificate,
//! which is kept until it expires or the API server refuses it. Asked by `credentials` for every
//! request, on the thread that sends it: one thread runs the program, the others wait for it.
//!
//! Which programs may be run is kubectl's `kuberc` to say, and not looked at here.

mod child;
mod credential;
mod validity;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use secrecy::ExposeSecret;
use ureq::http::header::HeaderValue;

pub(super) use credential::{ClusterInfo, VERSIONS};

use super::secret_header::bearer;
use super::tls::Identity;
use crate::stdx::clock::Clock;
use crate::stdx::stop::Stop;
use crate::telemetry::metrics::{self, credentials::ExecPluginCall};
use child::{ChildError, Limit, Program, SLICE};
use credential::{ExecCredential, exec_info, parse};
use validity::validity;

/// How long a plugin may run. DIFFERS: upstream waits without end.
const RUN_WITHIN: Duration = Duration::from_mins(1);

/// How long one may run that asks a person.
const RUN_INTERACTIVELY_WITHIN: Duration = Duration::from_mins(5);

/// A plugin is not run again sooner than this after it has given something, even if that has
/// expired at once or is refused. DIFFERS: upstream runs it for every request then.
const RUN_AGAIN: Duration = Duration::from_secs(1);

/// The longest pause after a plugin has failed; the first is [`RUN_AGAIN`], each twice the one
/// before. Requests in between fail with the same cause. DIFFERS: upstream runs it for each.
const FAILURE_PAUSE_MAX: Duration = Duration::from_secs(30);

/// May the plugin talk to a person (client-go `tools/clientcmd/api/types.go:ExecInteractiveMode`)?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interactive {
    Never,
    /// If standard input is a terminal.
    IfAvailable,
    /// It must.
    Always,
}

/// A plugin as it is configured.
#[derive(Clone)]
pub(super) struct ExecSettings {
    /// One of [`VERSIONS`].
    pub(super) version: &'static str,
    pub(super) command: String,
    pub(super) arguments: Vec<String>,
    /// The plugin's whole environment but for `KUBERNETES_EXEC_INFO`.
    pub(super) environment: Vec<(String, String)>,
    pub(super) install_hint: Option<String>,
    pub(super) interactive: Interactive,
    /// What it may know of the cluster, if it may.
    pub(super) cluster: Option<ClusterInfo>,
}

/// A credential that a plugin gave.
pub(super) struct Issued {
    /// The `Authorization` header.
    pub(super) token: Option<HeaderValue>,
    pub(super) identity: Option<Identity>,
    expires: Option<Timestamp>,
    /// Counts what this plugin gave, from 1.
    pub(super) number: u64,
}

/// A plugin and what it gave last.
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
    /// The API server has refused what is in `issued`.
    is_refused: bool,
    /// A thread is running the plugin.
    is_running: bool,
    /// No run before this.
    not_before: Option<Instant>,
    /// Why the last run gave nothing, and the pause after it.
    failure: Option<(String, Duration)>,
}

impl ExecPlugin {
    /// A plugin that has not been run yet.
    pub(super) fn new(settings: ExecSettings, clock: Arc<dyn Clock>) -> Self {
        Self {
            settings,
            clock,
            state: Mutex::default(),
            ran: Condvar::new(),
        }
    }

    /// The program's name, for people.
    pub(super) fn command(&self) -> &str {
        &self.settings.command
    }

    /// A credential that is good now: the last one, or what a run of the plugin gives. Waits for
    /// that run, be it this thread's or another's: at most a minute, five seconds once `stop` is
    /// given. One that has expired is still used while the plugin gives no other and the API server
    /// has not refused it.
    ///
    /// # Errors
    /// Why the plugin gave nothing, for people.
    pub(super) fn credential(&self, stop: &Stop) -> Result<Arc<Issued>, String> {
        let mut limit = Limit::new(self.run_within() + RUN_AGAIN, stop);
        loop {
            // Asked without the lock, since it takes the stop's.
            let is_over = limit.is_over();
            let mut state = self.lock();
            let now = self.clock.now();
            if let Some(issued) = state.issued.as_ref().filter(|_| !state.is_refused)
                && !issued.has_expired(self.clock.wall())
            {
                return Ok(Arc::clone(issued));
            }
            if state.not_before.is_some_and(|then| now < then) {
                return state.last_resort(&self.settings.command);
            }
            if !state.is_running {
                state.is_running = true;
                break;
            }
            if is_over {
                return state.last_resort(&self.settings.command);
            }
            let waited = self.ran.wait_timeout(state, SLICE);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
        let running = Running(self);
        let given = self.run(stop);
        let state = self.settle(given);
        // ORDER: others must find what was given before they may run the plugin themselves.
        drop(running);
        state
    }

    /// The API server has refused credential number `number`: the next request has the plugin run.
    pub(super) fn refuse(&self, number: u64) {
        let mut state = self.lock();
        if state
            .issued
            .as_ref()
            .is_some_and(|issued| issued.number == number)
        {
            state.is_refused = true;
        }
    }

    /// What was given last, whatever it is worth.
    pub(super) fn last(&self) -> Option<Arc<Issued>> {
        self.lock().issued.clone()
    }

    fn settle(&self, given: Result<ExecCredential, String>) -> Result<Arc<Issued>, String> {
        let given = given.and_then(|given| {
            let token = given.token.as_ref();
            let token = token
                .map(|token| bearer(token.expose_secret()))
                .transpose()?;
            Ok((token, given.identity, given.expires))
        });
        let command = &self.settings.command;
        let now = self.clock.now();
        let mut state = self.lock();
        let (token, identity, expires) = match given {
            Ok(given) => given,
            Err(problem) => {
                let pause = state
                    .failure
                    .take()
                    .map_or(RUN_AGAIN, |(_, pause)| pause * 2);
                let pause = pause.min(FAILURE_PAUSE_MAX);
                state.failure = Some((problem.clone(), pause));
                state.not_before = Some(now + pause);
                let rest = state.last_resort(command);
                drop(state);
                log::error!(
                    error:% = problem, then:% = format_args!("next try in {pause:?}");
                    "credential plugin {command:?}"
                );
                return rest;
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
            is_running: true,
            not_before: Some(now + RUN_AGAIN),
            ..State::default()
        };
        drop(state);
        note_certificates(old.as_deref(), &issued);
        let until = expires.map_or("without an end".to_owned(), |end| format!("until {end}"));
        log::info!("credential plugin {command:?} gave a credential that is good {until}");
        Ok(issued)
    }

    fn run_within(&self) -> Duration {
        match self.settings.interactive {
            Interactive::Never => RUN_WITHIN,
            Interactive::IfAvailable | Interactive::Always => RUN_INTERACTIVELY_WITHIN,
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
                    "its interactiveMode is Always, and standard input is no terminal".to_owned(),
                );
            }
        };
        let info = exec_info(settings.version, interactive, settings.cluster.as_ref());
        let own = [("KUBERNETES_EXEC_INFO", info.as_str())];
        let variables = settings.environment.iter();
        let environment = variables
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .filter(|(name, _)| *name != own[0].0);
        let program = Program {
            command: &settings.command,
            arguments: &settings.arguments,
            environment: environment.chain(own).collect(),
            interactive,
            within: if interactive {
                RUN_INTERACTIVELY_WITHIN
            } else {
                RUN_WITHIN
            },
        };
        log::debug!("running the credential plugin {:?}", settings.command);
        let output = child::run(&program, stop);
        let given = output.map_err(|error| match error {
            ChildError::NotFound(problem) => (ExecPluginCall::NotFound, self.not_found(&problem)),
            ChildError::Failed { code, problem } => {
                let call = code.map_or(ExecPluginCall::ClientInternalError, |code| {
                    ExecPluginCall::ExecutionError(code)
                });
                (call, problem)
            }
        });
        let given = given.and_then(|output| {
            let given = parse(&output, settings.version);
            given.map_err(|problem| (ExecPluginCall::ClientInternalError, problem))
        });
        let call = given
            .as_ref()
            .map_or_else(|(call, _)| *call, |_| ExecPluginCall::NoError);
        metrics::global().credentials.exec_plugin_called(call);
        given.map_err(|(_, problem)| problem)
    }

    fn not_found(&self, problem: &str) -> String {
        let problem = format!("it cannot be run: {problem}");
        match &self.settings.install_hint {
            Some(hint) => format!("{problem}; {}", hint.trim()),
            None => problem,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// This thread runs the plugin. Dropped, also by a panic, it lets the others go on.
struct Running<'a>(&'a ExecPlugin);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.lock().is_running = false;
        self.0.ran.notify_all();
    }
}

impl State {
    /// What there is while the plugin gives nothing: the API server may know better than the clock
    /// whether the last credential is still good.
    fn last_resort(&self, command: &str) -> Result<Arc<Issued>, String> {
        match (&self.issued, &self.failure) {
            (Some(_), Some((problem, _))) if self.is_refused => Err(in_plugin(command, problem)),
            (Some(issued), _) => Ok(Arc::clone(issued)),
            (None, Some((problem, _))) => Err(in_plugin(command, problem)),
            (None, None) => Err(in_plugin(command, "it takes too long")),
        }
    }
}

/// Tells the metrics when the new certificate expires, and how old the one before has become
/// (client-go `plugin/pkg/client/auth/exec/exec.go:refreshCredsLocked`).
fn note_certificates(old: Option<&Issued>, new: &Issued) {
    let validity = |issued: &Issued| validity(&issued.identity.as_ref()?.0);
    let metrics = &metrics::global().credentials;
    metrics.set_exec_plugin_expiry(validity(new).map(|(_, end)| end));
    let is_other = |old: &&Issued| old.identity != new.identity;
    if let Some((begin, _)) = old.filter(is_other).and_then(validity)
        && let Ok(age) = SystemTime::now().duration_since(begin)
    {
        metrics.exec_plugin_certificate_rotated(age);
    }
}

fn in_plugin(command: &str, problem: &str) -> String {
    format!("credential plugin {command:?}: {problem}")
}

impl Issued {
    fn has_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|end| now > end)
    }
}

impl fmt::Debug for ExecPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecPlugin")
            .field("command", &self.settings.command)
            .finish_non_exhaustive()
    }
}

/// Where the program `command` is found: as it stands if it is a path, else in `search_path`.
///
/// # Errors
/// That it is not there, with `hint`, for people.
pub(super) fn find(command: &str, search_path: &str, hint: Option<&str>) -> Result<(), String> {
    let is_found = if command.contains('/') {
        Path::new(command).exists()
    } else {
        std::env::split_paths(search_path).any(|folder| folder.join(command).exists())
    };
    match (is_found, hint) {
        (true, _) => Ok(()),
        (false, None) => Err(format!(
            "its credential plugin {command:?} (exec) is not there"
        )),
        (false, Some(hint)) => Err(format!(
            "its credential plugin {command:?} (exec) is not there; {}",
            hint.trim()
        )),
    }
}

#[cfg(test)]
mod tests;
