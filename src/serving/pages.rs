//! Which page answers under which path. Filled once at start by whoever has something to show, asked
//! on the threads of the connections.

use std::collections::BTreeMap;
use std::fmt;

use crate::http_server::{Answer, Request};
use crate::stdx::thread::catch_panic;

type Page = Box<dyn Fn(&Request) -> Answer + Send + Sync>;

/// The pages of the daemon, by path.
///
/// A page takes a request and gives its answer. Who may see it has been decided before; it may block
/// for a moment, which holds up its own connection only, but never for an API server. One that panics
/// is answered for with code 500.
#[derive(Default)]
pub struct Pages {
    exact: BTreeMap<String, Page>,
    /// By the prefix that their paths begin with.
    trees: BTreeMap<String, Page>,
}

impl Pages {
    /// Adds the page of one path, such as `/debug/threads`. The last one to take a path has it.
    pub fn page(&mut self, path: &str, page: impl Fn(&Request) -> Answer + Send + Sync + 'static) {
        self.exact.insert(path.to_owned(), Box::new(page));
    }

    /// Adds the page of all paths that begin with `prefix`, such as `/debug/replicasets/`, unless a
    /// page or a longer prefix has them. What follows the prefix is in [`Request::path`].
    pub fn tree(
        &mut self,
        prefix: &str,
        page: impl Fn(&Request) -> Answer + Send + Sync + 'static,
    ) {
        self.trees.insert(prefix.to_owned(), Box::new(page));
    }

    /// The first parts of all paths, such as `/debug`, in order.
    pub fn folders(&self) -> Vec<String> {
        let all = self.exact.keys().chain(self.trees.keys());
        let folder = |path: &String| path.split('/').nth(1).map(|first| format!("/{first}"));
        let mut folders: Vec<String> = all.filter_map(folder).collect();
        folders.sort();
        folders.dedup();
        folders
    }

    /// The answer of the page that has the request's path, or that there is none.
    pub fn answer(&self, request: &Request) -> Answer {
        let Some(page) = self.find(&request.path) else {
            return Answer::text(404, "404 page not found\n");
        };
        catch_panic(|| page(request)).unwrap_or_else(|message| {
            log::error!("the page {} panicked: {message}", request.path);
            Answer::text(500, "This page panicked. Look in the log for details.\n")
        })
    }

    fn find(&self, path: &str) -> Option<&Page> {
        let tree = || {
            let matching = self.trees.iter();
            let mut matching = matching.filter(|(prefix, _)| path.starts_with(prefix.as_str()));
            matching.next_back().map(|(_, page)| page)
        };
        self.exact.get(path).or_else(tree)
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages")
            .field("exact", &self.exact.keys())
            .field("trees", &self.trees.keys())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::Pages;
    use crate::http_server::{Answer, Request};

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
        let mut pages = Pages::default();
        pages.page("/debug/threads", |_| Answer::text(200, "threads"));
        pages.tree("/debug/", |_| Answer::text(200, "index"));
        pages.tree("/debug/replicasets/", |request| {
            Answer::text(200, &request.path["/debug/replicasets/".len()..])
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
    }
}
