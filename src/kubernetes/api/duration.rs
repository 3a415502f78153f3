//! Durations in Go's format.

use std::time::Duration;

use jiff::SignedDuration;

/// Parses `12h`, `1m30s`, `500ms`, `1h0m0s` or `0`.
///
/// # Errors
/// A message that says what was expected.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let signed: Result<SignedDuration, _> = text.parse();
    match signed.map(Duration::try_from) {
        Ok(Ok(duration)) => Ok(duration),
        Ok(Err(_)) => Err("expected a duration that is not negative".to_owned()),
        Err(_) => Err("expected a duration such as 12h, 1m30s or 500ms".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, parse_duration};

    #[test]
    fn go_durations() {
        for (text, expected) in [
            ("0", Some(Duration::ZERO)),
            ("12h", Some(Duration::from_hours(12))),
            ("12h0m0s", Some(Duration::from_hours(12))),
            ("1m30s", Some(Duration::from_secs(90))),
            ("1.5h", Some(Duration::from_mins(90))),
            ("500ms", Some(Duration::from_millis(500))),
            ("-1s", None),
            ("12", None),
            ("soon", None),
        ] {
            assert_eq!(parse_duration(text).ok(), expected, "{text}");
        }
    }
}
