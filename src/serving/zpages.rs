//! The pages `/statusz` and `/flagz` (apiserver `pkg/server/statusz`, `pkg/server/flagz`),
//! `/configz` (component-base `configz`) and `/debug/flags/v` (apiserver
//! `pkg/server/routes/flags.go`).
//!
//! DIFFERS: `/statusz` and `/flagz` are plain text with the delimiter `: `. Upstream picks a random
//! one, and offers structured forms as well.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::index::lines;
use super::pages::Pages;
use crate::api::Status;
use crate::http_server::{Request, Response};
use crate::stdx::build;

/// The component name on these pages.
const COMPONENT: &str = "replicaset-controller";

/// The first line of both pages.
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no \
                       formatting compatibility guarantees and is for debugging purposes only.";

/// The content of these pages.
#[derive(Debug)]
pub struct ZPages {
    /// Flags and their effective values, without the dashes. No flag holds a secret.
    pub flags: BTreeMap<String, String>,
    /// The effective configuration by section.
    pub config: Value,
    /// The log levels as text.
    pub levels: fn() -> String,
    /// Sets the log verbosity on klog's `--v` scale.
    pub set_verbosity: fn(u8),
}

/// Adds the pages.
pub(super) fn add(pages: &Arc<Pages>, content: ZPages, started: Timestamp) {
    let config = content.config;
    pages.page("/configz", "the configuration as JSON", move |_| {
        Response::object(200, &config)
    });
    let flags = content.flags;
    pages.page("/flagz", "all flags and their values", move |request| {
        plain(request, || flagz(&flags))
    });
    let (levels, set) = (content.levels, content.set_verbosity);
    let about = "the log's level; PUT sets its verbosity, over HTTPS only";
    pages.page("/debug/flags/v", about, move |request| {
        verbosity(levels, set, request)
    });
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
fn verbosity(levels: fn() -> String, set: fn(u8), request: &Request) -> Response {
    if matches!(request.method.as_str(), "GET" | "HEAD") {
        return Response::text(200, &format!("{}\n", levels()));
    }
    if request.method != "PUT" {
        return Response::text(406, "unsupported http method");
    }
    let text = String::from_utf8_lossy(&request.body).into_owned();
    let Ok(level) = text.parse::<u32>() else {
        let why = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
        return Response::text(400, &why);
    };
    set(u8::try_from(level).unwrap_or(u8::MAX));
    let done = format!("successfully set klog.logging.verbosity to {text}");
    Response::text(200, &done)
}
