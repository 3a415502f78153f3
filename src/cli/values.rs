//! Values of flags from text, in the forms that kube-controller-manager takes. Each error is a sentence
//! on what was expected.

/// Reads a bool as Go does (`strconv.ParseBool`).
///
/// # Errors
/// A sentence on what is wrong.
pub fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// Reads requests per second.
///
/// # Errors
/// A sentence on what is wrong.
pub fn parse_qps(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(qps) if qps.is_finite() => Ok(qps),
        _ => Err("expected a number of requests per second".to_owned()),
    }
}

/// RFC 1123 label, as the API server asks of a namespace's name.
///
/// # Errors
/// A sentence on what is wrong.
pub fn parse_namespace(text: &str) -> Result<String, String> {
    if is_label(text) {
        Ok(text.to_owned())
    } else {
        Err("expected lower-case letters, digits and '-', at most 63 characters".to_owned())
    }
}

/// RFC 1123 subdomain, as the API server asks of a lease's name.
///
/// # Errors
/// A sentence on what is wrong.
pub fn parse_object_name(text: &str) -> Result<String, String> {
    if text.len() <= 253 && text.split('.').all(is_label) {
        Ok(text.to_owned())
    } else {
        Err("expected lower-case letters, digits, '-' and '.', at most 253 characters".to_owned())
    }
}

/// A path of a URL, perhaps with a `*` at its end, and perhaps without the `/` at its beginning
/// (apiserver `pkg/authorization/path/path.go`).
///
/// # Errors
/// A sentence on what is wrong.
pub fn parse_url_path(text: &str) -> Result<String, String> {
    let path = text.strip_suffix('*').unwrap_or(text);
    if text.is_empty() || path.contains('*') {
        Err("expected a path, with * at its end at most".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

fn is_label(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&text.len())
        && text.chars().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::{parse_bool, parse_namespace, parse_object_name, parse_qps, parse_url_path};

    #[track_caller]
    fn check<T>(parse: fn(&str) -> Result<T, String>, good: &[&str], bad: &[&str]) {
        for text in good {
            assert!(parse(text).is_ok(), "{text:?} is good");
        }
        for text in bad {
            assert!(parse(text).is_err(), "{text:?} is bad");
        }
    }

    #[test]
    fn values() {
        check(parse_bool, &["true", "F", "1"], &["yes", "", "tRUE"]);
        check(parse_qps, &["20", "-1", "0.5"], &["fast", "inf", "NaN"]);
        check(
            parse_namespace,
            &["a", "kube-system"],
            &["", "A", "-a", "a."],
        );
        check(
            parse_object_name,
            &["a", "a.b-c"],
            &["", "a..b", "A", "a_b"],
        );
        check(
            parse_url_path,
            &["/", "/healthz", "healthz", "/debug/*", "*"],
            &["", "/a*b", "/a**"],
        );
    }
}
