//! The rejections of the model, worded as the API server's.

use serde_json::{Value, json};

use super::http::Answer;
use super::objects::{Kind, NAMESPACE};

/// A rejection with a Status.
pub(super) fn rejection(code: u16, reason: &str, message: &str) -> Answer {
    Answer {
        code,
        retry_after: None,
        body: status(code, reason, message, &Value::Null)
            .to_string()
            .into_bytes(),
    }
}

fn status(code: u16, reason: &str, message: &str, details: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "metadata": {},
        "code": code, "reason": reason, "message": message, "details": details,
    })
}

/// 404.
pub(super) fn not_found(kind: Kind, name: &str) -> Answer {
    rejection(
        404,
        "NotFound",
        &format!("{} \"{name}\" not found", kind.resource()),
    )
}

/// 403 in a namespace that ends.
pub(super) fn namespace_terminating(kind: Kind, name: &str) -> Answer {
    let message = format!(
        "{} \"{name}\" is forbidden: unable to create new content in namespace {NAMESPACE} because \
         it is being terminated",
        kind.resource()
    );
    let causes = json!({"causes": [{"reason": "NamespaceTerminating"}]});
    let body = status(403, "Forbidden", &message, &causes);
    Answer {
        code: 403,
        retry_after: None,
        body: body.to_string().into_bytes(),
    }
}

/// 504 of a watch cache that has not reached the version.
pub(super) fn too_large(wanted: u64, current: u64) -> Answer {
    let message = format!("Too large resource version: {wanted}, current: {current}");
    let details = json!({
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    });
    Answer {
        code: 504,
        retry_after: Some(1),
        body: status(504, "Timeout", &message, &details)
            .to_string()
            .into_bytes(),
    }
}
