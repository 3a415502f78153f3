//! Access and user reviews of the client itself. This server allows everything, and every client is
//! anonymous. The server stores no reviews.

use serde_json::{Value, json};

use super::body;
use super::exchange::{ApiRequest, Response};
use super::status_error::StatusError;
use super::target::Target;

/// The response to a review; `None` if `target` is not a review.
pub(super) fn response(
    target: &Target,
    request: &ApiRequest,
) -> Option<Result<Response, StatusError>> {
    let (kind, status) = match (target.group.as_str(), target.resource.as_str()) {
        ("authorization.k8s.io", "selfsubjectaccessreviews") => (
            "SelfSubjectAccessReview",
            json!({"allowed": true, "reason": "the dev server allows everything"}),
        ),
        ("authentication.k8s.io", "selfsubjectreviews") => (
            "SelfSubjectReview",
            json!({"userInfo": {
                "username": "system:anonymous", "groups": ["system:unauthenticated"],
            }}),
        ),
        _ => return None,
    };
    if target.version != "v1" || target.name.is_some() || target.namespace.is_some() {
        return None;
    }
    Some(if request.method == "POST" {
        body::any_object(request, kind).map(|review| reviewed(&review, kind, target, &status))
    } else {
        Err(StatusError::method_not_allowed())
    })
}

fn reviewed(review: &Value, kind: &str, target: &Target, status: &Value) -> Response {
    let mut object = json!({
        "kind": kind,
        "apiVersion": format!("{}/{}", target.group, target.version),
        "metadata": {"creationTimestamp": null},
        "status": status,
    });
    if let Some(spec) = review.get("spec") {
        object["spec"] = spec.clone();
    }
    Response::object(201, &object)
}
