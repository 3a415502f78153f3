//! Explains why a ReplicaSet has its pods, and what the next sync would do. The input is a running
//! daemon's facts or the API alone; the output is a report for people and programs.
//!
//! [`report()`] is pure and decides with the controller's own code (`plan`, `deletion_order` and
//! `claim` of `controller::decide`). A [`Table`] has one row for each object that has not
//! converged. [`inspect`] reads the input of both
//! from a running controller, [`api_facts`] from an API server. The daemon's debug pages
//! run on the connection's thread, and the command `explain` on its main thread.

pub mod api_facts;
pub mod findings;
pub mod inspect;
pub mod model;
pub mod report;

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use self::inspect::ReplicaSetFacts;
use self::model::Finding;
use crate::deployment::Deployment;
use crate::deployment::objects::DEPLOYMENT;
use crate::stdx::escape::{escaped, escaped_html};

pub use api_facts::{ApiError, ApiFacts, read_deployment, read_table};
pub use model::{Report, Sources};
pub use report::report;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Table {
    /// How many objects of each kind were looked at.
    pub looked_at: BTreeMap<String, usize>,
    /// Those that have not converged, by namespace and name.
    pub not_converged: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// `ReplicaSet` or `ReplicationController`, or `Deployment` if none of its ReplicaSets shows
    /// its problem.
    pub kind: String,
    pub namespace: String,
    pub name: String,
    /// Its controller as `Kind/name`, such as the Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// `spec.replicas`.
    pub desired: i32,
    /// Pods that count as replicas.
    pub active: usize,
    pub ready: usize,
    pub available: usize,
    /// The most important problem, or what the next sync does.
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Since when, as far as its objects and the record of a daemon show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What the next sync does, and what it waits for.
    #[serde(default)]
    pub next: String,
}

impl Table {
    /// A table of `n` objects of `kind`, all converged so far.
    pub fn of(kind: &str, n: usize) -> Self {
        Self {
            looked_at: BTreeMap::from([(kind.to_owned(), n)]),
            not_converged: Vec::new(),
        }
    }

    pub fn add(&mut self, facts: &ReplicaSetFacts, sources: &Sources, now: Timestamp) {
        let report = report(facts, sources, now);
        if !report.has_converged() {
            self.not_converged.push(Row::of(&report));
        }
    }

    pub fn merge(&mut self, other: Self) {
        for (kind, n) in other.looked_at {
            *self.looked_at.entry(kind).or_default() += n;
        }
        self.not_converged.extend(other.not_converged);
        self.not_converged
            .sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
    }
}

impl Row {
    fn of(report: &Report) -> Self {
        let (reason, fix) = report.reason();
        Self {
            kind: report.kind.to_owned(),
            namespace: report.namespace.clone(),
            name: report.name.clone(),
            owner: report.owner.clone(),
            desired: report.desired,
            active: report.active,
            ready: report.ready,
            available: report.available,
            reason,
            fix,
            since: report.since,
            next: report.next.in_words(),
        }
    }

    /// The row of a Deployment with this problem.
    fn of_deployment(d: &Deployment, problem: Finding) -> Self {
        let count = |n: Option<i32>| n.and_then(|n| usize::try_from(n).ok()).unwrap_or_default();
        Self {
            kind: DEPLOYMENT.to_owned(),
            namespace: d.key.namespace.to_string(),
            name: d.key.name.to_string(),
            owner: None,
            desired: d.replicas,
            active: count(d.status.replicas),
            ready: count(d.status.ready_replicas),
            available: count(d.status.available_replicas),
            reason: problem.what,
            fix: problem.fix,
            since: None,
            next: String::new(),
        }
    }

    fn sort_key(&self) -> (&str, &str, &str) {
        (&self.namespace, &self.name, &self.kind)
    }

    /// The kind as kubectl abbreviates it, and the resource.
    fn short_and_resource(&self) -> (&'static str, &'static str) {
        match &*self.kind {
            "Deployment" => ("deploy", "deployments"),
            "ReplicationController" => ("rc", "replicationcontrollers"),
            _ => ("rs", "replicasets"),
        }
    }

    /// As kubectl takes it: `rs/web`.
    fn object(&self) -> String {
        format!("{}/{}", self.short_and_resource().0, self.name)
    }

