//! Every request's way to its page: who asks, whether they may, and the words to say no, which are
//! kube-controller-manager's (apiserver `pkg/endpoints/filters`). On the threads `http-N`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::authentication::Authentication;
use super::authorization::{Authorization, Decision};
use super::pages::Pages;
use crate::api::Status;
use crate::http_server::{Handler, Request, Response};
use crate::stdx::report::report;

/// The pages for everybody who may see them.
pub(super) struct Gate {
    pub(super) authentication: Authentication,
    pub(super) authorization: Authorization,
    pub(super) pages: Arc<Pages>,
    pub(super) last_warning: Mutex<Option<Instant>>,
}

/// Anybody can make requests that are refused, so that only one in this time is worth a warning.
const WARNING_PERIOD: Duration = Duration::from_mins(1);

/// The pages for whoever reaches the loopback interface: to look at, not to change anything.
pub(super) struct PlainGate(pub(super) Arc<Pages>);

impl Handler for Gate {
    fn handle(&self, request: Request) -> Response {
        sealed(self.answer(&request))
    }
}

impl Handler for PlainGate {
    fn handle(&self, request: Request) -> Response {
        if !matches!(request.method.as_str(), "GET" | "HEAD") {
            let why = "plain HTTP is for reading only; use the secure port\n";
            return sealed(Response::text(405, why).with_header("allow", "GET, HEAD"));
        }
        sealed(self.0.answer(&request))
    }
}

impl Gate {
    /// Warns, or mentions it if there was a warning a moment ago.
    fn warn(&self, message: &str) {
        let now = Instant::now();
        let last = self.last_warning.lock();
        let mut last = last.unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|at| now.saturating_duration_since(at) >= WARNING_PERIOD);
        if is_due {
            *last = Some(now);
        }
        drop(last);
        if is_due {
            log::warn!("{message}");
        } else {
            log::debug!("{message}");
        }
    }

    fn answer(&self, request: &Request) -> Response {
        let path = &request.path;
        // DIFFERS: asked before anything else. Upstream reviews a token first, so that a probe that
        // shows one fails while the API server is away.
        if self
            .authorization
            .allowed_paths
            .allow(&request.method, path)
        {
            return self.pages.answer(request);
        }
        let user = match self.authentication.user(request) {
            Ok(user) => user,
            Err(why) => {
                self.warn(&format!(
                    "unable to authenticate a request for {path}: {why}"
                ));
                let status = Status::new(401, "Unauthorized", "Unauthorized");
                return Response::status(&status);
            }
        };
        let verb = request.method.to_ascii_lowercase();
        match self.authorization.decide(&user, &verb, path) {
            Ok(Decision::Allowed) => self.pages.answer(request),
            Ok(Decision::Denied(reason)) => {
                let name = &user.name;
                log::debug!("forbidden: {verb} {path} for user {name:?}: {reason}");
                let why = sanitized(&format!("User {name:?} cannot {verb} path {path:?}"));
                let why = if reason.is_empty() {
                    why
                } else {
                    format!("{why}: {reason}")
                };
                let status = Status::new(403, "Forbidden", format!("forbidden: {why}"));
                Response::status(&status)
            }
            Err(error) => {
                let why = report(&error);
                self.warn(&format!("nobody can say whether {path} is allowed: {why}"));
                let uri = &request.path_and_query;
                let text = sanitized(&format!("Internal Server Error: {uri:?}: {why}"));
                Response::text(500, &format!("{text}\n"))
            }
        }
    }
}

/// With the headers that every answer has.
fn sealed(answer: Response) -> Response {
    let mut answer = answer.with_header("x-content-type-options", "nosniff");
    if !answer
        .headers
        .iter()
        .any(|(name, _)| name == "cache-control")
    {
        answer = answer.with_header("cache-control", "no-cache, private");
    }
    answer
}

/// So that no refusal looks like HTML
/// (apiserver `pkg/endpoints/handlers/responsewriters/errors.go:sanitizer`).
fn sanitized(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Handler, Pages, PlainGate, Request, Response};

    #[test]
    fn plain_http_is_for_reading_only() {
        let pages = Pages::default();
        pages.page("/debug/flags/v", |_| Response::text(200, "4"));
        let gate = PlainGate(Arc::new(pages));
        for (method, code) in [
            ("GET", 200),
            ("HEAD", 200),
            ("PUT", 405),
            ("POST", 405),
            ("PATCH", 405),
            ("DELETE", 405),
        ] {
            let answer = gate.handle(Request {
                method: method.to_owned(),
                path: "/debug/flags/v".to_owned(),
                ..Request::default()
            });
            assert_eq!(answer.code, code, "{method}");
        }
    }
}
