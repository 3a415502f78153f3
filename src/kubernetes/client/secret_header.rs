//! Header values that hold a secret. Neither errors nor `Debug` print it.

use ureq::http::header::HeaderValue;

/// The `Authorization` header for a token.
///
/// # Errors
/// If the token has characters that HTTP does not allow; the error does not print it.
pub(super) fn bearer(token: &str) -> Result<HeaderValue, String> {
    secret_value(&format!("Bearer {}", token.trim()))
}

/// A header value that is marked as secret.
///
/// # Errors
/// If the text has characters that HTTP does not allow; the error does not print it.
pub(super) fn secret_value(text: &str) -> Result<HeaderValue, String> {
    // Drop the original error: it must not print the secret, and adds nothing else.
    let value = HeaderValue::from_str(text).ok();
    let mut value = value.ok_or("the credential has characters that HTTP does not allow")?;
    value.set_sensitive(true);
    Ok(value)
}
