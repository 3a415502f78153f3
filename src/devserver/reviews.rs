//! Access, user and token reviews. This server allows everything to everyone, every client is
//! anonymous, and there are no tokens. The server stores no reviews.

use serde_json::{Value, json};

use crate::body;
use crate::exchange::{ApiRequest, Response, Target};
use crate::status_error::StatusError;

const AUTHORIZATION: &str = "authorization.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// The groups of the reviews.
pub(crate) const GROUPS: [&str; 2] = [AUTHORIZATION, AUTHENTICATION];

/// A kind of review.
struct Review {
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
    /// The status of every review of this kind.
    status: fn() -> Value,
}

static REVIEWS: [Review; 6] = [
    Review {
        group: AUTHORIZATION,
        plural: "selfsubjectaccessreviews",
        kind: "SelfSubjectAccessReview",
        namespaced: false,
        status: allowed,
    },
    Review {
        group: AUTHORIZATION,
        plural: "subjectaccessreviews",
        kind: "SubjectAccessReview",
        namespaced: false,
        status: allowed,
    },
    Review {
        group: AUTHORIZATION,
        plural: "localsubjectaccessreviews",
        kind: "LocalSubjectAccessReview",
        namespaced: true,
        status: allowed,
    },
    Review {
        group: AUTHORIZATION,
        plural: "selfsubjectrulesreviews",
        kind: "SelfSubjectRulesReview",
        namespaced: false,
        status: all_rules,
    },
    Review {
        group: AUTHENTICATION,
        plural: "selfsubjectreviews",
        kind: "SelfSubjectReview",
        namespaced: false,
        status: anonymous,
    },
    Review {
        group: AUTHENTICATION,
        plural: "tokenreviews",
        kind: "TokenReview",
        namespaced: false,
        status: unknown_token,
    },
];

fn allowed() -> Value {
    json!({"allowed": true, "reason": "the dev server allows everything"})
}

fn all_rules() -> Value {
    json!({
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "incomplete": false,
    })
}

fn anonymous() -> Value {
    json!({"userInfo": {
        "username": "system:anonymous", "groups": ["system:unauthenticated"],
    }})
}

fn unknown_token() -> Value {
    json!({"authenticated": false, "error": "the dev server knows no tokens"})
}

/// The response to a review; `None` if `target` is not a review.
pub(crate) fn response(
    target: &Target,
    request: &ApiRequest,
) -> Option<Result<Response, StatusError>> {
    let review = REVIEWS.iter().find(|review| {
        review.plural == target.resource
            && review.group == target.group
            && review.namespaced == target.namespace.is_some()
    })?;
    if target.version != "v1" || target.name.is_some() {
        return None;
    }
    Some(if request.method == "POST" {
        let given = body::any_object(request, review.kind);
        given.map(|given| reviewed(&given, review))
    } else {
        Err(StatusError::method_not_allowed())
    })
}

fn reviewed(given: &Value, review: &Review) -> Response {
    let mut object = json!({
        "kind": review.kind,
        "apiVersion": format!("{}/v1", review.group),
        "metadata": {"creationTimestamp": null},
        "status": (review.status)(),
    });
    if let Some(spec) = given.get("spec") {
        object["spec"] = spec.clone();
    }
    Response::object(201, &object)
}

fn of_group(group: &str) -> impl Iterator<Item = &'static Review> {
    REVIEWS.iter().filter(move |review| review.group == group)
}

/// The entries of a group in discovery.
pub(crate) fn entries(group: &str) -> impl Iterator<Item = Value> {
    of_group(group).map(|review| {
        json!({
            "name": review.plural, "singularName": review.kind.to_lowercase(),
            "namespaced": review.namespaced, "kind": review.kind, "verbs": ["create"],
        })
    })
}

/// The entries of a group in aggregated discovery.
pub(crate) fn aggregated_entries(group: &str) -> impl Iterator<Item = Value> {
    of_group(group).map(|review| {
        let scope = if review.namespaced {
            "Namespaced"
        } else {
            "Cluster"
        };
        json!({
            "resource": review.plural, "singularResource": review.kind.to_lowercase(),
            "responseKind": {"group": "", "version": "", "kind": review.kind},
            "scope": scope, "verbs": ["create"],
        })
    })
}
