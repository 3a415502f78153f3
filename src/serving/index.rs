//! The pages `/` and `/debug/`: the daemon's status and links to every page, as text, JSON, or HTML
//! for a browser.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use serde::Serialize;

use super::debug::shown;
use super::gate::sanitized;
use super::pages::{Entry, Facts, Pages};
use crate::http_server::{Request, Response};

/// Adds both pages.
pub(super) fn add(pages: &Arc<Pages>) {
    for (prefix, about) in [("/", "this list"), ("/debug/", "the pages for debugging")] {
        // Weak, since the pages hold this one.
        let listed = Arc::downgrade(pages);
        pages.page(prefix, about, move |request| {
            let Some(pages) = listed.upgrade() else {
                return Response::text(503, "the daemon is stopping\n");
            };
            let status = if prefix == "/" {
                pages.status()
            } else {
                Vec::new()
            };
            index(request, &status, &pages.index(prefix))
        });
    }
}

fn index(request: &Request, status: &Facts, entries: &[Entry]) -> Response {
    #[derive(Serialize)]
    struct Index<'a> {
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        status: BTreeMap<&'a str, &'a str>,
        pages: &'a [Entry],
    }
    let is_browser =
        request.query_value("format").is_empty() && request.header("accept").contains("text/html");
    if is_browser {
        return Response::text(200, &html(status, entries))
            .with_content_type("text/html; charset=utf-8")
            .with_header("content-security-policy", "default-src 'none'");
    }
    let facts = status.iter();
    let index = Index {
        status: facts.map(|(name, value)| (&**name, &**value)).collect(),
        pages: entries,
    };
    shown(request, &index, || text(status, entries))
}

/// One line for each fact.
pub(super) fn lines(status: &Facts) -> String {
    let lines = status
        .iter()
        .map(|(name, value)| format!("{name}: {value}\n"));
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

/// No entry holds text from outside; facts may.
fn html(status: &Facts, entries: &[Entry]) -> String {
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
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <title>replicaset-controller</title>\n<pre>{status}</pre>\n<table>\n{rows}</table>\n\
         </html>\n"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::add;
    use crate::http_server::{Request, Response};
    use crate::serving::Pages;

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

    fn body(pages: &Pages, path: &str, headers: &[(&str, &str)], query: &[(&str, &str)]) -> String {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let response = pages.answer(&Request {
            path: path.to_owned(),
            headers: headers.iter().map(owned).collect(),
            query: query.iter().map(owned).collect(),
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
        assert_eq!(body(&pages, "/debug/", &[], &[]), debug);
        let all = body(&pages, "/", &[], &[]);
        assert!(all.contains("/metrics  ") && all.contains(debug), "{all}");
        pages.hide("/debug/");
        let rest = "/          this list\n/metrics   numbers\n";
        assert_eq!(body(&pages, "/", &[], &[]), rest);
        assert_eq!(body(&pages, "/debug/", &[], &[]), "404 page not found\n");
    }

    #[test]
    fn the_status_is_above_the_list() {
        let pages = pages();
        pages.set_status(|| vec![("Role".to_owned(), "<leading>".to_owned())]);
        let text = body(&pages, "/", &[], &[]);
        assert!(text.starts_with("Role: <leading>\n\n/ "), "{text}");
        let html = body(&pages, "/", &[("accept", "text/html")], &[]);
        assert!(
            html.contains("<pre>Role: &lt;leading&gt;\n</pre>"),
            "{html}"
        );
        let json = body(&pages, "/", &[], &[("format", "json")]);
        assert!(
            json.starts_with(r#"{"status":{"Role":"<leading>"},"#),
            "{json}"
        );
    }

    #[test]
    fn a_browser_gets_links_and_a_program_json() {
        let pages = pages();
        let html = body(&pages, "/", &[("accept", "text/html,*/*;q=0.8")], &[]);
        assert!(html.contains("<a href=\"/metrics\">/metrics</a>"), "{html}");
        assert!(
            html.contains("<td>/debug/replicasets/NAMESPACE/NAME</td>"),
            "{html}"
        );
        let json = body(&pages, "/debug/", &[], &[("format", "json")]);
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let form = "/debug/replicasets/NAMESPACE/NAME";
        let report = serde_json::json!({"path": form, "about": "a report"});
        assert_eq!(json["pages"][1], report);
    }
}
