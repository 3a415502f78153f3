//! Statistics of many values, and the format of a number.

/// Maximum number of decimals.
const DIGITS_MAX: i32 = 9;

/// The median; for an even count, the mean of the two middle values. 0 without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let values = sorted(values);
    let (lower, upper) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    match (values.get(lower), values.get(upper)) {
        (Some(lower), Some(upper)) => f64::midpoint(*lower, *upper),
        _ => 0.0,
    }
}

/// The quantile `part` (0 to 1), as the nearest of the values. 0 without values.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a place in a short list"
)]
pub(crate) fn quantile(values: &[f64], part: f64) -> f64 {
    let values = sorted(values);
    let last = values.len().saturating_sub(1);
    let place = (last as f64 * part).round() as usize;
    values.get(place).copied().unwrap_or(0.0)
}

/// Formats `median (minimum to maximum)`.
pub(crate) fn spread(values: &[f64]) -> String {
    let all = [median(values), quantile(values, 0.0), quantile(values, 1.0)];
    // A measure that happens to be 1 gets as many decimals as the 1.02 beside it.
    let are_counts = values.iter().all(|value| value.fract() == 0.0);
    let [middle, least, most] = all.map(|value| {
        if are_counts {
            format_number(value)
        } else {
            format_measure(value)
        }
    });
    if values.len() < 2 {
        return middle;
    }
    format!("{middle} ({least} to {most})")
}

/// Formats a count in full, and a measure with at least three significant digits.
pub(crate) fn format_number(value: f64) -> String {
    if value.fract() == 0.0 {
        with_commas(&format!("{value:.0}"))
    } else {
        format_measure(value)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the digits of a number"
)]
fn format_measure(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let before_point = value.abs().log10().floor() as i32 + 1;
    let digits = (3 - before_point).clamp(0, DIGITS_MAX) as usize;
    with_commas(&format!("{value:.digits$}"))
}

/// Turns `12345.6` into `12,345.6`.
fn with_commas(value: &str) -> String {
    let (whole, rest) = value.split_at(value.find('.').unwrap_or(value.len()));
    let (sign, whole) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut grouped = String::new();
    for (n, digit) in whole.chars().enumerate() {
        if n > 0 && (whole.len() - n) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{rest}")
}

/// Converts a count to a figure.
#[expect(clippy::cast_precision_loss, reason = "counts of pods")]
pub(crate) fn number(count: usize) -> f64 {
    count as f64
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}
