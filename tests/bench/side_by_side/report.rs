//! Collects the figures and prints them as a table.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Value, json};

use crate::statistics::{format_number, median, spread};

/// The name of this daemon in the report.
pub(crate) const OURS: &str = "this daemon";
/// The name of the original in the report.
pub(crate) const ORIGINAL: &str = "kube-controller-manager";
/// The name of the API server's own figures in the report.
pub(crate) const FLOOR: &str = "API server";

/// All figures so far, in the order of their first appearance.
#[derive(Debug, Default)]
pub(crate) struct Report {
    order: Vec<String>,
    figures: BTreeMap<String, BTreeMap<&'static str, Vec<f64>>>,
    /// Single values behind some figures: a list per measurement.
    samples: BTreeMap<String, BTreeMap<&'static str, Vec<Vec<f64>>>>,
    /// The contestants of each round, in their order.
    rounds: Vec<Vec<&'static str>>,
}

impl Report {
    /// Begins the next round, with the contestants in this order. Later figures belong to it.
    pub(crate) fn begin_round(&mut self, contestants: Vec<&'static str>) {
        self.rounds.push(contestants);
    }

    /// Adds and prints a value of `figure`, whose name contains the unit.
    pub(crate) fn add(&mut self, who: &'static str, figure: &str, value: f64) {
        print_line(&format!("  {figure}: {}", format_number(value)));
        if !self.figures.contains_key(figure) {
            self.order.push(figure.to_owned());
        }
        let of_all = self.figures.entry(figure.to_owned()).or_default();
        of_all.entry(who).or_default().push(value);
    }

    /// Adds the single values behind some figures.
    pub(crate) fn add_samples(&mut self, who: &'static str, what: &str, values: Vec<f64>) {
        let of_all = self.samples.entry(what.to_owned()).or_default();
        of_all.entry(who).or_default().push(values);
    }

    /// Prints the table of medians, spreads and ratios.
    pub(crate) fn print(&self) {
        if self.order.is_empty() {
            return;
        }
        print_line("");
        print_line("| figure | kube-controller-manager | this daemon | ratio |");
        print_line("|---|---|---|---|");
        for figure in &self.order {
            let of = |who: &str| self.figures[figure].get(who);
            let cell = |who: &str| of(who).map(|values| spread(values));
            if let Some(floor) = cell(FLOOR) {
                print_line(&format!("| {figure} | {floor} (API server) | | |"));
                continue;
            }
            let median = |who: &str| of(who).map(|values| median(values));
            let medians = (median(OURS), median(ORIGINAL));
            let ratio = match medians {
                (Some(ours), Some(original)) if original > 0.0 => format_number(ours / original),
                _ => String::new(),
            };
            let original = cell(ORIGINAL).unwrap_or_default();
            let ours = cell(OURS).unwrap_or_default();
            print_line(&format!("| {figure} | {original} | {ours} | {ratio} |"));
        }
    }

    /// All single figures, as members of a JSON object.
    pub(crate) fn to_json(&self) -> Value {
        json!({"order": self.rounds, "figures": self.figures, "samples": self.samples})
    }
}

/// Prints a line to standard output.
pub(crate) fn print_line(line: &str) {
    // A reader that has closed the pipe is no error.
    writeln!(std::io::stdout(), "{line}").unwrap_or_default();
}
