//! Amounts of resources in Kubernetes' notation: `10`, `500m`, `1.5Gi`, `2e3`.

/// The suffixes and their factors (apimachinery `pkg/api/resource/suffix.go`).
const SUFFIXES: [(&str, f64); 16] = [
    ("", 1.0),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("Ei", 1_152_921_504_606_846_976.0),
];

/// The amount that this text means, to 15 digits; `None` if it is no quantity.
pub fn parse_quantity(text: &str) -> Option<f64> {
    let is_of_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-');
    let (number, suffix) = text.split_at(text.find(|c| !is_of_number(c)).unwrap_or(text.len()));
    let factor = SUFFIXES.iter().find(|(known, _)| *known == suffix);
    match (factor, suffix.strip_prefix(['e', 'E'])) {
        (Some((_, factor)), _) => Some(number.parse::<f64>().ok()? * factor),
        (None, Some(exponent)) if exponent.ends_with(|c: char| c.is_ascii_digit()) => {
            text.parse().ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::parse_quantity;

    #[test]
    fn quantities_have_binary_decimal_and_scientific_forms() {
        for (text, expected) in [
            ("10", Some(10.0)),
            ("0.5", Some(0.5)),
            ("-3", Some(-3.0)),
            ("500m", Some(0.5)),
            ("2k", Some(2000.0)),
            ("1E", Some(1e18)),
            ("1.5Gi", Some(1_610_612_736.0)),
            ("2e3", Some(2000.0)),
            ("2E-1", Some(0.2)),
            ("", None),
            ("m", None),
            ("1x", None),
            ("1e", None),
            ("einf", None),
            ("nan", None),
        ] {
            assert_eq!(parse_quantity(text), expected, "{text:?}");
        }
    }
}
