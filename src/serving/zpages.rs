//! The pages `/statusz` and `/flagz` (apiserver `pkg/server/statusz`, `pkg/server/flagz`),
//! `/configz` (component-base `configz`), `/debug/flags/v` (apiserver
//! `pkg/server/routes/flags.go`), and `/healthz`, `/livez` and `/readyz` with their individual
//! checks and `/metrics/slis` (apiserver `pkg/server/healthz/healthz.go`).
//!
//! DIFFERS: `/statusz` and `/flagz` are plain text with the delimiter `: `. Upstream picks a random
//! one, and offers structured forms as well.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::pages::{Pages, lines};
use crate::api::Status;
use crate::http_server::{Request, Response};
use crate::stdx::build;
use crate::telemetry::{Health, Probe, logging, metrics};

const COMPONENT: &str = "replicaset-controller";

const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no \
                       formatting compatibility guarantees and is for debugging purposes only.";

#[derive(Debug)]
pub struct ZPages {
    /// Flags and their effective values, without the dashes. No flag holds a secret.
    pub flags: BTreeMap<String, String>,
    /// The effective configuration by section.
    pub config: Value,
}

pub(super) fn add(pages: &Arc<Pages>, content: ZPages, started: Timestamp) {
    let config = content.config;
    pages.page("/configz", "the configuration as JSON", move |_| {
        Response::object(200, &config)
    });
    let flags = content.flags;
    pages.page("/flagz", "all flags and their values", move |request| {
        plain(request, || flagz(&flags))
    });
    let about = "the log's level; PUT sets its verbosity, over HTTPS only";
    pages.page("/debug/flags/v", about, verbosity);
    pages.tree("/debug/pprof/", "", "", |_| {
        let hint = "there is no Go runtime to profile here; try perf, eu-stack or /debug/threads\n";
        Response::text(404, hint)
    });
    let listed = Arc::downgrade(pages);
    pages.page("/statusz", "version, uptime and status", move |request| {
        let Some(pages) = listed.upgrade() else {
            return Response::text(503, "the daemon is stopping\n");
        };
        plain(request, || statusz(&pages, started))
    });
}

fn statusz(pages: &Pages, started: Timestamp) -> Response {
    let uptime = Timestamp::now().duration_since(started).as_secs().max(0);
    let (hours, minutes, seconds) = (uptime / 3600, uptime / 60 % 60, uptime % 60);
    let text = format!(
        "\n{COMPONENT} statusz\n{WARNING}\n\nStarted: {}\n\
         Up: {hours} hr {minutes:02} min {seconds:02} sec\n\
         Binary version: {}\nEmulation version: {}\nPaths: {}\n{}",
        started.strftime("%a %b %e %H:%M:%S UTC %Y"),
        build::VERSION,
        build::KUBERNETES,
        pages.folders().join(" "),
        lines(&pages.status())
    );
    Response::text(200, &text)
}

fn flagz(flags: &BTreeMap<String, String>) -> Response {
    let mut text = format!("\n{COMPONENT} flagz\n{WARNING}\n");
    for (name, value) in flags {
        // Writing to a string cannot fail.
        writeln!(text, "{name}: {value}").unwrap_or_default();
    }
    Response::text(200, &text)
}

/// Serves `page` to clients that accept plain text.
fn plain(request: &Request, page: impl FnOnce() -> Response) -> Response {
    let mut ranges = request.header("accept").split(',');
    let is_text = |range: &str| {
        let kind = range.split(';').next().unwrap_or_default().trim();
        ["", "text/plain", "text/*", "*/*"].contains(&kind)
    };
    if ranges.any(is_text) {
        return page();
    }
    let offered = "this page is text/plain only; /configz and /debug/ have JSON";
    Response::status(&Status::new(406, "NotAcceptable", offered.to_owned()))
}

/// DIFFERS: upstream has no GET.
fn verbosity(request: &Request) -> Response {
    if matches!(request.method.as_str(), "GET" | "HEAD") {
        let level = logging::level().map_or_else(String::new, |level| level.to_string());
        return Response::text(200, &format!("{level}\n"));
    }
    if request.method != "PUT" {
        return Response::text(406, "unsupported http method");
    }
    let text = String::from_utf8_lossy(&request.body).into_owned();
    let Ok(level) = text.parse::<u32>() else {
        let why = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
        return Response::text(400, &why);
    };
    let level = u8::try_from(level).unwrap_or(u8::MAX);
    // Until the next reload.
    logging::set_level(logging::level_of(level));
    log::info!("set the log verbosity to {level}");
    let done = format!("successfully set klog.logging.verbosity to {text}");
    Response::text(200, &done)
}

