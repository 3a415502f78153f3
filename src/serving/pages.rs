//! Which page answers under which path. Filled at start by whoever has something to show, asked on
//! the threads of the connections.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use crate::http_server::{Request, Response};
use crate::stdx::activity;
use crate::stdx::thread::catch_panic;

type Page = Arc<dyn Fn(&Request) -> Response + Send + Sync>;

/// The pages of the daemon, by path. Shared by `Arc`; pages can be added at any time.
///
/// A page takes a request and gives its answer. Who may see it has been decided before; it may block
/// for a moment, which holds up its own connection only, but never for an API server. One that panics
/// is answered for with code 500.
#[derive(Default)]
pub struct Pages(RwLock<State>);

#[derive(Default)]
struct State {
    exact: BTreeMap<String, Page>,
    /// By the prefix that their paths begin with.
    trees: BTreeMap<String, Page>,
    /// Prefixes of paths that are as if they were not there.
    hidden: Vec<String>,
}

impl Pages {
    /// Adds the page of one path, such as `/debug/threads`. The last one to take a path has it.
    pub fn page(&self, path: &str, page: impl Fn(&Request) -> Response + Send + Sync + 'static) {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        state.exact.insert(path.to_owned(), Arc::new(page));
    }

    /// Adds the page of all paths that begin with `prefix`, such as `/debug/replicasets/`, unless a
    /// page or a longer prefix has them. What follows the prefix is in [`Request::path`].
    pub fn tree(&self, prefix: &str, page: impl Fn(&Request) -> Response + Send + Sync + 'static) {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        state.trees.insert(prefix.to_owned(), Arc::new(page));
    }

    /// From now on all paths that begin with `prefix` are as if they were not there.
    pub fn hide(&self, prefix: &str) {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        state.hidden.push(prefix.to_owned());
    }

    /// The first parts of all paths, such as `/debug`, in order.
    pub fn folders(&self) -> Vec<String> {
        let state = self.lock();
        let all = state.exact.keys().chain(state.trees.keys());
        let is_hidden = |path: &String| state.hidden.iter().any(|it| path.starts_with(it));
        let all = all.filter(|path| !is_hidden(path));
        let folder = |path: &String| path.split('/').nth(1).map(|first| format!("/{first}"));
        let mut folders: Vec<String> = all.filter_map(folder).collect();
        folders.sort();
        folders.dedup();
        folders
    }

    /// The answer of the page that has the request's path, or that there is none.
    pub fn answer(&self, request: &Request) -> Response {
        let Some(page) = self.find(&request.path) else {
            return Response::text(404, "404 page not found\n");
        };
        let _page = activity::enter("answers", &request.path);
        catch_panic(|| page(request)).unwrap_or_else(|message| {
            log::error!(error:% = message; "the page {} panicked", request.path);
            Response::text(500, "This page panicked. Look in the log for details.\n")
        })
    }

    /// Cloned, so that no page is made under the lock.
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
        String::from_utf8(body.expect("a whole answer")).expect("text")
    }

    #[test]
    fn the_page_then_the_longest_prefix_has_the_path() {
        let pages = Pages::default();
        pages.page("/debug/threads", |_| Response::text(200, "threads"));
        pages.tree("/debug/", |_| Response::text(200, "index"));
        pages.tree("/debug/replicasets/", |request| {
            Response::text(200, &request.path["/debug/replicasets/".len()..])
        });
        pages.page("/bad", |_| panic!("on purpose"));
        for (path, expected) in [
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
