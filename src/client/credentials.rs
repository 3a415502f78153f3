//! Credentials as HTTP headers: bearer token, token file, basic auth, a plugin's credential,
//! impersonation. (`live_tls` handles client certificates.) The sending thread applies them to
//! every request.

use std::fmt::{self, Write as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use ureq::http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use super::exec_plugin::{ExecPlugin, ExecSettings, Issued};
use super::secret_header::{bearer, secret_value};
use crate::stdx::bounded_file;
use crate::stdx::clock::{Clock, SystemClock};
use crate::stdx::stop::Stop;

/// How long a token from a file is used before the next read. Upstream uses it for a minute with
/// ten seconds of leeway (client-go `transport/token_source.go:NewCachedFileTokenSource`).
const TOKEN_FILE_REUSE: Duration = Duration::from_secs(50);

/// After a failed read the old token is used this long before the next read.
const TOKEN_FILE_RETRY: Duration = Duration::from_secs(10);

/// How requests are authorised.
#[derive(Default)]
pub(super) enum Authorization {
    /// No authorization header.
    #[default]
    None,
    /// A token that never changes.
    Token(SecretString),
    /// A token in a file that may be replaced at any time.
    TokenFile {
        path: PathBuf,
        /// The token to use while the file cannot be read.
        until_readable: Option<SecretString>,
    },
    /// User name and password.
    Basic(String, SecretString),
    /// A credential plugin, which issues a token, a client certificate or both.
    Plugin(Box<ExecSettings>),
}

/// The user to impersonate, if any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Impersonation {
    pub(super) user: Option<String>,
    pub(super) uid: Option<String>,
    pub(super) groups: Vec<String>,
    /// Name and value; a name may occur more than once.
    pub(super) extra: Vec<(String, String)>,
}

/// The credentials of a request's headers. `Debug` never prints secrets.
pub(super) struct Credentials {
    source: Source,
    impersonation: HeaderMap,
}

enum Source {
    None,
    Fixed(HeaderValue),
    File(TokenFile),
    Plugin(Box<ExecPlugin>),
}

impl Credentials {
    /// Creates credentials from `authorization` and `impersonation`. Reads the token file once;
    /// runs no plugin yet.
    ///
    /// # Errors
    /// What is wrong, as text.
    pub(super) fn new(
        authorization: Authorization,
        impersonation: &Impersonation,
    ) -> Result<Self, String> {
        let source = match authorization {
            Authorization::None => Source::None,
            Authorization::Token(token) => Source::Fixed(bearer(token.expose_secret())?),
            Authorization::Basic(user, password) => {
                let pair = format!("{user}:{}", password.expose_secret());
                Source::Fixed(secret_value(&format!("Basic {}", STANDARD.encode(pair)))?)
            }
            Authorization::TokenFile {
                path,
                until_readable,
            } => {
                let clock = Arc::new(SystemClock);
                Source::File(TokenFile::open(path, until_readable.as_ref(), clock)?)
            }
            Authorization::Plugin(settings) => {
                Source::Plugin(Box::new(ExecPlugin::new(*settings, Arc::new(SystemClock))))
            }
        };
        Ok(Self {
            source,
            impersonation: impersonation_headers(impersonation)?,
        })
    }

    /// Adds the headers to a request's and returns the plugin's credential, if there is one. May
    /// block on reading the token file or on the plugin.
    ///
    /// # Errors
    /// Why there are no credentials, as text.
    pub(super) fn apply(
        &self,
        headers: &mut HeaderMap,
        stop: &Stop,
    ) -> Result<Option<Arc<Issued>>, String> {
        let issued = match &self.source {
            Source::Plugin(plugin) => Some(plugin.credential(stop)?),
            _ => None,
        };
        let authorization = match &self.source {
            Source::None => None,
            Source::Fixed(value) => Some(value.clone()),
            Source::File(file) => Some(file.current()),
            Source::Plugin(_) => issued.as_ref().and_then(|issued| issued.token.clone()),
        };
        if let Some(value) = authorization {
            headers.insert(AUTHORIZATION, value);
        }
        for (name, value) in &self.impersonation {
            // Append, because `Impersonate-Group` may occur more than once.
            headers.append(name.clone(), value.clone());
        }
        Ok(issued)
    }

    /// Call after the API server rejected the headers of [`apply`](Self::apply) with code 401. The
    /// next request runs the plugin or reads the token file again (client-go
    /// `transport/token_source.go:ResetTokenOlderThan`).
    pub(super) fn refuse(&self, issued: Option<&Issued>) {
        match (&self.source, issued) {
            (Source::Plugin(plugin), Some(issued)) => plugin.refuse(issued.number),
            (Source::File(file), _) => file.refuse(),
            _ => {}
        }
    }

    /// Runs the plugin, if there is one, to check that it works.
    ///
    /// # Errors
    /// Why it issued no credential, as text.
    pub(super) fn try_out(&self, stop: &Stop) -> Result<Option<Arc<Issued>>, String> {
        match &self.source {
            Source::Plugin(plugin) => plugin.credential(stop).map(Some),
            _ => Ok(None),
        }
    }

