//! The registry of pages by path. Rooms add their pages at startup, and connection threads serve
//! them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use serde::Serialize;

use crate::http_server::{Request, Response};
use crate::stdx::activity;
use crate::stdx::thread::catch_panic;

type Page = Arc<dyn Fn(&Request) -> Response + Send + Sync>;

/// The daemon's pages by path. Shared by `Arc`; rooms can add pages at any time.
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
    /// Prefixes of paths that return 404.
    hidden: Vec<String>,
    status: Option<StatusSource>,
}

/// What the daemon is doing, each with its name.
pub type Facts = Vec<(String, String)>;

type StatusSource = Arc<dyn Fn() -> Facts + Send + Sync>;

/// One line of the index.
#[derive(Serialize)]
pub(super) struct Entry {
    /// The path, or the form of several, such as `/debug/replicasets/NAMESPACE/NAME`.
    pub(super) path: String,
    /// What the page shows.
    pub(super) about: String,
    /// True for the form of several paths.
    #[serde(skip)]
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
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
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
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        state.trees.insert(prefix.to_owned(), Arc::new(page));
        if !form.is_empty() {
            state.index.insert(form.to_owned(), about.to_owned());
        }
    }

    /// Sets what `/` and `/statusz` show of the daemon's state. It must not block.
    pub fn set_status(&self, status: impl Fn() -> Facts + Send + Sync + 'static) {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        state.status = Some(Arc::new(status));
    }

    pub(super) fn status(&self) -> Facts {
        let source = self.lock().status.clone();
        source.map_or_else(Vec::new, |source| source())
    }

    /// Makes all paths below `prefix` return 404.
    pub fn hide(&self, prefix: &str) {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        state.hidden.push(prefix.to_owned());
    }

    /// The paths of all pages below `prefix`, sorted, and what they show.
    pub(super) fn index(&self, prefix: &str) -> Vec<Entry> {
        let state = self.lock();
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
        let state = self.lock();
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

    /// True if there is a page at `path`.
    pub(super) fn has(&self, path: &str) -> bool {
        self.find(path).is_some()
    }

    /// Serves the page at the request's path, or returns 404.
    pub fn answer(&self, request: &Request) -> Response {
        let Some(page) = self.find(&request.path) else {
            return Response::text(404, "404 page not found\n");
        };
        let _page = activity::enter("answers", &request.path);
        // An uncaught panic on a connection's thread would stop the daemon.
        catch_panic(|| page(request)).unwrap_or_else(|message| {
            log::error!(error:% = message; "the page {} panicked", request.path);
            Response::text(500, "This page panicked. Look in the log for details.\n")
        })
    }

    /// Clones the page, so that no page renders under the lock.
    fn find(&self, path: &str) -> Option<Page> {
        let state = self.lock();
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

    fn lock(&self) -> RwLockReadGuard<'_, State> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Pages")
            .field("exact", &state.exact.keys())
            .field("trees", &state.trees.keys())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::Pages;
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
}
