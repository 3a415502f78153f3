//! Credentials as HTTP headers: bearer token, token file, basic auth, a plugin's credential,
//! impersonation. (`live_tls` handles client certificates.) The sending thread applies them to
//! every request.

mod owner;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use ureq::http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use self::owner::{Claims, EndWarning};
use super::exec_plugin::{ExecPlugin, ExecSettings, Issued};
use crate::stdx::bounded_file;
use crate::stdx::clock::{Clock, SystemClock};
use crate::stdx::escape::shell_word;
use crate::stdx::stop::Stop;

pub(super) use self::owner::{Owner, Rejections};

/// How long a token from a file is used before the next read. Upstream uses it for a minute with
/// ten seconds of leeway (client-go `transport/token_source.go:NewCachedFileTokenSource`).
const TOKEN_FILE_REUSE: Duration = Duration::from_secs(50);

/// After a failed read the old token is used this long before the next read.
const TOKEN_FILE_RETRY: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) enum Authorization {
    #[default]
    None,
    Token(SecretString),
    /// A token in a file that may be replaced at any time.
    TokenFile {
        path: PathBuf,
        /// The token to use while the file cannot be read.
        until_readable: Option<SecretString>,
    },
    Basic(String, SecretString),
    /// A credential plugin, which issues a token, a client certificate or both.
    Plugin(Box<ExecSettings>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Impersonation {
    pub(super) user: Option<String>,
    pub(super) uid: Option<String>,
    pub(super) groups: Vec<String>,
    /// Name and value; a name may occur more than once.
    pub(super) extra: Vec<(String, String)>,
}

pub(super) struct Credentials {
    source: Source,
    impersonation: HeaderMap,
    owner: Owner,
}

enum Source {
    None,
    Token(Arc<Token>),
    Basic(HeaderValue),
    File(TokenFile),
    Plugin(Box<ExecPlugin>),
}

impl Credentials {
    /// Creates credentials from `authorization` and `impersonation`. Reads the token file once;
    /// runs no plugin yet.
    pub(super) fn new(
        authorization: Authorization,
        impersonation: &Impersonation,
        owner: Owner,
    ) -> Result<Self, String> {
        let source = match authorization {
            Authorization::None => Source::None,
            Authorization::Token(token) => {
                Source::Token(Token::new(bearer(token.expose_secret())?))
            }
            Authorization::Basic(user, password) => {
                let pair = format!("{user}:{}", password.expose_secret());
                Source::Basic(secret_value(&format!("Basic {}", STANDARD.encode(pair)))?)
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
            owner,
        })
    }

    /// Adds the headers to a request's and returns the plugin's credential, if there is one. May
    /// block on reading the token file or on the plugin.
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
            Source::Basic(value) => Some(value.clone()),
            Source::Token(token) => {
                self.warn_of_end(token, &SystemClock);
                Some(token.header.clone())
            }
            Source::File(file) => {
                let token = file.current();
                self.warn_of_end(&token, &*file.clock);
                Some(token.header.clone())
            }
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

    /// Records that the API server rejected the headers of [`apply`](Self::apply) with code 401, so
    /// that the next request runs the plugin, or reads the token file, again (client-go
    /// `transport/token_source.go:ResetTokenOlderThan`).
    pub(super) fn note_rejected(&self, issued: Option<&Issued>) {
        match (&self.source, issued) {
            (Source::Plugin(plugin), Some(issued)) => plugin.note_rejected(issued.number),
            (Source::File(file), _) => file.note_rejected(),
            _ => {}
        }
    }

    /// True if a rejected credential may be replaced without an operator. A token file with a token
    /// past its end was not.
    pub(super) fn renews_itself(&self) -> bool {
        match &self.source {
            Source::None | Source::Token(..) | Source::Basic(_) => false,
            Source::File(file) => {
                let end = Claims::of(&file.last().header).end;
                end.is_none_or(|end| file.clock.wall() < end)
            }
            Source::Plugin(_) => true,
        }
    }

    /// Says for the log whose credentials the API server has rejected, and how to renew them.
    pub(super) fn rejected(&self, issued: Option<&Issued>) -> String {
        let owner = &self.owner;
        let (what, value, remedy) = match &self.source {
            Source::None if owner.is_withheld => (
                "a request without the credentials".to_owned(),
                None,
                "they are not sent to an http:// URL: use https://".to_owned(),
            ),
            Source::None if owner.has_certificate => (
                "the client certificate".to_owned(),
                None,
                "check that it has not expired, and that the API server's --client-ca-file signed \
                 it"
                .to_owned(),
            ),
            Source::None => (
                "a request without credentials".to_owned(),
                None,
                "give it a token or a client certificate".to_owned(),
            ),
            Source::Token(token) => (
                "the token".to_owned(),
                Some(token.header.clone()),
                "put a new one into the kubeconfig and send SIGHUP".to_owned(),
            ),
            Source::Basic(_) => (
                "the name and password".to_owned(),
                None,
                "correct them in the kubeconfig and send SIGHUP".to_owned(),
            ),
            Source::File(file) => (
                format!("the token in {}", file.path.display()),
                Some(file.last().header.clone()),
                "write a new one into the file".to_owned(),
            ),
            Source::Plugin(plugin) => (
                format!("the credential that plugin {:?} issued", plugin.command()),
                issued.and_then(|issued| issued.token.clone()),
                "run the plugin by hand to see whether it needs another login".to_owned(),
            ),
        };
        let claims = value.as_ref().map(Claims::of).unwrap_or_default();
        let end = match claims.end {
            Some(end) if end <= SystemClock.wall() => format!("; it expired at {end}"),
            Some(end) => format!("; it has not expired yet (valid until {end})"),
            None => String::new(),
        };
        let command = match claims.account {
            Some((namespace, name)) if !matches!(self.source, Source::Plugin(_)) => {
                let (namespace, name) = (shell_word(&namespace), shell_word(&name));
                format!(" (kubectl -n {namespace} create token {name})")
            }
            _ => String::new(),
        };
        format!("{what} of {owner} (401 Unauthorized){end}; {remedy}{command}")
    }

    fn warn_of_end(&self, token: &Token, clock: &dyn Clock) {
        if let Some(end) = token.end.due(|| clock.wall()) {
            log::warn!("the token of {} expires at {end}; renew it", self.owner);
        }
    }

    /// Runs the plugin, if there is one, to check that it works.
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
            (Source::Token(old), Source::Token(new)) if old.header == new.header => {}
            (Source::Basic(old), Source::Basic(new)) if old == new => {}
            (Source::Token(..), Source::Token(..)) => changes.push("token"),
            (Source::Basic(_), Source::Basic(_)) => changes.push("name or password"),
            (Source::File(old), Source::File(new)) if old.path == new.path => {
                if old.last().header != new.last().header {
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
    /// Prints no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "credentials of {}", self.owner)
    }
}

struct Token {
    header: HeaderValue,
    end: EndWarning,
}

impl Token {
    fn new(header: HeaderValue) -> Arc<Self> {
        let end = EndWarning::for_token(&header);
        Arc::new(Self { header, end })
    }
}

/// A token that is read again about every minute.
struct TokenFile {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    /// With the time of the next read.
    state: Mutex<(Arc<Token>, Instant)>,
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
        let state = Mutex::new((Token::new(value), clock.now() + reuse));
        Ok(Self { path, clock, state })
    }

    fn last(&self) -> Arc<Token> {
        Arc::clone(&self.state.lock().0)
    }

    /// Returns the token, at most [`TOKEN_FILE_REUSE`] old. If the file cannot be read, the old
    /// token stays.
    fn current(&self) -> Arc<Token> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let old = Arc::clone(&state.0);
        if now < state.1 {
            return old;
        }
        // Other threads use the old token while this thread reads the file without the lock.
        state.1 = now + TOKEN_FILE_RETRY;
        drop(state);
        let token = match token_of(&self.path, bounded_file::read_regular(&self.path)) {
            Ok(header) if header == old.header => old,
            Ok(header) => Token::new(header),
            Err(problem) => {
                log::warn!("{problem}; the token that was read before stays in use");
                return old;
            }
        };
        *self.state.lock() = (Arc::clone(&token), now + TOKEN_FILE_REUSE);
        token
    }

    /// Call after the API server rejected the token: the file may hold a newer one.
    fn note_rejected(&self) {
        let now = self.clock.now();
        let stale_at = &mut self.state.lock().1;
        // A file that was just read holds no newer token, and a server that rejects everything must
        // not make every request read it.
        let reuse_remaining = stale_at.saturating_duration_since(now) + TOKEN_FILE_RETRY / 10;
        if reuse_remaining < TOKEN_FILE_REUSE {
            *stale_at = now;
        }
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

/// The `Authorization` header for a token.
///
/// # Errors
/// If the token has characters that HTTP does not allow; the error does not print it.
pub(super) fn bearer(token: &str) -> Result<HeaderValue, String> {
    secret_value(&format!("Bearer {}", token.trim()))
}

/// Maximum bytes of a token or password. Those with hundreds of groups have some ten thousand.
pub(super) const CREDENTIAL_BYTES_MAX: usize = 15 << 10;

/// A header value that is marked as secret.
///
/// # Errors
/// If the text is too long or has characters that HTTP does not allow; the error does not print it.
pub(super) fn secret_value(text: &str) -> Result<HeaderValue, String> {
    if text.len() > CREDENTIAL_BYTES_MAX {
        let kib = CREDENTIAL_BYTES_MAX >> 10;
        return Err(format!("the credential is longer than {kib} KiB"));
    }
    // Drop the original error: it must not print the secret, and adds nothing else.
    let value = HeaderValue::from_str(text).ok();
    let mut value = value.ok_or("the credential has characters that HTTP does not allow")?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests;