    /// Lists how `other` differs from these credentials, for the log.
    pub(super) fn changes(&self, other: &Self) -> Vec<&'static str> {
        let mut changes = Vec::new();
        match (&self.source, &other.source) {
            (Source::None, Source::None) => {}
            (Source::Fixed(old), Source::Fixed(new)) if old == new => {}
            (Source::Fixed(_), Source::Fixed(_)) => changes.push("token"),
            (Source::File(old), Source::File(new)) if old.path == new.path => {
                if old.lock().value != new.lock().value {
                    changes.push("token");
                }
            }
            (Source::Plugin(old), Source::Plugin(new)) if old.command() == new.command() => {
                let token = |plugin: &ExecPlugin| plugin.last_issued()?.token.clone();
                if token(old) != token(new) {
                    changes.push("the credential plugin's token");
                }
            }
            _ => changes.push("kind of credentials"),
        }
        if self.impersonation != other.impersonation {
            changes.push("impersonation");
        }
        changes
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match &self.source {
            Source::None => "none".to_owned(),
            Source::Fixed(_) => "fixed".to_owned(),
            Source::File(file) => format!("token file {}", file.path.display()),
            Source::Plugin(plugin) => format!("plugin {}", plugin.command()),
        };
        f.debug_struct("Credentials")
            .field("source", &source)
            .field("impersonation", &self.impersonation)
            .finish()
    }
}

/// A token that is read again about every minute.
struct TokenFile {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    state: Mutex<Token>,
}

struct Token {
    value: HeaderValue,
    /// When the next read is due.
    stale_at: Instant,
}

impl TokenFile {
    fn open(
        path: PathBuf,
        until_readable: Option<&SecretString>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        // The first read may be that of a pipe, as in `--token-file <(kubectl create token …)`.
        let (value, reuse) = match (token_of(&path, bounded_file::read(&path)), until_readable) {
            (Err(problem), Some(token)) => {
                log::warn!("{problem}; the token beside it is used");
                (bearer(token.expose_secret())?, TOKEN_FILE_RETRY)
            }
            (read, _) => (read?, TOKEN_FILE_REUSE),
        };
        let state = Mutex::new(Token {
            value,
            stale_at: clock.now() + reuse,
        });
        Ok(Self { path, clock, state })
    }

    /// Returns the token, at most [`TOKEN_FILE_REUSE`] old. If the file cannot be read, the old
    /// token stays.
    fn current(&self) -> HeaderValue {
        let now = self.clock.now();
        let mut token = self.lock();
        if now < token.stale_at {
            return token.value.clone();
        }
        // Other threads use the old token while this thread reads the file without the lock.
        token.stale_at = now + TOKEN_FILE_RETRY;
        let old = token.value.clone();
        drop(token);
        match token_of(&self.path, bounded_file::read_regular(&self.path)) {
            Ok(value) => {
                *self.lock() = Token {
                    value: value.clone(),
                    stale_at: now + TOKEN_FILE_REUSE,
                };
                value
            }
            Err(problem) => {
                log::warn!("{problem}; the token that was read before stays in use");
                old
            }
        }
    }

    /// Call after the API server rejected the token: the file may hold a newer one.
    fn refuse(&self) {
        let now = self.clock.now();
        let mut token = self.lock();
        // A file that was just read holds no newer token, and a server that rejects everything must
        // not make every request read it.
        let reuse_remaining = token.stale_at.saturating_duration_since(now) + TOKEN_FILE_RETRY / 10;
        if reuse_remaining < TOKEN_FILE_REUSE {
            token.stale_at = now;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Token> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the header for the content of the file at `path`.
fn token_of(path: &Path, content: io::Result<Vec<u8>>) -> Result<HeaderValue, String> {
    let name = path.display();
    let bytes = content.map_err(|error| format!("token file {name} cannot be read: {error}"))?;
    match String::from_utf8_lossy(&bytes).trim() {
        "" => Err(format!("token file {name} is empty")),
        token => bearer(token).map_err(|problem| format!("token file {name}: {problem}")),
    }
}

/// Builds the impersonation headers (client-go
/// `transport/round_trippers.go:impersonatingRoundTripper`).
fn impersonation_headers(impersonation: &Impersonation) -> Result<HeaderMap, String> {
    let Impersonation {
        user,
        uid,
        groups,
        extra,
    } = impersonation;
    let mut headers = HeaderMap::new();
    let Some(user) = user else {
        if uid.is_some() || !groups.is_empty() || !extra.is_empty() {
            return Err(
                "as-uid, as-groups and as-user-extra need a user to act as (\"as\")".to_owned(),
            );
        }
        return Ok(headers);
    };
    let mut add = |name: String, value: &str| -> Result<(), String> {
        let bad = |part| format!("the {part} of {name} has characters that HTTP does not allow");
        let header = HeaderName::try_from(&name)
            .ok()
            .ok_or_else(|| bad("name"))?;
        let value = HeaderValue::from_str(value).ok();
        headers.append(header, value.ok_or_else(|| bad("value"))?);
        Ok(())
    };
    add("Impersonate-User".to_owned(), user)?;
    if let Some(uid) = uid {
        add("Impersonate-Uid".to_owned(), uid)?;
    }
    for group in groups {
        add("Impersonate-Group".to_owned(), group)?;
    }
    for (name, value) in extra {
        add(format!("Impersonate-Extra-{}", escape_header(name)), value)?;
    }
    Ok(headers)
}

/// Percent-encodes the characters that a header name may not have, and the percent sign itself
/// (client-go `transport/round_trippers.go:headerKeyEscape`).
fn escape_header(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            write!(escaped, "%{byte:02X}").unwrap_or_default();
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
