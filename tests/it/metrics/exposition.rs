//! A strict parser for `/metrics`: every sample must belong to a family with `# HELP` and `# TYPE`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A metric family without its values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) kind: String,
    pub(crate) help: String,
    /// Names of the labels except `le`.
    pub(crate) labels: BTreeSet<String>,
    /// Upper bounds of a histogram's buckets without exponents, except `+Inf`.
    pub(crate) bounds: Vec<String>,
}

/// A line with a value.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// A parsed page.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    pub(crate) families: BTreeMap<String, Shape>,
    pub(crate) samples: Vec<Sample>,
}

impl Exposition {
    /// Parses format 0.0.4. Panics on anything else.
    #[track_caller]
    pub(crate) fn read(text: &str) -> Self {
        let mut exposition = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
                let shape = exposition.families.entry(name.to_owned()).or_default();
                assert_eq!(shape.help, "", "{name} has two HELP lines");
                help.clone_into(&mut shape.help);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a name and a type");
                let shape = exposition.families.entry(name.to_owned()).or_default();
                assert_eq!(shape.kind, "", "{name} has two types");
                kind.clone_into(&mut shape.kind);
            } else {
                exposition.add_sample(line);
            }
        }
        exposition
    }

    fn add_sample(&mut self, line: &str) {
        let (series, value) = line.rsplit_once(' ').expect("a series and a value");
        let value = match value {
            "+Inf" => f64::INFINITY,
            value => value.parse().expect("a number"),
        };
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, read_labels(labels)),
            None => (series, BTreeMap::new()),
        };
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| {
            let family = name.strip_suffix(suffix)?;
            let kind = &self.families.get(family)?.kind;
            ["histogram", "summary"]
                .contains(&kind.as_str())
                .then(|| family.to_owned())
        });
        let family = family.unwrap_or_else(|| name.to_owned());
        let shape = self.families.get_mut(&family);
        let shape = shape.unwrap_or_else(|| panic!("{line}: no HELP or TYPE line"));
        let is_bound = |label: &&String| ["le", "quantile"].contains(&label.as_str());
        shape
            .labels
            .extend(labels.keys().filter(|label| !is_bound(label)).cloned());
        if let Some(bound) = labels.get("le")
            && bound != "+Inf"
        {
            // Prometheus 3 normalizes bounds as well: Go writes 1e-08, Rust 0.00000001.
            let bound: f64 = bound.parse().expect("a bound is a number");
            let bound = bound.to_string();
            if !shape.bounds.contains(&bound) {
                shape.bounds.push(bound);
            }
        }
        self.samples.push(Sample {
            name: name.to_owned(),
            labels,
            value,
        });
    }

    /// The sum of all samples with this name and these labels; 0 if there are none.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |sample: &&Sample| {
            let wanted = |(label, value): &(&str, &str)| {
                sample.labels.get(*label).map(String::as_str) == Some(*value)
            };
            sample.name == name && labels.iter().all(wanted)
        };
        self.samples
            .iter()
            .filter(has)
            .map(|sample| sample.value)
            .sum()
    }
}

fn read_labels(text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut rest = text.strip_suffix('}').expect("labels end with a brace");
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").expect("a label has a value");
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().expect("a value ends with a quote") {
                (end, '"') => break end,
                (_, '\\') => {
                    value.extend(chars.next().map(|(_, c)| if c == 'n' { '\n' } else { c }));
                }
                (_, c) => value.push(c),
            }
        };
        let is_new = labels.insert(name.to_owned(), value).is_none();
        assert!(is_new, "{text}: duplicate label {name}");
        rest = after[end + 1..].trim_start_matches(',');
    }
    labels
}

/// The format of a line of the snapshot: `kind {label,label} [bound,bound] help`.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<&str> = self.labels.iter().map(String::as_str).collect();
        let (labels, bounds) = (labels.join(","), self.bounds.join(","));
        write!(f, "{} {{{labels}}} [{bounds}] {}", self.kind, self.help)
    }
}
