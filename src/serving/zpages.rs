//! The pages `/statusz` and `/flagz` (apiserver `pkg/server/statusz`, `pkg/server/flagz`),
//! `/configz` (component-base `configz`) and `/debug/flags/v` (apiserver
//! `pkg/server/routes/flags.go`).
//!
//! DIFFERS: the text forms always use the delimiter `: `. Upstream picks a random one, so that no
//! program parses the text. YAML and CBOR are not offered.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::index::lines;
use super::pages::Pages;
use crate::api::Status;
use crate::http_server::{Request, Response};
use crate::stdx::build;

/// The component name on these pages.
const COMPONENT: &str = "replicaset-controller";

/// The first line of both text forms.
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no \
                       formatting compatibility guarantees and is for debugging purposes only.";

/// The API group of both structured forms.
const GROUP: &str = "config.k8s.io";

/// Versions of the structured forms; the first is deprecated.
const VERSIONS: [&str; 2] = ["v1alpha1", "v1beta1"];

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
        flagz(&flags, request)
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
        statusz(&pages, started, request)
    });
}

fn statusz(pages: &Pages, started: Timestamp, request: &Request) -> Response {
    let paths = pages.folders();
    let uptime = Timestamp::now().duration_since(started).as_secs().max(0);
    let (version, follows) = (build::VERSION, build::KUBERNETES);
    match Form::requested_by(request, "Statusz") {
        Err(response) => response,
        Ok(Form::Text) => {
            let (hours, minutes, seconds) = (uptime / 3600, uptime / 60 % 60, uptime % 60);
            let started = started.strftime("%a %b %e %H:%M:%S UTC %Y");
            let paths = paths.join(" ");
            let status = lines(&pages.status());
            Response::text(
                200,
                &format!(
                    "\n{COMPONENT} statusz\n{WARNING}\n\nStarted: {started}\n\
                     Up: {hours} hr {minutes:02} min {seconds:02} sec\n\
                     Binary version: {version}\nEmulation version: {follows}\n\
                     Paths: {paths}\n{status}"
                ),
            )
        }
        Ok(Form::Json(form)) => Response::object(
            200,
            &json!({
                "kind": "Statusz",
                "apiVersion": format!("{GROUP}/{form}"),
                "metadata": {"name": COMPONENT},
                "startTime": started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                "uptimeSeconds": uptime,
                "goVersion": "",
                "binaryVersion": version,
                "emulationVersion": follows,
                "paths": paths,
            }),
        ),
    }
}

fn flagz(flags: &BTreeMap<String, String>, request: &Request) -> Response {
    match Form::requested_by(request, "Flagz") {
        Err(response) => response,
        Ok(Form::Text) => {
            let mut text = format!("\n{COMPONENT} flagz\n{WARNING}\n");
            for (name, value) in flags {
                // Writing to a string cannot fail.
                writeln!(text, "{name}: {value}").unwrap_or_default();
            }
            Response::text(200, &text)
        }
        Ok(Form::Json(form)) => Response::object(
            200,
            &json!({
                "kind": "Flagz",
                "apiVersion": format!("{GROUP}/{form}"),
                "metadata": {"name": COMPONENT},
                "flags": flags,
            }),
        ),
    }
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

/// The requested form of a page.
enum Form {
    Text,
    /// With the version of its schema.
    Json(&'static str),
}

impl Form {
    /// Picks the first accepted media type that the page offers. JSON must name group, version and
    /// kind, because clients rely on its schema; the text form promises nothing.
    fn requested_by(request: &Request, kind: &str) -> Result<Self, Response> {
        let accept = request.header("accept");
        if accept.trim().is_empty() {
            return Ok(Self::Text);
        }
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            match parts.next() {
                Some("text/plain" | "text/*" | "*/*") => return Ok(Self::Text),
                Some("application/json") => {
                    let has = |parameter: &str, wanted: &str| {
                        let mut parts = range.split(';').map(str::trim);
                        parts.any(|part| part.split_once('=') == Some((parameter, wanted)))
                    };
                    let version = VERSIONS.into_iter().find(|version| has("v", version));
                    if let Some(version) = version
                        && has("g", GROUP)
                        && has("as", kind)
                    {
                        return Ok(Self::Json(version));
                    }
                }
                _ => {}
            }
        }
        let offered = format!(
            "only the following media types are accepted: text/plain, \
             application/json;g={GROUP};v={};as={kind}",
            VERSIONS[1]
        );
        Err(Response::status(&Status::new(
            406,
            "NotAcceptable",
            offered,
        )))
    }
}
