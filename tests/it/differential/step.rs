//! A request for both servers. It refers to a server's own values (UIDs, versions, tokens) by a
//! reference in braces, which each [`Side`](super::side::Side) resolves from earlier responses.
//! Pure.

use std::fmt;

use serde_json::Value;

/// A JSON object.
pub(super) const JSON: &str = "application/json";
/// A JSON merge patch (RFC 7396).
pub(super) const MERGE_PATCH: &str = "application/merge-patch+json";
/// A JSON patch (RFC 6902).
pub(super) const JSON_PATCH: &str = "application/json-patch+json";
/// Kubernetes' strategic merge patch, which merges lists by key.
pub(super) const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";
/// Server-side apply.
pub(super) const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// The body of a request.
#[derive(Clone, Debug)]
pub(super) enum Body {
    None,
    Json(Value),
    /// Sent unchanged.
    Text(String),
    /// The object at the path as last returned, with a JSON merge patch applied; the patch alone if
    /// the server has not returned the object.
    Edited(String, Value),
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) query: Vec<(String, String)>,
    pub(super) body: Body,
    pub(super) content_type: &'static str,
    /// The `Accept` header, if not JSON.
    pub(super) accept: Option<&'static str>,
    /// The name under which to save the returned list's resource version.
    pub(super) saves_version: Option<&'static str>,
}

impl Step {
    fn new(method: &'static str, path: impl Into<String>, body: Body) -> Self {
        Self {
            method,
            path: path.into(),
            query: Vec::new(),
            body,
            content_type: JSON,
            accept: None,
            saves_version: None,
        }
    }

    pub(super) fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path, Body::None)
    }

    pub(super) fn post(path: impl Into<String>, object: Value) -> Self {
        Self::new("POST", path, Body::Json(object))
    }

    pub(super) fn put(path: impl Into<String>, object: Value) -> Self {
        Self::new("PUT", path, Body::Json(object))
    }

    /// Puts the edited object at `path` to `path` plus `subresource`.
    pub(super) fn put_edited(path: &str, subresource: &str, edit: Value) -> Self {
        let body = Body::Edited(path.to_owned(), edit);
        Self::new("PUT", format!("{path}{subresource}"), body)
    }

    pub(super) fn patch(content_type: &'static str, path: impl Into<String>, patch: Value) -> Self {
        let mut step = Self::new("PATCH", path, Body::Json(patch));
        step.content_type = content_type;
        step
    }

    pub(super) fn delete(path: impl Into<String>, options: Value) -> Self {
        let body = if options.is_null() {
            Body::None
        } else {
            Body::Json(options)
        };
        Self::new("DELETE", path, body)
    }

    /// The same request with this text as its body.
    pub(super) fn text(mut self, text: impl Into<String>) -> Self {
        self.body = Body::Text(text.into());
        self
    }

    pub(super) fn query(mut self, name: &str, value: impl Into<String>) -> Self {
        self.query.push((name.to_owned(), value.into()));
        self
    }

    pub(super) fn accept(mut self, media_types: &'static str) -> Self {
        self.accept = Some(media_types);
        self
    }

    /// Saves the returned list's resource version as `{version NAME}`.
    pub(super) fn saves_version(mut self, name: &'static str) -> Self {
        self.saves_version = Some(name);
        self
    }

    /// The path of the object in the response, without `status` or `scale`; `None` if the response
    /// is no object.
    pub(super) fn object_path(&self, response: &Value) -> Option<String> {
        let name = response.pointer("/metadata/name")?.as_str()?;
        if response["kind"] == "Status" {
            return None;
        }
        if self.method == "POST" {
            return Some(format!("{}/{name}", self.path));
        }
        let end = self.path.find(&format!("/{name}/"));
        let is_object = |path: &&str| path.ends_with(&format!("/{name}"));
        match end {
            Some(end) if self.path.ends_with("/status") => {
                Some(self.path[..=end + name.len()].to_owned())
            }
            _ => Some(self.path.as_str())
                .filter(is_object)
                .map(str::to_owned),
        }
    }

    /// The path of the namespaced object that the request names; `None` if it names none.
    pub(super) fn object_named(&self) -> Option<String> {
        let (before, after) = self.path.split_once("/namespaces/")?;
        let mut parts = after.split('/');
        let (namespace, plural) = (parts.next()?, parts.next()?);
        let name = parts.next().or_else(|| match &self.body {
            Body::Json(object) => object["metadata"]["name"].as_str(),
            _ => None,
        });
        let name = name?;
        Some(format!("{before}/namespaces/{namespace}/{plural}/{name}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)?;
        for (index, (name, value)) in self.query.iter().enumerate() {
            let separator = if index == 0 { '?' } else { '&' };
            write!(f, "{separator}{name}={value}")?;
        }
        if self.content_type != JSON {
            write!(f, " ({})", self.content_type)?;
        }
        match &self.body {
            Body::None => Ok(()),
            Body::Json(value) => write!(f, " {value}"),
            Body::Text(text) => write!(f, " {:?}", text.chars().take(200).collect::<String>()),
            Body::Edited(_, edit) => write!(f, " as last returned, with {edit}"),
        }
    }
}

/// The reference to the UID of the object at `path`.
pub(super) fn uid_of(path: &str) -> String {
    format!("{{uid {path}}}")
}

/// The reference to the resource version of the object at `path` as last returned.
pub(super) fn version_of(path: &str) -> String {
    format!("{{version {path}}}")
}

/// The reference to the continue token of the latest page.
pub(super) const CONTINUE: &str = "{continue}";

/// The reference to the latest generated name.
pub(super) const GENERATED: &str = "{generated}";
