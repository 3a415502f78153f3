//! A point in time in eight bytes, and durations in Go's format.

use std::fmt;
use std::num::NonZeroI64;
use std::str::FromStr;
use std::time::Duration;

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp};
use serde::de::{Deserialize, Deserializer, Error};

use super::json::Text;

/// A point in time with microsecond resolution, finer than any object's timestamps.
///
/// Kubernetes' times end with the year 9999, and its last second is in use as "never". A
/// [`Timestamp`] ends a day earlier.
///
/// `Option<CompactTimestamp>` takes 8 bytes where an optional [`Timestamp`] takes 24; each pod has
/// three.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CompactTimestamp(
    /// Microseconds since 1970.
    NonZeroI64,
);

impl From<Timestamp> for CompactTimestamp {
    /// The epoch itself becomes one microsecond later, since zero is the niche of `Option`.
    fn from(time: Timestamp) -> Self {
        Self::from_microsecond(time.as_microsecond())
    }
}

/// Reads a time of an API object. One after the year 9999 is read as the end of time.
impl FromStr for CompactTimestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        let error = match text.parse::<Timestamp>() {
            Ok(time) => return Ok(time.into()),
            Err(error) => error,
        };
        if text.bytes().take_while(u8::is_ascii_digit).count() > 4 {
            return Ok(Self::from_microsecond(i64::MAX));
        }
        match text.strip_suffix('Z') {
            Some(plain) if plain.starts_with("9999-12-3") => {
                let time = plain.parse::<DateTime>()?.duration_since(EPOCH);
                Ok(Self::from_second(time.as_secs()))
            }
            _ => Err(error),
        }
    }
}

impl<'de> Deserialize<'de> for CompactTimestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(deserializer)?;
        text.as_ref().parse().map_err(D::Error::custom)
    }
}

/// Reads an optional time for calculations, to use with `deserialize_with`.
pub fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let time = Option::<CompactTimestamp>::deserialize(deserializer)?;
    Ok(time.map(CompactTimestamp::timestamp))
}

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

impl CompactTimestamp {
    /// The time so many seconds after 1970, or the end of time.
    pub fn from_second(seconds: i64) -> Self {
        Self::from_microsecond(seconds.saturating_mul(1_000_000))
    }

    fn from_microsecond(microseconds: i64) -> Self {
        let niche = const { NonZeroI64::new(1).expect("not zero") };
        Self(NonZeroI64::new(microseconds).unwrap_or(niche))
    }

    /// Converts to a [`Timestamp`] for calculations. A time beyond its range becomes its limit.
    pub fn timestamp(self) -> Timestamp {
        let nearest = if self.0.get() < 0 {
            Timestamp::MIN
        } else {
            Timestamp::MAX
        };
        Timestamp::from_microsecond(self.0.get()).unwrap_or(nearest)
    }

    /// Time since then; negative for a future time.
    pub fn age(self, now: Timestamp) -> SignedDuration {
        now.duration_since(self.timestamp())
    }
}

impl fmt::Display for CompactTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.timestamp().fmt(f)
    }
}

impl fmt::Debug for CompactTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.timestamp().fmt(f)
    }
}

/// A century: any time to come, and short enough to be added to any clock.
const DURATION_MAX: Duration = Duration::from_hours(876_600);

/// Parses `12h`, `1m30s`, `500ms`, `1h0m0s` or `0`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let signed: Result<SignedDuration, _> = text.parse();
    match signed.map(Duration::try_from) {
        Ok(Ok(duration)) if duration <= DURATION_MAX => Ok(duration),
        Ok(Ok(_)) => Err("expected a duration of at most 876600h, 100 years".to_owned()),
        Ok(Err(_)) => Err("expected a duration that is not negative".to_owned()),
        Err(_) => Err("expected a duration such as 12h, 1m30s or 500ms".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::{CompactTimestamp, Duration, parse_duration};

    #[test]
    fn a_time_keeps_its_microseconds() {
        for text in [
            "2026-01-02T03:04:05Z",
            "2026-01-02T03:04:05.123456Z",
            "1969-12-31T23:59:59.5Z",
            "0001-01-01T00:00:00Z",
            "9999-12-30T00:00:00Z",
        ] {
            let time: Timestamp = text.parse().expect("a time");
            let compact = CompactTimestamp::from(time);
            assert_eq!(
                (compact.timestamp(), compact.to_string()),
                (time, text.to_owned())
            );
            assert_eq!(
                compact
                    .age(time + SignedDuration::from_millis(1))
                    .as_millis(),
                1
            );
        }
        assert_eq!(
            CompactTimestamp::from(Timestamp::UNIX_EPOCH)
                .timestamp()
                .as_second(),
            0
        );
        assert_eq!(size_of::<Option<CompactTimestamp>>(), 8);
    }

    #[test]
    fn times_at_the_end_are_read_and_ordered() {
        let texts = [
            "9999-12-30T21:59:59Z",
            "9999-12-30T22:00:01Z",
            "9999-12-31T23:59:58Z",
            "9999-12-31T23:59:59Z",
            "10000-01-01T00:00:00Z",
        ];
        let times = texts.map(|text| text.parse::<CompactTimestamp>().expect("a time"));
        assert!(times.is_sorted_by(|a, b| a < b));
        assert_eq!(times[3], CompactTimestamp::from_second(253_402_300_799));
        assert_eq!(times[4].timestamp(), Timestamp::MAX);
        let before = CompactTimestamp::from_second(i64::MIN);
        assert_eq!(before.timestamp(), Timestamp::MIN);
        for text in ["", "never", "9999-12-32T00:00:00Z", "2026-01-01"] {
            assert!(text.parse::<CompactTimestamp>().is_err(), "{text}");
        }
    }

    #[test]
    fn go_durations() {
        for (text, expected) in [
            ("0", Some(Duration::ZERO)),
            ("12h", Some(Duration::from_hours(12))),
            ("12h0m0s", Some(Duration::from_hours(12))),
            ("1m30s", Some(Duration::from_secs(90))),
            ("1.5h", Some(Duration::from_mins(90))),
            ("500ms", Some(Duration::from_millis(500))),
            ("876600h", Some(Duration::from_hours(876_600))),
            ("876600h1s", None),
            // The standard library's clock panics at this.
            ("9223372036854775807s", None),
            ("-1s", None),
            ("12", None),
            ("soon", None),
        ] {
            assert_eq!(parse_duration(text).ok(), expected, "{text}");
        }
    }
}
