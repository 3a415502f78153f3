//! A point in time in eight bytes.

use std::fmt;
use std::num::NonZeroI64;

use jiff::{SignedDuration, Timestamp};

/// A point in time with microsecond resolution, finer than any object's timestamps.
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
        Self(
            NonZeroI64::new(time.as_microsecond())
                .unwrap_or(const { NonZeroI64::new(1).expect("not zero") }),
        )
    }
}

impl CompactTimestamp {
    /// Converts to a [`Timestamp`] for calculations.
    pub fn timestamp(self) -> Timestamp {
        Timestamp::from_microsecond(self.0.get()).expect("it was converted from a timestamp")
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

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::CompactTimestamp;

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
}
