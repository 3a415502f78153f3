//! Explains why a ReplicaSet has its pods, and what the next sync would do. The input is a running
//! daemon's facts or the API alone; the output is a report for people and programs.
//!
//! [`report()`] is pure and decides with the controller's own code (`plan`, `deletion_order` and
//! `claim` of `controller::decide`). A [`Table`] has one row for each object that has not
//! converged. [`api_facts`] reads the input of both from an API server. The daemon's debug pages
//! run on the connection's thread, and the command `explain` on its main thread.

pub mod api_facts;
pub mod findings;
pub mod model;
pub mod report;

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::controller::inspect::ReplicaSetFacts;
use crate::stdx::escape::escaped;

pub use api_facts::{ApiError, ApiFacts, read_table};
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
    /// `ReplicaSet` or `ReplicationController`.
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
        }
    }

    fn sort_key(&self) -> (&str, &str, &str) {
        (&self.namespace, &self.name, &self.kind)
    }

    /// As kubectl takes it: `rs/web`.
    fn object(&self) -> String {
        let short = match &*self.kind {
            "ReplicationController" => "rc",
            _ => "rs",
        };
        format!("{short}/{}", self.name)
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

impl fmt::Display for Table {
    /// As kubectl prints tables. Escapes text from the cluster, so that it can neither control the
    /// terminal nor forge a row.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.looked_at.values().all(|n| *n == 0) {
            let kinds = self.looked_at.keys();
            let kinds: Vec<String> = kinds.map(|kind| format!("{}s", escaped(kind))).collect();
            return writeln!(f, "no {} found", kinds.join(" or "));
        }
        let total: usize = self.looked_at.values().sum();
        let kinds = self.looked_at.iter().filter(|(_, n)| **n > 0);
        let kinds: Vec<String> = kinds
            .map(|(kind, _)| format!("{}s", escaped(kind)))
            .collect();
        let kinds = kinds.join(" and ");
        let have = |n: usize| if n == 1 { "has" } else { "have" };
        let n = self.not_converged.len();
        if n == 0 {
            return writeln!(f, "{total} of {total} {kinds} {} converged", have(total));
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
        writeln!(f, "\n{n} of {total} {kinds} {} not converged", have(n))
    }
}

#[cfg(test)]
mod tests {
    use super::{Row, Table};

    fn row(kind: &str, namespace: &str, name: &str, reason: &str) -> Row {
        Row {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            owner: (kind == "ReplicaSet").then(|| "Deployment/web".to_owned()),
            desired: 3,
            active: 2,
            ready: 1,
            available: 0,
            reason: reason.to_owned(),
            fix: None,
        }
    }

    #[test]
    fn both_kinds_are_in_one_table_by_namespace_and_name() {
        let mut table = Table::of("ReplicaSet", 10);
        table.not_converged = vec![row("ReplicaSet", "shop", "web", "no quota")];
        let mut other = Table::of("ReplicationController", 2);
        other.not_converged = vec![row(
            "ReplicationController",
            "a",
            "old",
            "a\nforged\u{1b}[2K",
        )];
        table.merge(other);
        let expected = "\
NAMESPACE   NAME     OWNER            DESIRED   ACTIVE   READY   AVAILABLE   REASON
a           rc/old   -                3         2        1       0           a\\nforged\\u{1b}[2K
shop        rs/web   Deployment/web   3         2        1       0           no quota

2 of 12 ReplicaSets and ReplicationControllers have not converged
";
        assert_eq!(table.to_string(), expected);
        let json = serde_json::to_string(&table).expect("text keys");
        let read: Table = serde_json::from_str(&json).expect("a table");
        assert_eq!(read, table);
    }

    #[test]
    fn an_empty_table_is_explained() {
        let mut table = Table::of("ReplicaSet", 0);
        assert_eq!(table.to_string(), "no ReplicaSets found\n");
        table.merge(Table::of("ReplicaSet", 4));
        assert_eq!(table.to_string(), "4 of 4 ReplicaSets have converged\n");
    }
}
