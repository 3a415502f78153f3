//! The request and response types of `http_server`, and how a request maps to the API: the parts of
//! its path, and its verb.

pub use crate::http_server::{
    ChunkStream, Handler, Next, Request as ApiRequest, Response, ResponseBody,
};

pub trait ApiCall {
    /// True if the API server would serve a watch: for collections only.
    fn is_watch(&self) -> bool;

    /// The API resource that the path names; `None` for other paths, such as `/healthz`.
    fn target(&self) -> Option<Target>;

    /// The verb in RBAC terms: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or
    /// `deletecollection`; `""` for any other method.
    fn verb(&self) -> &'static str;

    /// The resource in RBAC terms, such as `pods` or `replicasets/status`; empty for paths outside
    /// the API.
    fn resource(&self) -> String;
}

impl ApiCall for ApiRequest {
    fn is_watch(&self) -> bool {
        let is_named = || self.target().is_none_or(|target| target.name.is_some());
        self.method == "GET" && is_true(self.query_value("watch")) && !is_named()
    }

    fn target(&self) -> Option<Target> {
        Target::parse(&self.path)
    }

    fn verb(&self) -> &'static str {
        let named = self.target().is_some_and(|target| target.name.is_some());
        match self.method.as_str() {
            "GET" if named => "get",
            "GET" if self.is_watch() => "watch",
            "GET" => "list",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" if named => "delete",
            "DELETE" => "deletecollection",
            _ => "",
        }
    }

    fn resource(&self) -> String {
        self.target()
            .map(|target| target.rbac_resource())
            .unwrap_or_default()
    }
}

/// True for the query values that the API server parses as true.
pub(crate) fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// The parts of a path under `/api/v1` or `/apis/GROUP/VERSION`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The API group; empty for the core group.
    pub group: String,
    pub version: String,
    /// The namespace, if the path has one; the path of a Namespace object itself has none.
    pub namespace: Option<String>,
    pub resource: String,
    /// The object's name; `None` for the whole collection.
    pub name: Option<String>,
    /// The subresource, such as `status`.
    pub subresource: Option<String>,
}

impl Target {
    /// Parses `path`; `None` if it names no resource.
    pub fn parse(path: &str) -> Option<Self> {
        let mut segments = path.trim_matches('/').split('/');
        let group = match segments.next()? {
            "api" => "",
            "apis" => segments.next()?,
            _ => return None,
        };
        let version = segments.next()?;
        let rest: Vec<&str> = segments.collect();
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, rest @ ..] if names_contents(rest) => {
                (Some((*namespace).to_owned()), rest)
            }
            rest => (None, rest),
        };
        let text = |at: usize| rest.get(at).map(|segment| (*segment).to_owned());
        if rest.len() > 3 || rest.iter().any(|segment| segment.is_empty()) {
            return None;
        }
        Some(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            namespace,
            resource: text(0)?,
            name: text(1),
            subresource: text(2),
        })
    }

    /// The resource in RBAC terms: `replicasets/status`.
    pub fn rbac_resource(&self) -> String {
        match &self.subresource {
            Some(subresource) => format!("{}/{subresource}", self.resource),
            None => self.resource.clone(),
        }
    }
}

/// True if the segments after `namespaces/NAME/` name a resource in the namespace, false if a
/// subresource of the namespace itself.
fn names_contents(rest: &[&str]) -> bool {
    !rest.is_empty() && !matches!(rest, ["status" | "finalize"])
}

#[cfg(test)]
mod tests {
    use super::Target;

    #[track_caller]
    fn check(path: &str, expected: Option<(&str, &str, &str, &str)>) {
        let target = Target::parse(path);
        let found = target.as_ref().map(|t| {
            (
                t.group.clone(),
                t.namespace.clone().unwrap_or_default(),
                t.rbac_resource(),
                t.name.clone().unwrap_or_default(),
            )
        });
        let expected =
            expected.map(|(a, b, c, d)| (a.to_owned(), b.to_owned(), c.to_owned(), d.to_owned()));
        assert_eq!(found, expected, "{path}");
    }

    #[test]
    fn paths_of_every_shape_parse() {
        check("/api/v1/pods", Some(("", "", "pods", "")));
        check("/api/v1/namespaces", Some(("", "", "namespaces", "")));
        check("/api/v1/namespaces/a", Some(("", "", "namespaces", "a")));
        check(
            "/api/v1/namespaces/a/finalize",
            Some(("", "", "namespaces/finalize", "a")),
        );
        check("/api/v1/namespaces/a/pods/p", Some(("", "a", "pods", "p")));
        check(
            "/apis/apps/v1/namespaces/a/replicasets/r/status",
            Some(("apps", "a", "replicasets/status", "r")),
        );
        for path in [
            "/healthz",
            "/api",
            "/apis/apps",
            "/apis/apps/v1",
            "/api/v1/pods/a/b/c",
        ] {
            check(path, None);
        }
    }
}
