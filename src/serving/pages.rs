//! The registry of pages by path. Modules add their pages at startup, and connection threads serve
//! them. `/` and `/debug/` list them as text, or as HTML for a browser, and `/debug/threads`
//! shows the activity of every thread.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use parking_lot::RwLock;
use serde::Serialize;

use super::gate::sanitized;
use crate::http_server::{Request, Response};
use crate::stdx::escape::{escaped, escaped_json};
use crate::stdx::thread;
use crate::stdx::thread::catch_panic;
use crate::telemetry::threads::ThreadReport;

type Page = Arc<dyn Fn(&Request) -> Response + Send + Sync>;

/// The daemon's pages by path. Shared by `Arc`; modules can add pages at any time.
///
/// A page takes a request and returns its response. The gate has authorized the request before. A
/// page may block its own connection for a moment, but never for an API server. A page that panics
/// returns code 500.
#[derive(Default)]
pub struct Pages(RwLock<State>);

#[derive(Default)]
struct State {
    exact: BTreeMap<String, Page>,
    /// Keyed by path prefix.
    trees: BTreeMap<String, Page>,
    /// What the pages show, by path or by the form of the paths below a prefix.
    index: BTreeMap<String, String>,
    hidden: Vec<String>,
    status: Option<StatusSource>,
    objects: Option<ObjectsSource>,
}

/// What the daemon is doing, each with its name.
pub type Facts = Vec<(String, String)>;

type StatusSource = Arc<dyn Fn() -> Facts + Send + Sync>;

type ObjectsSource = Arc<dyn Fn() -> String + Send + Sync>;

/// One line of the index.
pub(super) struct Entry {
    /// The path, or the form of several, such as `/debug/replicasets/NAMESPACE/NAME`.
    pub(super) path: String,
    pub(super) about: String,
    pub(super) is_form: bool,
}

impl Pages {
    /// Adds the page of one path, such as `/debug/threads`, or replaces it. The index says what it
    /// shows: `about`.
    pub fn page(
        &self,
        path: &str,
        about: &str,
        page: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) {
        let mut state = self.0.write();
        state.exact.insert(path.to_owned(), Arc::new(page));
        state.index.insert(path.to_owned(), about.to_owned());
    }

    /// Adds the page of all paths below `prefix`, such as `/debug/replicasets/`. Exact pages and
    /// longer prefixes take precedence. [`Request::path`] holds the whole path. The index has
    /// `form`, such as `/debug/replicasets/NAMESPACE/NAME`, and what these paths show; nothing
    /// without a form.
    pub fn tree(
        &self,
        prefix: &str,
        form: &str,
        about: &str,
        page: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) {
        let mut state = self.0.write();
        state.trees.insert(prefix.to_owned(), Arc::new(page));
        if !form.is_empty() {
            state.index.insert(form.to_owned(), about.to_owned());
        }
    }

    /// Sets what `/` and `/statusz` show of the daemon's state. It must not block.
    pub fn set_status(&self, status: impl Fn() -> Facts + Send + Sync + 'static) {
        let mut state = self.0.write();
        state.status = Some(Arc::new(status));
    }

    /// Sets what a browser sees at `/` of the controlled objects, in HTML, unless `/debug/` is
    /// hidden.
    pub fn set_objects(&self, objects: impl Fn() -> String + Send + Sync + 'static) {
        let mut state = self.0.write();
        state.objects = Some(Arc::new(objects));
    }

    fn objects(&self) -> String {
        let source = self.0.read().objects.clone();
        match source.filter(|_| self.has("/debug/")) {
            Some(source) => source(),
            None => String::new(),
        }
    }

    pub(super) fn status(&self) -> Facts {
        let source = self.0.read().status.clone();
        source.map_or_else(Vec::new, |source| source())
    }

    /// Makes all paths below `prefix` return 404.
    pub fn hide(&self, prefix: &str) {
        let mut state = self.0.write();
        state.hidden.push(prefix.to_owned());
    }