pub(super) fn add_health(pages: &Pages, health: &Arc<Health>) {
    for (probe, about) in [
        (Probe::Healthz, "ok while the controller makes progress"),
        (Probe::Livez, "ok unless a restart would help"),
        (Probe::Readyz, "ok if this daemon could lead"),
    ] {
        let shared = Arc::clone(health);
        let about = format!("{about}; ?verbose lists the checks");
        pages.page(&format!("/{}", probe.name()), &about, move |request| {
            all(&shared, probe, request)
        });
        let shared = Arc::clone(health);
        let prefix = format!("/{}/", probe.name());
        let prefix_length = prefix.len();
        let form = format!("{prefix}CHECK");
        let about = "one check, with the reason why it fails";
        pages.tree(&prefix, &form, about, move |request| {
            one(&shared, probe, &request.path[prefix_length..])
        });
    }
    let about = "the results of the health checks, for Prometheus";
    pages.page("/metrics/slis", about, |request| {
        if request.method == "DELETE" {
            metrics::global().healthchecks.reset();
            return Response::text(200, "metrics reset\n");
        }
        Response::text(200, &metrics::global().render_slis())
            .with_content_type(metrics::CONTENT_TYPE)
    });
}

/// All checks in one response: `ok`, or the failed checks. The page withholds the reasons, because
/// any client may read it; the log and the pages of single checks have them.
fn all(health: &Health, probe: Probe, request: &Request) -> Response {
    let excluded: Vec<&str> = request.query_values("exclude").collect();
    let checks = health.ask(probe, |name| excluded.contains(&name));
    let (mut text, mut reasons) = (String::new(), String::new());
    for check in &checks {
        let name = &check.name;
        // Writing to a string cannot fail.
        match &check.finding {
            None => writeln!(text, "[+]{name} excluded: ok"),
            Some(Ok(())) => writeln!(text, "[+]{name} ok"),
            Some(Err(why)) => {
                write!(reasons, "; {name}: {why}").unwrap_or_default();
                writeln!(
                    text,
                    "[-]{name} failed: reason withheld (log in, or see the log)"
                )
            }
        }
        .unwrap_or_default();
    }
    let unknown = excluded
        .iter()
        .filter(|name| checks.iter().all(|check| check.name != **name));
    let mut unknown: Vec<String> = unknown.map(|name| format!("{name:?}")).collect();
    unknown.sort();
    unknown.dedup();
    if !unknown.is_empty() {
        let unknown = unknown.join(",");
        let warning = "warn: some health checks cannot be excluded: no matches for";
        writeln!(text, "{warning} {unknown}").unwrap_or_default();
    }
    let page = probe.name();
    if !reasons.is_empty() {
        log::info!("{page} check failed{reasons}");
        return Response::text(500, &format!("{text}{page} check failed\n"));
    }
    if request.query.iter().any(|(name, _)| name == "verbose") {
        return Response::text(200, &format!("{text}{page} check passed\n"));
    }
    Response::text(200, "ok")
}

/// One check, with its failure's reason.
fn one(health: &Health, probe: Probe, name: &str) -> Response {
    match health.ask_one(probe, name) {
        None => Response::text(404, "404 page not found\n"),
        Some(Ok(())) => Response::text(200, "ok"),
        Some(Err(why)) => Response::text(500, &format!("internal server error: {why}\n")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::add_health;
    use crate::http_server::Request;
    use crate::serving::Pages;
    use crate::telemetry::{Health, Probe};

    #[track_caller]
    fn check(path: &str, query: &[(&str, &str)], code: u16, expected: &str) {
        let health = Arc::new(Health::default());
        health.add("good", &[Probe::Healthz, Probe::Livez], || Ok(()));
        health.add("bad", &[Probe::Healthz], || Err("it is stuck".to_owned()));
        let pages = Pages::default();
        add_health(&pages, &health);
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let response = pages.answer(&Request {
            method: "GET".to_owned(),
            path: path.to_owned(),
            query: query.iter().map(owned).collect(),
            ..Request::default()
        });
        assert_eq!(response.code, code, "{path}");
        let body = response.body.read().expect("a whole response");
        assert_eq!(String::from_utf8_lossy(&body), expected, "{path}");
    }

    #[test]
    fn checks_respond_with_upstreams_texts() {
        check("/livez", &[], 200, "ok");
        check(
            "/livez",
            &[("verbose", "")],
            200,
            "[+]good ok\nlivez check passed\n",
        );
        check("/readyz", &[("verbose", "1")], 200, "readyz check passed\n");
        let failed = "[+]good ok\n[-]bad failed: reason withheld (log in, or see the log)\n\
                      healthz check failed\n";
        check("/healthz", &[], 500, failed);
        check("/healthz", &[("exclude", "bad")], 200, "ok");
        let excluded = "[+]good ok\n[+]bad excluded: ok\nwarn: some health checks cannot be \
                        excluded: no matches for \"a\",\"b\"\nhealthz check passed\n";
        let query = [
            ("exclude", "bad"),
            ("exclude", "b"),
            ("exclude", "a"),
            ("verbose", ""),
        ];
        check("/healthz", &query, 200, excluded);
        check("/healthz/good", &[], 200, "ok");
        check(
            "/healthz/bad",
            &[],
            500,
            "internal server error: it is stuck\n",
        );
        check("/livez/bad", &[], 404, "404 page not found\n");
        check("/healthz/", &[], 404, "404 page not found\n");
    }
}
