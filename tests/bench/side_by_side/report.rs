//! The figures: collected, and printed as a table.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Value, json};

use crate::statistics::{median, show, spread};

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
    figures: BTreeMap<String, BTreeMap<&'static str, Vec<Figure>>>,
    /// What some figures were made of: a list for each time that they were measured.
    samples: BTreeMap<String, BTreeMap<&'static str, Vec<Vec<f64>>>>,
    /// Who was measured in each round, in this order.
    rounds: Vec<Vec<&'static str>>,
}

/// One figure as it was measured in one round.
#[derive(Clone, Copy, Debug)]
struct Figure {
    round: usize,
    value: f64,
}

/// A figure that follows from others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Derived {
    pub(crate) who: &'static str,
    pub(crate) figure: &'static str,
    /// The figure that stands before it in the table.
    pub(crate) below: &'static str,
    pub(crate) round: usize,
    pub(crate) value: f64,
}

impl Report {
    /// What is added from now on belongs to the next round, in which `contestants` take turns like this.
    pub(crate) fn begin_round(&mut self, contestants: Vec<&'static str>) {
        self.rounds.push(contestants);
    }

    /// Notes `value` for `figure`, which names its unit.
    pub(crate) fn add(&mut self, who: &'static str, figure: &str, value: f64) {
        print_line(&format!("  {figure}: {}", show(value)));
        if !self.figures.contains_key(figure) {
            self.order.push(figure.to_owned());
        }
        self.note(who, figure, self.rounds.len(), value);
    }

    /// Notes the single values that figures are made of.
    pub(crate) fn add_samples(&mut self, who: &'static str, what: &str, values: Vec<f64>) {
        let of_all = self.samples.entry(what.to_owned()).or_default();
        of_all.entry(who).or_default().push(values);
    }

    /// Notes a figure of an earlier round.
    pub(crate) fn add_derived(&mut self, derived: &Derived) {
        let figure = derived.figure;
        if !self.figures.contains_key(figure) {
            let place = self.order.iter().position(|known| known == derived.below);
            let place = place.map_or(self.order.len(), |place| place + 1);
            self.order.insert(place, figure.to_owned());
        }
        self.note(derived.who, figure, derived.round, derived.value);
    }

    fn note(&mut self, who: &'static str, figure: &str, round: usize, value: f64) {
        let of_all = self.figures.entry(figure.to_owned()).or_default();
        of_all.entry(who).or_default().push(Figure { round, value });
    }

    /// The median of a figure over all rounds, if it was measured.
    pub(crate) fn median(&self, who: &str, figure: &str) -> Option<f64> {
        self.values(who, figure, |_| true)
    }

    /// A figure as it was in one round, the first being number 1; the median where it was measured more
    /// than once.
    pub(crate) fn of_round(&self, who: &str, figure: &str, round: usize) -> Option<f64> {
        self.values(who, figure, |one| one.round == round)
    }

    /// How many rounds have begun.
    pub(crate) fn n_rounds(&self) -> usize {
        self.rounds.len()
    }

    fn values(&self, who: &str, figure: &str, which: impl Fn(&Figure) -> bool) -> Option<f64> {
        let figures = self.figures.get(figure)?.get(who)?.iter();
        let values: Vec<f64> = figures.filter(|one| which(one)).map(|f| f.value).collect();
        (!values.is_empty()).then(|| median(&values))
    }

    /// Prints the table: medians, the ratio, the spread.
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
                (Some(ours), Some(original)) if original > 0.0 => show(ours / original),
                _ => String::new(),
            };
            let original = cell(ORIGINAL).unwrap_or_default();
            let ours = cell(OURS).unwrap_or_default();
            print_line(&format!("| {figure} | {original} | {ours} | {ratio} |"));
        }
    }

    /// Every single figure, as the value of some fields.
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

/// One line for people.
pub(crate) fn print_line(line: &str) {
    // Whoever closed the pipe has seen enough.
    writeln!(std::io::stdout(), "{line}").unwrap_or_default();
}