    /// The paths of all pages below `prefix`, sorted, and what they show.
    pub(super) fn index(&self, prefix: &str) -> Vec<Entry> {
        let state = self.0.read();
        let is_shown = |path: &str| {
            path.starts_with(prefix) && !state.hidden.iter().any(|it| path.starts_with(it))
        };
        let shown = state.index.iter().filter(|(path, _)| is_shown(path));
        let entry = |(path, about): (&String, &String)| Entry {
            path: path.clone(),
            about: about.clone(),
            is_form: !state.exact.contains_key(path),
        };
        shown.map(entry).collect()
    }

    /// The first segments of all paths, such as `/debug`, sorted.
    pub fn folders(&self) -> Vec<String> {
        let state = self.0.read();
        let all = state.exact.keys().chain(state.trees.keys());
        let all = all.filter(|path| *path != "/");
        let is_hidden = |path: &String| state.hidden.iter().any(|it| path.starts_with(it));
        let all = all.filter(|path| !is_hidden(path));
        let folder = |path: &String| path.split('/').nth(1).map(|first| format!("/{first}"));
        let mut folders: Vec<String> = all.filter_map(folder).collect();
        folders.sort();
        folders.dedup();
        folders
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.find(path).is_some()
    }

    pub fn answer(&self, request: &Request) -> Response {
        let Some(page) = self.find(&request.path) else {
            return Response::text(404, "404 page not found\n");
        };
        let _page = thread::enter("answers", &request.path);
        // An uncaught panic on a connection's thread would stop the daemon.
        catch_panic(|| page(request)).unwrap_or_else(|message| {
            log::error!(error:% = message; "the page {} panicked", request.path);
            Response::text(500, "This page panicked. Look in the log for details.\n")
        })
    }

    /// Clones the page, so that no page renders under the lock.
    fn find(&self, path: &str) -> Option<Page> {
        let state = self.0.read();
        if state.hidden.iter().any(|prefix| path.starts_with(prefix)) {
            return None;
        }
        let tree = || {
            let matching = state.trees.iter();
            let mut matching = matching.filter(|(prefix, _)| path.starts_with(prefix.as_str()));
            matching.next_back().map(|(_, page)| page)
        };
        state.exact.get(path).or_else(tree).cloned()
    }
}

pub(super) fn add(pages: &Arc<Pages>) {
    for (prefix, about) in [("/", "this list"), ("/debug/", "the pages for debugging")] {
        // Weak, since the pages hold this one.
        let listed = Arc::downgrade(pages);
        pages.page(prefix, about, move |request| {
            let Some(pages) = listed.upgrade() else {
                return Response::text(503, "the daemon is stopping\n");
            };
            let (status, objects) = match (prefix, is_for_browser(request)) {
                ("/", true) => (pages.status(), pages.objects()),
                ("/", false) => (pages.status(), String::new()),
                _ => Default::default(),
            };
            let entries = pages.index(prefix);
            if is_for_browser(request) {
                return browser_page(&html(&status, &objects, &entries));
            }
            Response::text(200, &text(&status, &entries))
        });
    }
}

fn is_for_browser(request: &Request) -> bool {
    request.query_value("format").is_empty() && request.header("accept").contains("text/html")
}

/// Nothing in the page runs or is loaded.
fn browser_page(html: &str) -> Response {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";
    Response::text(200, html)
        .with_content_type("text/html; charset=utf-8")
        .with_header("content-security-policy", policy)
}

/// One line for each fact.
pub(super) fn lines(status: &Facts) -> String {
    let lines = status
        .iter()
        .map(|(name, value)| format!("{name}: {}\n", escaped(value)));
    lines.collect()
}

fn text(status: &Facts, entries: &[Entry]) -> String {
    let width = entries.iter().map(|entry| entry.path.len()).max();
    let width = width.unwrap_or_default();
    let mut text = lines(status);
    if !text.is_empty() {
        text.push('\n');
    }
    for Entry { path, about, .. } in entries {
        // Writing to a string cannot fail.
        writeln!(text, "{path:width$}   {about}").unwrap_or_default();
    }
    text
}

