//! `/debug/threads`: the activity of every thread. Also renders pages that people and programs both
//! read.

use serde::Serialize;

use super::Pages;
use crate::http_server::{Request, Response};
use crate::stdx::escape::escaped_json;
use crate::telemetry::threads::ThreadReport;

/// Adds the threads page.
pub fn add_pages(pages: &Pages) {
    let about = "all threads and what they work on";
    pages.page(
        "/debug/threads",
        about,
        |request| match ThreadReport::take() {
            Ok(report) => shown(request, &report, || report.text()),
            Err(error) => Response::text(500, &format!("the threads cannot be listed: {error}\n")),
        },
    );
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
    use super::{Pages, add_pages};
    use crate::http_server::Request;

    #[test]
    fn threads_are_shown_as_text_or_as_json() {
        let pages = Pages::default();
        add_pages(&pages);
        let mut request = Request {
            path: "/debug/threads".to_owned(),
            ..Request::default()
        };
        let response = pages.answer(&request);
        assert!(response.content_type.starts_with("text/plain"));
        let text = response.body.read().expect("a whole response");
        assert!(String::from_utf8(text).expect("text").contains("WORKS ON"));
        request.query.push(("format".to_owned(), "json".to_owned()));
        let json = pages
            .answer(&request)
            .body
            .read()
            .expect("a whole response");
        let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        assert!(json["threads"][0]["tid"].is_i64());
    }
}
