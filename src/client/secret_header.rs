//! Header values that hold a secret: checked without showing it, and never shown in `Debug`.

use ureq::http::header::HeaderValue;

/// The `Authorization` header for a token.
///
/// # Errors
/// That HTTP cannot carry it, without showing it.
pub(super) fn bearer(token: &str) -> Result<HeaderValue, String> {
    secret_value(&format!("Bearer {}", token.trim()))
}

/// A value that is marked as secret.
///
/// # Errors
/// That HTTP cannot carry it, without showing it.
pub(super) fn secret_value(text: &str) -> Result<HeaderValue, String> {
    // The error is dropped on purpose: it must not show the secret, and says nothing else.
    let value = HeaderValue::from_str(text).ok();
    let mut value = value.ok_or("the credential has characters that HTTP does not allow")?;
    value.set_sensitive(true);
    Ok(value)
}