/// How the page looks, in dark browsers too.
const STYLE: &str = "\
:root{color-scheme:light dark}
body{font:14px/1.4 system-ui,sans-serif;margin:1.5em}
table{border-collapse:collapse}
th,td{text-align:left;vertical-align:top;padding:.3em .8em;border-bottom:1px solid #8884}
th{font-size:11px}
pre{white-space:pre-wrap}
td p{margin:.2em 0 0;opacity:.7}
.objects td:nth-child(9){overflow-wrap:anywhere}
.objects td:nth-child(n+4):nth-child(-n+7){text-align:right}
";

/// No entry holds text from outside; facts may, and `objects` has escaped it.
fn html(status: &Facts, objects: &str, entries: &[Entry]) -> String {
    let status = sanitized(&lines(status));
    let mut rows = String::new();
    for entry in entries {
        let (path, about) = (&entry.path, &entry.about);
        let link = if entry.is_form {
            path.clone()
        } else {
            format!("<a href=\"{path}\">{path}</a>")
        };
        // Writing to a string cannot fail.
        writeln!(rows, "<tr><td>{link}</td><td>{about}</td></tr>").unwrap_or_default();
    }
    let refresh = match objects {
        "" => "",
        _ => "<meta http-equiv=\"refresh\" content=\"5\">\n",
    };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n{refresh}\
         <title>replicaset-controller</title>\n<style>\n{STYLE}</style>\n\
         <pre>{status}</pre>\n{objects}<h2>Pages</h2>\n<table>\n{rows}</table>\n</html>\n"
    )
}

pub fn add_pages(pages: &Pages) {
    let about = "all threads and what they work on";
    pages.page("/debug/threads", about, |_| match ThreadReport::take() {
        Ok(report) => Response::text(200, &report.text()),
        Err(error) => Response::text(500, &format!("the threads cannot be listed: {error}\n")),
    });
}

