//! Requests and answers as `http_server` has them, and what of the API a request asks for.

use super::target::Target;

pub use crate::http_server::{
    ChannelStream, ChunkStream, Handler, Next, Request as ApiRequest, Response, ResponseBody,
};

/// What of the API a request asks for.
pub trait ApiCall {
    /// True if this asks for a watch, as the API server reads it: of a collection, that is.
    fn is_watch(&self) -> bool;

    /// What of the API the path names; `None` for paths outside it, such as `/healthz`.
    fn target(&self) -> Option<Target>;

    /// The verb as RBAC rules have it: `get`, `list`, `watch`, `create`, `update`, `patch`,
    /// `delete` or `deletecollection`; `""` for any other method.
    fn verb(&self) -> &'static str;

    /// The resource as RBAC rules have it, such as `pods` or `replicasets/status`; empty for paths
    /// outside the API.
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

/// True for what the API server takes as true in a query.
pub(super) fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}