    /// The cells of a browser's table: those of the text, with the report behind the name, the age
    /// of the problem and what comes next.
    fn html(&self, now: Timestamp) -> String {
        let [
            namespace,
            object,
            owner,
            desired,
            active,
            ready,
            available,
            reason,
        ] = self.cells().map(|cell| escaped_html(&cell));
        let (_, resource) = self.short_and_resource();
        // Names of objects need no encoding in a URL.
        let path = escaped_html(&format!(
            "/debug/{resource}/{}/{}",
            self.namespace, self.name
        ));
        let since = self.since.map_or("-".to_owned(), |since| {
            let age = SignedDuration::from_secs(now.duration_since(since).as_secs().max(0));
            format!("<time datetime=\"{since}\" title=\"{since}\">{age:#}</time>")
        });
        let fix = self.fix.as_deref().map_or(String::new(), |fix| {
            format!("<p>{}</p>", escaped_html(&escaped(fix)))
        });
        let next = escaped_html(&escaped(&self.next));
        format!(
            "<tr><td>{namespace}</td><td><a href=\"{path}\">{object}</a></td><td>{owner}</td>\
             <td>{desired}</td><td>{active}</td><td>{ready}</td><td>{available}</td>\
             <td>{since}</td><td>{reason}{fix}</td><td>{next}</td></tr>\n"
        )
    }

    fn cells(&self) -> [String; 8] {
        [
            escaped(&self.namespace).into_owned(),
            escaped(&self.object()).into_owned(),
            escaped(self.owner.as_deref().unwrap_or("-")).into_owned(),
            self.desired.to_string(),
            self.active.to_string(),
            self.ready.to_string(),
            self.available.to_string(),
            escaped(&self.reason).into_owned(),
        ]
    }
}

const HEAD: [&str; 8] = [
    "NAMESPACE",
    "NAME",
    "OWNER",
    "DESIRED",
    "ACTIVE",
    "READY",
    "AVAILABLE",
    "REASON",
];

/// Rows of a browser's table; `explain` and the page of each kind have all of them.
const HTML_ROWS_MAX: usize = 500;

impl Table {
    /// The table for a browser, as of `now`. Escapes text from the cluster.
    pub fn html(&self, now: Timestamp) -> String {
        let rows = self.not_converged.iter().take(HTML_ROWS_MAX);
        let rows: String = rows.map(|row| row.html(now)).collect();
        let counts = HEAD.split_last().map_or(&[][..], |(_, counts)| counts);
        let head = [counts, &["SINCE", "WHY", "NEXT SYNC"]].concat();
        let head = head.join("</th><th>");
        let table = match &*rows {
            "" => String::new(),
            rows => {
                format!("<table class=\"objects\">\n<tr><th>{head}</th></tr>\n{rows}</table>\n")
            }
        };
        let more = match self.not_converged.len().saturating_sub(HTML_ROWS_MAX) {
            0 => String::new(),
            n => format!("<p>and {n} more</p>\n"),
        };
        format!("<h2>{}</h2>\n{table}{more}", escaped_html(&self.summary()))
    }

    /// How many have converged, in words.
    fn summary(&self) -> String {
        let total: usize = self.looked_at.values().sum();
        let n = self.not_converged.len();
        let plural = |kind: &String| format!("{}s", escaped(kind));
        if total == 0 {
            let kinds: Vec<String> = self.looked_at.keys().map(plural).collect();
            return format!("no {} found", kinds.join(" or "));
        }
        let kinds = self.looked_at.iter().filter(|(_, n)| **n > 0);
        let kinds: Vec<String> = kinds.map(|(kind, _)| plural(kind)).collect();
        let kinds = kinds.join(" and ");
        let have = |n: usize| if n == 1 { "has" } else { "have" };
        match n {
            0 => format!("{total} of {total} {kinds} {} converged", have(total)),
            n => format!("{n} of {total} {kinds} {} not converged", have(n)),
        }
    }
}

impl fmt::Display for Table {
    /// As kubectl prints tables. Escapes text from the cluster, so that it can neither control the
    /// terminal nor forge a row.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.not_converged.is_empty() {
            return writeln!(f, "{}", self.summary());
        }
        let mut rows = vec![HEAD.map(str::to_owned)];
        rows.extend(self.not_converged.iter().map(Row::cells));
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
        for row in &rows {
            let (reason, cells) = row.split_last().expect("a row has cells");
            for (cell, &width) in cells.iter().zip(&widths) {
                write!(f, "{cell:width$}   ")?;
            }
            writeln!(f, "{reason}")?;
        }
        writeln!(f, "\n{}", self.summary())
    }
}

#[cfg(test)]
mod tests;
