//! Amounts of resources, as Go reads and writes them. Pure.

use std::fmt;

use serde_json::Value;

/// An amount such as `1500m` or `2Gi`, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantity {
    pub milli: i128,
    is_binary: bool,
}

/// The units and what they stand for, from the largest.
fn units(is_binary: bool) -> impl Iterator<Item = (String, i128)> {
    let (prefixes, base, end) = if is_binary {
        ("EPTGMK", 1024_i128, "i")
    } else {
        ("EPTGMk", 1000, "")
    };
    let powers = prefixes.chars().zip((1..=6).rev());
    powers.map(move |(prefix, power)| (format!("{prefix}{end}"), base.pow(power)))
}

impl Quantity {
    /// Reads a text or a number; rounds up to a thousandth.
    pub fn read(value: &Value) -> Option<Self> {
        let text = match value {
            Value::String(text) => text.clone(),
            number => number.as_number()?.to_string(),
        };
        let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-');
        let end = text.find(|c| !is_number(c)).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let mut all = units(false).chain(units(true));
        let (scale, per) = match unit {
            "" => (1, 1),
            "m" => (1, 1000),
            "u" => (1, 1_000_000),
            "n" => (1, 1_000_000_000),
            unit if unit.starts_with(['e', 'E']) && unit.len() > 1 && !unit.ends_with('i') => {
                let power: i32 = unit[1..].parse().ok()?;
                let ten = 10_i128.checked_pow(power.unsigned_abs())?;
                if power < 0 { (1, ten) } else { (ten, 1) }
            }
            unit => (all.find(|(name, _)| *name == unit)?.1, 1),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
        let below = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let below = below.checked_mul(per)?;
        let thousandths = digits.checked_mul(1000)?.checked_mul(scale)?;
        Some(Self {
            milli: thousandths.div_euclid(below) + i128::from(thousandths.rem_euclid(below) > 0),
            is_binary: unit.ends_with('i'),
        })
    }

    pub fn count(n: usize) -> Self {
        Self {
            milli: i128::try_from(n).unwrap_or(i128::MAX) * 1000,
            is_binary: false,
        }
    }

    /// True for a whole number, which counts objects.
    pub fn is_whole(self) -> bool {
        self.milli % 1000 == 0
    }

    /// The text of this amount, whatever its notation was: `1Gi`, not `1073741824`.
    pub fn canonical(self) -> String {
        let is_binary = self.milli % 1_024_000 == 0;
        Self { is_binary, ..self }.to_string()
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            milli: self.milli + other.milli,
            is_binary: if self.milli == 0 {
                other.is_binary
            } else {
                self.is_binary
            },
        }
    }
}

/// Go's canonical form: the largest unit without a fraction.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_whole() {
            return write!(f, "{}m", self.milli);
        }
        let number = self.milli / 1000;
        let mut units = units(self.is_binary && number.abs() >= 1024);
        match units.find(|(_, scale)| number != 0 && number % scale == 0) {
            Some((unit, scale)) => write!(f, "{}{unit}", number / scale),
            None => write!(f, "{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Quantity;

    #[test]
    fn amounts_have_the_text_of_go() {
        for (text, expected) in [
            ("1000", "1k"),
            ("1.5", "1500m"),
            ("100m", "100m"),
            ("1024Mi", "1Gi"),
            ("0", "0"),
            ("1500Mi", "1500Mi"),
            ("2e3", "2k"),
            ("1u", "1m"),
            ("0.5Gi", "512Mi"),
            ("-1", "-1"),
        ] {
            let read = Quantity::read(&json!(text)).expect("an amount");
            assert_eq!(read.to_string(), expected, "{text}");
        }
        for text in ["", "x", "1X", "1e", "--1"] {
            assert_eq!(Quantity::read(&json!(text)), None, "{text}");
        }
        for text in ["1Gi", "512Mi", "1500m", "2", "1G", "0", "1000Ki"] {
            let read = Quantity::read(&json!(text)).expect("an amount");
            assert_eq!(read.canonical(), text);
        }
    }
}
