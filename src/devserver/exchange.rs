//! The request and response types of `http_server`, and how a request maps to the API.

use super::target::Target;

pub use crate::http_server::{
    ChunkStream, Handler, Next, Request as ApiRequest, Response, ResponseBody,
};

/// The API view of a request.
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
pub(super) fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}