/// Renders JSON on `?format=json` or on an `Accept` header with JSON; text otherwise.
pub fn shown(request: &Request, value: &impl Serialize, text: impl FnOnce() -> String) -> Response {
    let wants_json = match request.query_value("format") {
        "" => request.header("accept").contains("application/json"),
        format => format == "json",
    };
    if wants_json {
        let json = serde_json::to_string(value).expect("JSON values have text keys");
        Response::json(200, escaped_json(&json).into_owned().into_bytes())
    } else {
        Response::text(200, &text())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Pages, add, add_pages};
    use crate::http_server::{Request, Response};

    fn body_of(pages: &Pages, path: &str) -> String {
        let request = Request {
            path: path.to_owned(),
            ..Request::default()
        };
        let body = pages.answer(&request).body.read();
        String::from_utf8(body.expect("a whole response")).expect("text")
    }

    #[test]
    fn an_exact_page_precedes_the_longest_prefix() {
        let pages = Pages::default();
        pages.page("/", "", |_| Response::text(200, "all"));
        pages.page("/debug/threads", "", |_| Response::text(200, "threads"));
        pages.tree("/debug/", "", "", |_| Response::text(200, "index"));
        pages.tree("/debug/replicasets/", "", "", |request| {
            Response::text(200, &request.path["/debug/replicasets/".len()..])
        });
        pages.page("/bad", "", |_| panic!("on purpose"));
        for (path, expected) in [
            ("/", "all"),
            ("/debug/threads", "threads"),
            ("/debug/else", "index"),
            ("/debug/replicasets/default/web", "default/web"),
            ("/debug", "404 page not found\n"),
            ("/bad", "This page panicked. Look in the log for details.\n"),
        ] {
            assert_eq!(body_of(&pages, path), expected, "{path}");
        }
        assert_eq!(pages.folders(), ["/bad", "/debug"]);
        pages.hide("/debug/");
        assert_eq!(body_of(&pages, "/debug/threads"), "404 page not found\n");
        assert_eq!(pages.folders(), ["/bad"]);
    }

    fn pages() -> Arc<Pages> {
        let pages = Arc::new(Pages::default());
        pages.page("/metrics", "numbers", |_| Response::text(200, ""));
        let form = "/debug/replicasets/NAMESPACE/NAME";
        pages.tree("/debug/replicasets/", form, "a report", |_| {
            Response::text(200, "")
        });
        pages.tree("/debug/hint/", "", "", |_| Response::text(404, "a hint"));
        add(&pages);
        pages
    }

    fn body(pages: &Pages, path: &str, headers: &[(&str, &str)]) -> String {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let response = pages.answer(&Request {
            path: path.to_owned(),
            headers: headers.iter().map(owned).collect(),
            ..Request::default()
        });
        let body = response.body.read().expect("a whole response");
        String::from_utf8(body).expect("text")
    }

    #[test]
    fn the_index_lists_every_page_that_is_not_hidden() {
        let pages = pages();
        let debug = "\
/debug/                             the pages for debugging
/debug/replicasets/NAMESPACE/NAME   a report
";
        assert_eq!(body(&pages, "/debug/", &[]), debug);
        let all = body(&pages, "/", &[]);
        assert!(all.contains("/metrics  ") && all.contains(debug), "{all}");
        pages.hide("/debug/");
        let rest = "/          this list\n/metrics   numbers\n";
        assert_eq!(body(&pages, "/", &[]), rest);
        assert_eq!(body(&pages, "/debug/", &[]), "404 page not found\n");
    }

    #[test]
    fn the_status_is_above_the_list() {
        let pages = pages();
        pages.set_status(|| vec![("Role".to_owned(), "<leading>\n".to_owned())]);
        let text = body(&pages, "/", &[]);
        assert!(text.starts_with("Role: <leading>\\n\n\n/ "), "{text}");
        let html = body(&pages, "/", &[("accept", "text/html")]);
        assert!(
            html.contains("<pre>Role: &lt;leading&gt;\\n\n</pre>"),
            "{html}"
        );
    }

    #[test]
    fn a_browser_gets_links() {
        let pages = pages();
        let html = body(&pages, "/", &[("accept", "text/html,*/*;q=0.8")]);
        assert!(html.contains("<a href=\"/metrics\">/metrics</a>"), "{html}");
        assert!(
            html.contains("<td>/debug/replicasets/NAMESPACE/NAME</td>"),
            "{html}"
        );
    }

    #[test]
    fn only_a_browser_gets_the_objects_and_asks_for_them_again() {
        let pages = pages();
        let refresh = "<meta http-equiv=\"refresh\"";
        let browser = [("accept", "text/html")];
        assert!(!body(&pages, "/", &browser).contains(refresh));
        pages.set_objects(|| "<h2>4 of 4</h2>\n".to_owned());
        let html = body(&pages, "/", &browser);
        assert!(
            html.contains("<h2>4 of 4</h2>") && html.contains(refresh),
            "{html}"
        );
        for other in [body(&pages, "/", &[]), body(&pages, "/debug/", &browser)] {
            assert!(!other.contains("4 of 4"), "{other}");
        }
        pages.hide("/debug/");
        let html = body(&pages, "/", &browser);
        assert!(
            !html.contains("4 of 4") && !html.contains(refresh),
            "{html}"
        );
    }

    #[test]
    fn threads_are_shown_as_text() {
        let pages = Pages::default();
        add_pages(&pages);
        let request = Request {
            path: "/debug/threads".to_owned(),
            ..Request::default()
        };
        let response = pages.answer(&request);
        assert!(response.content_type.starts_with("text/plain"));
        let text = response.body.read().expect("a whole response");
        assert!(String::from_utf8(text).expect("text").contains("WORKS ON"));
    }
}
