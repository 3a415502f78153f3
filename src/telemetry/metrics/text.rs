//! The Prometheus text format with numbers in Go's notation, so that a query for a bucket by its
//! text (`le="1e-08"`) matches these series like upstream's. The encoder of the `prometheus` crate
//! would write `0.00000001`.

use std::fmt::Write;

use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

use super::whole;

/// `Content-Type` of the output of `encode`.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Smaller exponents use scientific notation (Go `strconv.FormatFloat(f, 'g', -1, 64)`).
const EXPONENT_MIN: i32 = -4;

/// Exponents from here on use scientific notation.
const EXPONENT_END: i32 = 6;

/// Encodes all families in exposition format 0.0.4, in the given order.
pub(super) fn encode(families: &[MetricFamily]) -> String {
    let mut out = String::new();
    for family in families {
        encode_family(&mut out, family).expect("writing to a string cannot fail");
    }
    out
}

fn encode_family(out: &mut String, family: &MetricFamily) -> std::fmt::Result {
    let (name, kind) = (family.name(), family.get_field_type());
    let word = match kind {
        MetricType::COUNTER => "counter",
        MetricType::GAUGE => "gauge",
        MetricType::HISTOGRAM => "histogram",
        MetricType::SUMMARY | MetricType::UNTYPED => unreachable!("the registry creates none"),
    };
    writeln!(out, "# HELP {name} {}", escape(family.help(), false))?;
    writeln!(out, "# TYPE {name} {word}")?;
    for metric in family.get_metric() {
        let labels = metric.get_label();
        match kind {
            MetricType::HISTOGRAM => encode_histogram(out, name, metric)?,
            MetricType::COUNTER => {
                sample(
                    out,
                    name,
                    "",
                    labels,
                    None,
                    metric.get_counter().get_value(),
                )?;
            }
            // The registry creates no other type.
            _ => sample(out, name, "", labels, None, metric.get_gauge().get_value())?,
        }
    }
    Ok(())
}

fn encode_histogram(out: &mut String, name: &str, metric: &Metric) -> std::fmt::Result {
    let (labels, histogram) = (metric.get_label(), metric.get_histogram());
    let count = histogram.get_sample_count();
    for bucket in histogram.get_bucket() {
        let (bound, so_far) = (bucket.upper_bound(), bucket.cumulative_count());
        sample(out, name, "_bucket", labels, Some(bound), whole(so_far))?;
    }
    let infinite = Some(f64::INFINITY);
    sample(out, name, "_bucket", labels, infinite, whole(count))?;
    sample(out, name, "_sum", labels, None, histogram.get_sample_sum())?;
    sample(out, name, "_count", labels, None, whole(count))
}

fn sample(
    out: &mut String,
    name: &str,
    suffix: &str,
    labels: &[LabelPair],
    bound: Option<f64>,
    value: f64,
) -> std::fmt::Result {
    write!(out, "{name}{suffix}")?;
    let mut separator = '{';
    for label in labels {
        let value = escape(label.value(), true);
        write!(out, "{separator}{}=\"{value}\"", label.name())?;
        separator = ',';
    }
    if let Some(bound) = bound {
        write!(out, "{separator}le=\"{}\"", go_float(bound))?;
        separator = ',';
    }
    if separator == ',' {
        out.push('}');
    }
    writeln!(out, " {}", go_float(value))
}

/// Formats a number like Prometheus' Go library.
fn go_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific
        .split_once('e')
        .expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent is a whole number");
    if (EXPONENT_MIN..EXPONENT_END).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

fn escape(text: &str, is_label: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str(r"\\"),
            '\n' => escaped.push_str(r"\n"),
            '"' if is_label => escaped.push_str("\\\""),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{escape, go_float};

    #[test]
    fn numbers_have_gos_notation() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.005, "0.005"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (1e-8, "1e-08"),
            (9.999_999_999_999_999e-5, "9.999999999999999e-05"),
            (100_000.0, "100000"),
            (999_999.0, "999999"),
            (1e6, "1e+06"),
            (1_048_576.0, "1.048576e+06"),
            (124_416_000.0, "1.24416e+08"),
            (1e100, "1e+100"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(go_float(value), text);
        }
    }

    #[test]
    fn text_is_escaped_where_the_format_requires_it() {
        assert_eq!(escape("a\\b\nc\"d", true), r#"a\\b\nc\"d"#);
        assert_eq!(escape("a\\b\nc\"d", false), "a\\\\b\\nc\"d");
    }
}
