//! Reviews and tokens. The server allows everything to everyone. A token is not signed: it only
//! says whose it is, so every client without one is anonymous.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::body;
use crate::exchange::{ApiRequest, Response, Target};
use crate::json::{add_missing, entries, map_of, number, text};
use crate::metadata::time_text;
use crate::resource::Resource;
use crate::status_error::{FieldError, StatusError};
use crate::store::{State, key_of};

/// The groups of the reviews.
pub(crate) const GROUPS: [&str; 2] = ["authorization.k8s.io", "authentication.k8s.io"];

/// The audience of tokens that name none, and their issuer.
const ISSUER: &str = "https://kubernetes.default.svc";

/// Minimum and default life of a token (kubernetes
/// `pkg/apis/authentication/validation/validation.go`).
const LIFE_SECONDS: [i64; 2] = [600, 3600];

/// A review: its group, its kind, and its status for the user of the token.
type Review = (&'static str, &'static str, fn(Option<Value>) -> Value);

pub(crate) static REVIEWS: [Review; 6] = [
    (GROUPS[0], "SelfSubjectAccessReview", allowed),
    (GROUPS[0], "SubjectAccessReview", allowed),
    (GROUPS[0], "LocalSubjectAccessReview", allowed),
    (GROUPS[0], "SelfSubjectRulesReview", all_rules),
    (GROUPS[1], "SelfSubjectReview", client),
    (GROUPS[1], "TokenReview", authenticated),
];

pub(crate) fn plural_of(review: &str) -> String {
    review.to_lowercase() + "s"
}

pub(crate) fn is_namespaced(review: &str) -> bool {
    review.starts_with("Local")
}

fn allowed(_: Option<Value>) -> Value {
    json!({"allowed": true, "reason": "the dev server allows everything"})
}

fn all_rules(_: Option<Value>) -> Value {
    json!({
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "incomplete": false,
    })
}

fn client(user: Option<Value>) -> Value {
    let anonymous = json!({"username": "system:anonymous", "groups": ["system:unauthenticated"]});
    json!({"userInfo": user.unwrap_or(anonymous)})
}

fn authenticated(user: Option<Value>) -> Value {
    match user {
        Some(user) => json!({"authenticated": true, "user": user, "audiences": [ISSUER]}),
        None => json!({"user": {}, "error": "not a token of this dev server, or an expired one"}),
    }
}

/// The response to a review; `None` if `target` is not a review.
pub(crate) fn response(
    state: &State,
    target: &Target,
    request: &ApiRequest,
) -> Option<Result<Response, StatusError>> {
    let mut reviews = REVIEWS.into_iter();
    let (group, kind, status) = reviews.find(|(group, kind, _)| {
        plural_of(kind) == target.resource
            && *group == target.group
            && is_namespaced(kind) == target.namespace.is_some()
    })?;
    if target.version != "v1" || target.name.is_some() {
        return None;
    }
    if request.method != "POST" {
        return Some(Err(StatusError::method_not_allowed()));
    }
    let reviewed = |given: Value| {
        let of_client = request.header("authorization").strip_prefix("Bearer ");
        let token = match text(&given, "/spec/token") {
            "" if kind == "TokenReview" => "",
            "" => of_client.unwrap_or_default(),
            reviewed => reviewed,
        };
        let mut object = json!({
            "kind": kind, "apiVersion": format!("{group}/v1"),
            "metadata": {"creationTimestamp": null}, "status": status(user_of(state, token)),
        });
        if let Some(spec) = given.get("spec") {
            object["spec"] = spec.clone();
        }
        Response::object(201, &object)
    };
    Some(body::unstored_object(request, kind).map(reviewed))
}

/// Gives a service account a token, as its subresource `token` does.
pub(crate) fn token(state: &State, key: &str, mut request: Value) -> Result<Response, StatusError> {
    let account = state.current(Resource::ServiceAccounts, key)?;
    let (namespace, name) = (account.namespace(), account.name());
    let metadata = account.value()["metadata"].take();
    let spec = map_of(&mut request, "spec");
    spec.retain(|_, value| !value.is_null() && *value != json!([]));
    let [least, usual] = LIFE_SECONDS;
    let defaults = json!({"audiences": [ISSUER], "expirationSeconds": usual});
    add_missing(&mut request["spec"], &defaults);
    let seconds = number(&request, "/spec/expirationSeconds").unwrap_or(usual);
    if seconds < least {
        let why = "may not specify a duration less than 10 minutes";
        let error = FieldError::invalid("spec.expirationSeconds", seconds, why);
        let kind = (GROUPS[1], "TokenRequest");
        return Err(StatusError::invalid_of(kind, "", vec![error]));
    }
    let begin = Timestamp::now();
    let end = begin
        .saturating_add(SignedDuration::from_secs(seconds))
        .unwrap_or(begin);
    let claims = json!({
        "aud": request["spec"]["audiences"], "iss": ISSUER, "iat": begin.as_second(),
        "nbf": begin.as_second(), "exp": end.as_second(),
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
        "kubernetes.io": {
            "namespace": namespace, "serviceaccount": {"name": name, "uid": metadata["uid"]},
        },
    });
    let parts = [json!({"alg": "none"}), claims, json!("unsigned")];
    let parts = parts.map(|part| BASE64_URL_SAFE_NO_PAD.encode(part.to_string()));
    Ok(Response::object(
        201,
        &json!({
            "kind": "TokenRequest", "apiVersion": format!("{}/v1", GROUPS[1]),
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": time_text(begin)},
            "spec": request["spec"],
            "status": {"token": parts.join("."), "expirationTimestamp": time_text(end)},
        }),
    ))
}

/// The service account of a token that this server gave and that still counts.
fn user_of(state: &State, token: &str) -> Option<Value> {
    let claims = BASE64_URL_SAFE_NO_PAD
        .decode(token.split('.').nth(1)?)
        .ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    let of = |name: &str| text(&claims, &format!("/kubernetes.io/{name}"));
    let (namespace, uid) = (of("namespace"), of("serviceaccount/uid"));
    let key = key_of(Some(namespace), of("serviceaccount/name"));
    let account = state.get(Resource::ServiceAccounts, &key)?.value();
    let lasts = number(&claims, "/exp")? > Timestamp::now().as_second();
    let is_for_server = entries(&claims, "/aud").contains(&json!(ISSUER));
    let user = json!({
        "username": claims["sub"], "uid": uid, "groups": [
            "system:serviceaccounts", format!("system:serviceaccounts:{namespace}"),
            "system:authenticated",
        ],
    });
    (lasts && is_for_server && text(&account, "/metadata/uid") == uid).then_some(user)
}
