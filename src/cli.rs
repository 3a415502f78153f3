//! Parses command line, environment and configuration file into options. It has no side effects: it
//! logs and starts nothing, and the caller passes the function that reads the file.
//!
//! [`flags`] defines all flags; [`parse()`] checks all sources by it and collects all mistakes.
//! The functions here parse values in the forms of kube-controller-manager; each error says which
//! value was expected.

mod effective;
pub mod flags;
mod generate;
pub mod kcm;
pub mod parse;
mod sources;

use std::ops::RangeInclusive;

use crate::api::object_key::{is_label, is_subdomain};

pub use effective::effective_file;
pub use flags::{Cli, Command, ExplainArgs, RunArgs};
pub use kcm::{Ignored, MODULES};
pub use parse::{ParseOutcome, Parsed, Sources, parse};

/// Sample ReplicaSets, as `sample` prints and `demo` applies them.
pub const SAMPLE: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/config/replicasets.yaml"
));

/// Parses a bool as Go does (`strconv.ParseBool`).
pub fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// Returns a parser for whole numbers in `range`, for a flag of type `T`.
pub fn number<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            format!("expected a number from {least} to {most}")
        })
    }
}

pub fn parse_qps(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(qps) if qps.is_finite() => Ok(qps),
        _ => Err("expected a number of requests per second".to_owned()),
    }
}

/// Checks that a namespace's name is an RFC 1123 label.
pub fn parse_namespace(text: &str) -> Result<String, String> {
    if text.len() <= 63 && is_label(text) {
        Ok(text.to_owned())
    } else {
        Err("expected lower-case letters, digits and '-', at most 63 characters".to_owned())
    }
}

/// Checks that an object's name is what Kubernetes calls an RFC 1123 subdomain. Unlike in DNS, its
/// parts between the dots may be longer than 63 characters
/// (apimachinery `pkg/util/validation/validation.go:IsDNS1123Subdomain`).
pub fn parse_object_name(text: &str) -> Result<String, String> {
    if is_subdomain(text) {
        Ok(text.to_owned())
    } else {
        Err("expected lower-case letters, digits, '-' and '.', at most 253 characters".to_owned())
    }
}

/// Checks a URL path. A trailing `*` is a wildcard, and the leading `/` is optional
/// (apiserver `pkg/authorization/path/path.go`).
pub fn parse_url_path(text: &str) -> Result<String, String> {
    let path = text.strip_suffix('*').unwrap_or(text);
    if text.is_empty() || path.contains('*') {
        Err("expected a path, with * at its end at most".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        number, parse_bool, parse_namespace, parse_object_name, parse_qps, parse_url_path,
    };

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
    fn a_number_out_of_range_is_answered_with_the_range() {
        let port = number::<u16>(1..=65_535);
        assert_eq!(port("65535"), Ok(65_535));
        for text in ["0", "65536", "-1", "abc", "", "1.5"] {
            let expected = "expected a number from 1 to 65535".to_owned();
            assert_eq!(port(text), Err(expected), "{text}");
        }
        let any = number::<u32>(0..=u32::MAX.into());
        assert_eq!(any("4294967295"), Ok(u32::MAX));
    }

    #[test]
    fn names_of_objects_have_no_limit_per_part() {
        let name = |n: usize| "a".repeat(n);
        check(parse_namespace, &[&name(63)], &[&name(64)]);
        check(
            parse_object_name,
            &[&name(64), &name(253), &format!("a.{}", name(70))],
            &[
                &name(254),
                &format!("{}.", name(70)),
                &format!("-{}", name(70)),
            ],
        );
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
