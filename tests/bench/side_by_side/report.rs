//! Collects the figures and prints them as a table.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::plot::{self, Series};
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
    figures: BTreeMap<String, BTreeMap<&'static str, Vec<Figure>>>,
    /// Single values behind some figures: a list per measurement.
    samples: BTreeMap<String, BTreeMap<&'static str, Vec<Vec<f64>>>>,
    /// Charts by file name: the title and the lines.
    charts: BTreeMap<&'static str, (String, Vec<Series>)>,
    /// The contestants of each round, in their order.
    rounds: Vec<Vec<&'static str>>,
}

/// A value of a figure in one round.
#[derive(Clone, Copy, Debug)]
struct Figure {
    round: usize,
    value: f64,
}

/// A figure derived from others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Derived {
    pub(crate) who: &'static str,
    pub(crate) figure: &'static str,
    /// The figure above it in the table.
    pub(crate) below: &'static str,
    pub(crate) round: usize,
    pub(crate) value: f64,
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
        self.push(who, figure, self.rounds.len(), value);
    }

    /// Adds the single values behind some figures.
    pub(crate) fn add_samples(&mut self, who: &'static str, what: &str, values: Vec<f64>) {
        let of_all = self.samples.entry(what.to_owned()).or_default();
        of_all.entry(who).or_default().push(values);
    }

    /// Adds a line to the chart `file`, unless an earlier round has added it.
    pub(crate) fn add_line(
        &mut self,
        who: &str,
        file: &'static str,
        title: &str,
        points: Vec<(f64, f64)>,
    ) {
        let new = || (title.to_owned(), Vec::new());
        let (_, lines) = self.charts.entry(file).or_insert_with(new);
        if lines.iter().all(|line| line.name != who) {
            let name = who.to_owned();
            lines.push(Series { name, points });
        }
    }

    /// Writes the charts into this folder.
    pub(crate) fn write_charts(&self, folder: &Path) -> Result<(), String> {
        for (file, (title, lines)) in &self.charts {
            plot::write(&folder.join(file), title, lines)?;
        }
        Ok(())
    }

    /// Adds a derived figure of an earlier round.
    pub(crate) fn add_derived(&mut self, derived: &Derived) {
        let figure = derived.figure;
        if !self.figures.contains_key(figure) {
            let place = self.order.iter().position(|known| known == derived.below);
            let place = place.map_or(self.order.len(), |place| place + 1);
            self.order.insert(place, figure.to_owned());
        }
        self.push(derived.who, figure, derived.round, derived.value);
    }

    fn push(&mut self, who: &'static str, figure: &str, round: usize, value: f64) {
        let of_all = self.figures.entry(figure.to_owned()).or_default();
        of_all.entry(who).or_default().push(Figure { round, value });
    }

    /// The median of a figure over all rounds; `None` if it was not measured.
    pub(crate) fn median(&self, who: &str, figure: &str) -> Option<f64> {
        self.median_of(who, figure, |_| true)
    }

    /// The median of a figure in one round, counted from 1; `None` if it was not measured.
    pub(crate) fn of_round(&self, who: &str, figure: &str, round: usize) -> Option<f64> {
        self.median_of(who, figure, |it| it.round == round)
    }

    /// Number of rounds so far.
    pub(crate) fn n_rounds(&self) -> usize {
        self.rounds.len()
    }

    fn median_of(
        &self,
        who: &str,
        figure: &str,
        is_selected: impl Fn(&Figure) -> bool,
    ) -> Option<f64> {
        let figures = self.figures.get(figure)?.get(who)?.iter();
        let selected = figures.filter(|it| is_selected(it));
        let values: Vec<f64> = selected.map(|it| it.value).collect();
        (!values.is_empty()).then(|| median(&values))
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
            let cell = |who: &str| self.figures[figure].get(who).map(|of| spread(&plain(of)));
            if let Some(floor) = cell(FLOOR) {
                print_line(&format!("| {figure} | {floor} (API server) | | |"));
                continue;
            }
            let medians = (self.median(OURS, figure), self.median(ORIGINAL, figure));
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
        let figures = self.figures.iter().map(|(figure, of_all)| {
            let values = of_all.iter().map(|(who, of)| (*who, plain(of)));
            (figure, values.collect::<BTreeMap<_, _>>())
        });
        let figures: BTreeMap<_, _> = figures.collect();
        json!({"order": self.rounds, "figures": figures, "samples": self.samples})
    }
}

fn plain(figures: &[Figure]) -> Vec<f64> {
    figures.iter().map(|figure| figure.value).collect()
}

/// Prints a line to standard output.
pub(crate) fn print_line(line: &str) {
    // A reader that has closed the pipe is no error.
    writeln!(std::io::stdout(), "{line}").unwrap_or_default();
}
