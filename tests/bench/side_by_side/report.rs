//! The figures: collected, and printed as a table.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use serde_json::json;

use crate::options::Options;

/// The name under which this daemon's figures stand.
pub(crate) const OURS: &str = "this daemon";
/// The name under which the original's figures stand.
pub(crate) const ORIGINAL: &str = "kube-controller-manager";
/// The name under which the API server's own figures stand.
pub(crate) const FLOOR: &str = "API server";

/// All figures so far, in the order in which they came first.
#[derive(Debug, Default)]
pub(crate) struct Report {
    order: Vec<String>,
    figures: BTreeMap<String, BTreeMap<&'static str, Vec<f64>>>,
}

impl Report {
    /// Notes `value` for `figure`, which names its unit.
    pub(crate) fn add(&mut self, who: &'static str, figure: &str, value: f64) {
        say(&format!("  {figure}: {}", number(value)));
        if !self.figures.contains_key(figure) {
            self.order.push(figure.to_owned());
        }
        let of_all = self.figures.entry(figure.to_owned()).or_default();
        of_all.entry(who).or_default().push(value);
    }

    /// Prints the table: medians, the ratio, the spread.
    pub(crate) fn print(&self) {
        say("");
        say("| figure | kube-controller-manager | this daemon | ratio |");
        say("|---|---|---|---|");
        for figure in &self.order {
            let of_all = &self.figures[figure];
            if let Some(floor) = of_all.get(FLOOR) {
                say(&format!(
                    "| {figure} | {} (API server) | | |",
                    spread(floor)
                ));
                continue;
            }
            let (ours, original) = (of_all.get(OURS), of_all.get(ORIGINAL));
            let ratio = match (ours, original) {
                (Some(ours), Some(original)) if median(original) > 0.0 => {
                    format!("{:.3}", median(ours) / median(original))
                }
                _ => String::new(),
            };
            let cell = |values: Option<&Vec<f64>>| values.map_or(String::new(), |v| spread(v));
            let (ours, original) = (cell(ours), cell(original));
            say(&format!("| {figure} | {original} | {ours} | {ratio} |"));
        }
    }

    /// Writes every single figure.
    pub(crate) fn write_json(&self, file: &Path, options: &Options) -> Result<(), String> {
        let report = json!({
            "pods": options.pods,
            "replicasets": options.replicasets,
            "rounds": options.rounds,
            "figures": self.figures,
        });
        std::fs::write(file, format!("{report:#}\n"))
            .map_err(|error| format!("{} cannot be written: {error}", file.display()))
    }
}

/// One line for people.
pub(crate) fn say(line: &str) {
    // Whoever closed the pipe has seen enough.
    writeln!(std::io::stdout(), "{line}").unwrap_or_default();
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value below which this part of all values lies.
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

fn spread(values: &[f64]) -> String {
    let (low, high) = (quantile(values, 0.0), quantile(values, 1.0));
    if values.len() < 2 {
        return number(median(values));
    }
    format!(
        "{} ({} to {})",
        number(median(values)),
        number(low),
        number(high)
    )
}

fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || value.fract().abs() < f64::EPSILON => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}
