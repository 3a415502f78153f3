//! The report: its data, which is serialized as JSON for programs, and its text for people.

use std::fmt;
use std::fmt::Write;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::api::conditions::Condition;
use crate::api::{Pod, Uid};
use crate::deployment::Rollout;
use crate::stdx::HashMap;
use crate::stdx::escape::{escaped, escaped_lines};

/// The report's input besides the facts.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Recent events about the ReplicaSet, oldest first; `None` if nothing read them.
    pub events: Option<Vec<EventLine>>,
    /// Finalizers of the pods for which they are known.
    pub finalizers: HashMap<Uid, Vec<String>>,
    /// Why pods are not running or have failed, if known: `Unschedulable`, a container's waiting
    /// reason, or the reason of the pod's status.
    pub reasons: HashMap<Uid, String>,
    /// True if the namespace is terminating; `None` if unknown.
    pub namespace_is_terminating: Option<bool>,
    /// The Workload that asks for gang scheduling, if the API server serves any.
    pub gang_workload: Option<String>,
    /// The rollout of the Deployment that controls the ReplicaSet, or why it is unknown.
    pub rollout: Option<Result<Rollout, String>>,
    /// The facts are those of a daemon that another one holds the Lease of.
    pub is_standby: bool,
}

impl Sources {
    /// Why this pod is not running or has failed.
    pub fn reason_of(&self, pod: &Pod) -> Option<&str> {
        self.reasons.get(&pod.uid).map(String::as_str)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    pub(super) fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            fix: Some(fix.into()),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// `ReplicaSet` or `ReplicationController`.
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// Its controller as `Kind/name`, such as the Deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The other ReplicaSets of that controller.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub siblings: Vec<Sibling>,
    /// The rollout of that controller, if it is a Deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// `daemon` if the facts come from a running daemon, `api` if from the API server alone.
    pub source: &'static str,
    /// `spec.replicas`.
    pub desired: i32,
    /// Pods that it controls.
    pub owned: usize,
    /// Pods that count as replicas.
    pub active: usize,
    /// Active pods that are Ready.
    pub ready: usize,
    /// Active pods that are available.
    pub available: usize,
    pub generation: i64,
    pub observed_generation: i64,
    /// Why the ReplicaSet makes no progress, most important first; empty if it is in its desired
    /// state.
    pub findings: Vec<Finding>,
    /// Since when it has not converged, as far as its objects and the record show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    pub next: NextStep,
    pub deletion_order: Vec<Deletion>,
    pub deletion_order_total: usize,
    pub not_counted: Vec<NotCounted>,
    pub not_counted_total: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryReport>,
    pub conditions: Vec<Condition>,
    /// Recent events, oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<EventLine>>,
}

/// The report of a Deployment without a ReplicaSet.
#[derive(Clone, Debug, Serialize)]
pub struct DeploymentReport {
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    pub source: &'static str,
    pub findings: Vec<Finding>,
    pub rollout: Rollout,
}

impl fmt::Display for DeploymentReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rollout.fmt(f)?;
        let text = fmt::from_fn(|f| fmt_findings(&self.findings, f)).to_string();
        f.write_str(&escaped_lines(&text))
    }
}

/// Another ReplicaSet of the same controller, such as the old one of a Deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sibling {
    pub name: String,
    /// `spec.replicas`.
    pub desired: i32,
    /// `status.replicas`.
    pub replicas: i32,
}

impl Report {
    pub fn has_converged(&self) -> bool {
        self.findings.is_empty() && self.next.is_nothing()
    }

    /// Why it has not converged, in one line, and the fix: the most important finding, or else what
    /// the next sync does.
    pub fn reason(&self) -> (String, Option<String>) {
        match self.findings.first() {
            Some(finding) => (finding.what.clone(), finding.fix.clone()),
            None => (format!("next sync: {}", self.next), None),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NextStep {
    /// `create`, `delete` or `nothing`.
    pub action: &'static str,
    pub count: usize,
    pub pods: Vec<Deletion>,
    pub pods_total: usize,
    pub adopts: Vec<String>,
    pub releases: Vec<String>,
    /// The number of Failed pods that are deleted because they are not kept, some by each sync.
    pub old_failed_pods: usize,
    /// Why the sync does not act yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backed_off: Option<String>,
}

impl NextStep {
    /// True if a sync would leave all pods as they are.
    pub fn is_nothing(&self) -> bool {
        self.action == "nothing" && self.adopts.is_empty() && self.releases.is_empty()
    }

    /// What the sync would do, and what it waits for.
    pub fn in_words(&self) -> String {
        match &self.backed_off {
            Some(backed_off) => format!("{self}, but not yet: {backed_off}"),
            None => self.to_string(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Deletion {
    pub pod: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<&'static str>,
    /// The rule in words, with this pod's value and the next pod's.
    pub because: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ties_with: Option<String>,
    /// True if no scale-down deletes it.
    #[serde(skip)]
    pub is_spared: bool,
}

impl Deletion {
    pub(super) fn new(pod: &Pod, rule: Option<&'static str>, because: impl Into<String>) -> Self {
        Self {
            pod: pod.key.name.to_string(),
            rule,
            because: because.into(),
            ties_with: None,
            is_spared: false,
        }
    }

    fn why(&self) -> String {
        let rule = self.rule.map_or(String::new(), |rule| format!("{rule}: "));
        format!("{rule}{}", self.because)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NotCounted {
    pub pod: String,
    /// `terminating`, `finished`, `does-not-match` or `other-owner`.
    pub reason: &'static str,
    /// The reason in words.
    pub because: String,
}

impl NotCounted {
    pub(super) fn new(pod: &Pod, reason: &'static str, because: impl Into<String>) -> Self {
        Self {
            pod: pod.key.name.to_string(),
            reason,
            because: because.into(),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryReport {
    /// Names of created pods that the watch has not delivered yet.
    pub expected_creations: Vec<String>,
    pub expected_creations_total: usize,
    /// Deleted pods whose deletion the watch has not delivered yet: names if the cache knows them,
    /// UIDs otherwise.
    pub expected_deletions: Vec<String>,
    pub expected_deletions_total: usize,
    /// The age of these expectations, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expectations_age_seconds: Option<f64>,
    /// Pods whose creation or deletion had an unknown outcome. The next sync retries these first.
    pub unresolved: Vec<String>,
    pub unresolved_total: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for_pods_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for_replica_sets_version: Option<String>,
    pub cached_pods_version: String,
    pub cached_replica_sets_version: String,
    /// When the last recorded sync began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sync_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sync_seconds: Option<f64>,
    /// The outcome: `synced`, `tooEarly`, `failed` or `panicked`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sync_end: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error_at: Option<Timestamp>,
    pub failures: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try_seconds: Option<f64>,
    pub is_queued: bool,
    pub is_syncing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Timestamp>,
    pub count: i64,
    pub type_: String,
    pub reason: String,
    pub message: String,
    pub component: String,
}

/// Maximum lines per list; the JSON form has more.
const LINES_MAX: usize = 10;

impl fmt::Display for Report {
    /// Escapes text from the cluster, such as a condition's message, so that it can neither control
    /// the terminal nor forge a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = fmt::from_fn(|f| self.fmt_text(f)).to_string();
        f.write_str(&escaped_lines(&text))
    }
}

impl fmt::Display for NextStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut steps = Vec::new();
        if !self.adopts.is_empty() {
            steps.push(format!(
                "adopt {}",
                some_of(&self.adopts, self.adopts.len())
            ));
        }
        if !self.releases.is_empty() {
            steps.push(format!(
                "release {}",
                some_of(&self.releases, self.releases.len())
            ));
        }
        let plural = |n| if n == 1 { "" } else { "s" };
        if self.action != "nothing" {
            let (action, n) = (self.action, self.count);
            steps.push(format!("{action} {n} pod{}", plural(n)));
        }
        if self.old_failed_pods > 0 {
            let n = self.old_failed_pods;
            steps.push(format!("delete {n} old Failed pod{}", plural(n)));
        }
        if steps.is_empty() {
            steps.push("no action".to_owned());
        }
        f.write_str(&steps.join(", "))
    }
}

impl Report {
    fn fmt_text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.owner.as_ref();
        let of = of.map_or_else(String::new, |owner| {
            format!(" of {}", owner.replace('/', " "))
        });
        writeln!(f, "{} {}/{}{of}", self.kind, self.namespace, self.name)?;
        writeln!(
            f,
            "  desired {}, active {}, ready {}, available {} (owns {} pods)",
            self.desired, self.active, self.ready, self.available, self.owned
        )?;
        writeln!(
            f,
            "  generation {}, observed {}; source: {}",
            self.generation,
            self.observed_generation,
            match self.source {
                "daemon" => {
                    "the running daemon (without --server, explain also shows events and why pods \
                     do not run)"
                }
                _ => "the API server",
            }
        )?;
        if let Some(rollout) = &self.rollout {
            write!(f, "\n{rollout}")?;
        }
        if self
            .rollout
            .as_ref()
            .is_none_or(|it| it.new.is_none() && it.old.is_empty())
        {
            self.fmt_siblings(f)?;
        }
        self.fmt_findings(f)?;
        self.fmt_next(f)?;
        self.fmt_not_counted(f)?;
        self.fmt_deletion_order(f)?;
        if let Some(memory) = &self.memory {
            fmt_memory(memory, f)?;
        }
        self.fmt_conditions(f)?;
        self.fmt_events(f)
    }

    fn fmt_siblings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_idle = |sibling: &&Sibling| sibling.desired == 0 && sibling.replicas == 0;
        let (idle, busy): (Vec<_>, Vec<_>) = self.siblings.iter().partition(is_idle);
        for Sibling {
            name,
            desired,
            replicas,
        } in busy
        {
            writeln!(
                f,
                "  same owner: {name}, desired {desired}, replicas {replicas}"
            )?;
        }
        match idle.len() {
            0 => Ok(()),
            n => writeln!(f, "  same owner: {n} more, scaled to 0"),
        }
    }

    fn fmt_findings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_converged() {
            return writeln!(
                f,
                "\nConverged: {} of {} pods are available.",
                self.available, self.desired
            );
        }
        fmt_findings(&self.findings, f)
    }

    fn fmt_next(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let next = &self.next;
        writeln!(f, "\nNext sync: {}", next.in_words())?;
        fmt_deletions(&next.pods, next.pods_total, f)
    }

    fn fmt_not_counted(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.not_counted.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nPods that do not count as replicas:")?;
        for pod in self.not_counted.iter().take(LINES_MAX) {
            writeln!(f, "  {}: {}", pod.pod, pod.because)?;
        }
        fmt_more(LINES_MAX, self.not_counted_total, f)
    }

    fn fmt_deletion_order(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A report with pending deletions already lists them in order.
        if self.deletion_order.len() < 2 || !self.next.pods.is_empty() {
            return Ok(());
        }
        let spared = self.deletion_order.iter().position(|it| it.is_spared);
        let (deleted, spared) = self
            .deletion_order
            .split_at(spared.unwrap_or(self.deletion_order.len()));
        let total = self.deletion_order_total;
        if !deleted.is_empty() {
            let total = if spared.is_empty() {
                total
            } else {
                deleted.len()
            };
            writeln!(f, "\nA scale-down would delete, in this order:")?;
            fmt_deletions(deleted, total, f)?;
        }
        if !spared.is_empty() {
            let names: Vec<String> = spared.iter().map(|it| it.pod.clone()).collect();
            let names = some_of(&names, total - deleted.len());
            writeln!(
                f,
                "\nNot deleted by a scale-down (scale-down=never): {names}"
            )?;
        }
        Ok(())
    }

    fn fmt_conditions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.conditions.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nConditions:")?;
        for condition in &self.conditions {
            let since = condition.last_transition_time;
            let since = since.map_or(String::new(), |since| format!(" since {since}"));
            let reason = condition.reason.as_deref().unwrap_or_default();
            let message = condition.message.as_deref().unwrap_or_default();
            let (type_, status) = (&condition.type_, &condition.status);
            let line = format!("{type_}={status}{since} {reason}: {message}");
            writeln!(f, "  {}", escaped(&line))?;
        }
        Ok(())
    }

    fn fmt_events(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(events) = &self.events else {
            return Ok(());
        };
        if events.is_empty() {
            return writeln!(f, "\nNo recent events.");
        }
        writeln!(f, "\nRecent events:")?;
        for event in events.iter().rev().take(LINES_MAX).rev() {
            let seen = event
                .last_seen
                .map_or(String::new(), |seen| seen.to_string());
            let times = match event.count {
                0 | 1 => String::new(),
                count => format!(" (x{count})"),
            };
            let (type_, reason, message) = (&event.type_, &event.reason, &event.message);
            let line = format!("{seen} {type_} {reason}{times}: {message}");
            writeln!(f, "  {}", escaped(&line))?;
        }
        fmt_more(LINES_MAX, events.len(), f)
    }
}

fn fmt_findings(findings: &[Finding], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if findings.is_empty() {
        return Ok(());
    }
    writeln!(f, "\nProblems:")?;
    for finding in findings {
        writeln!(f, "  - {}", escaped(&finding.what))?;
        if let Some(fix) = &finding.fix {
            writeln!(f, "    fix: {}", escaped(fix))?;
        }
    }
    Ok(())
}

/// Writes the first of `total` deletions. Pods that no rule separates share a line.
fn fmt_deletions(deletions: &[Deletion], total: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    // A pod of a sorted list ties with the next one. Of several chosen pods, each may tie with the
    // first one that stays.
    let is_group = |a: &Deletion, b: &Deletion| {
        a.ties_with.is_some()
            && (a.ties_with.as_ref() == Some(&b.pod) || a.ties_with == b.ties_with)
    };
    let mut n_written = 0;
    for group in deletions.chunk_by(is_group).take(LINES_MAX) {
        n_written += group.len();
        let Some((last, [_, ..])) = group.split_last() else {
            writeln!(f, "  {}  {}", group[0].pod, group[0].why())?;
            continue;
        };
        let names: Vec<String> = group.iter().map(|it| it.pod.clone()).collect();
        let names = some_of(&names, names.len());
        match &last.ties_with {
            Some(other) => writeln!(f, "  {names}  equal to {other}")?,
            None => writeln!(f, "  {names}  equal, in any order; {}", last.why())?,
        }
    }
    fmt_more(n_written, total, f)
}

fn fmt_memory(memory: &MemoryReport, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "\nController state:")?;
    match (
        memory.last_sync_at,
        memory.last_sync_seconds,
        memory.last_sync_end,
    ) {
        (Some(at), Some(seconds), Some(end)) => {
            let took = Duration::try_from_secs_f64(seconds).unwrap_or_default();
            let took = Duration::from_micros(took.as_micros().try_into().unwrap_or_default());
            let end = match end {
                "tooEarly" => {
                    "postponed: waiting for the watch to show earlier writes, or for a free slot \
                     for large syncs"
                }
                "backedOff" => "synced, but creates are backed off",
                end => end,
            };
            writeln!(f, "  last sync: {at:.3}, {took:?}, {end}")?;
        }
        _ => writeln!(f, "  last sync: none recently")?,
    }
    if let Some(error) = &memory.last_error {
        let at = memory
            .last_error_at
            .map_or(String::new(), |at| format!("{at:.3}, "));
        writeln!(f, "  last error: {at}{}", escaped(error))?;
    }
    let mut queue = String::new();
    if memory.is_syncing {
        queue += "being synced; ";
    }
    if memory.is_queued {
        queue += "waiting for a worker; ";
    }
    write!(queue, "{} failures", memory.failures)?;
    if let Some(due) = memory.next_try_seconds {
        write!(queue, ", next scheduled sync in {due:.1} s")?;
    }
    writeln!(f, "  queue: {queue}")?;
    match memory.expectations_age_seconds {
        None => writeln!(f, "  expectations: none open")?,
        Some(age) => {
            writeln!(
                f,
                "  expectations: {age:.1} s old; to be created: {}; to be deleted: {}",
                some_of(&memory.expected_creations, memory.expected_creations_total),
                some_of(&memory.expected_deletions, memory.expected_deletions_total)
            )?;
        }
    }
    if !memory.unresolved.is_empty() {
        let names = some_of(&memory.unresolved, memory.unresolved_total);
        writeln!(f, "  writes of unknown outcome, to be retried: {names}")?;
    }
    for (what, waits_for, cached) in [
        (
            "pods",
            &memory.waits_for_pods_version,
            &memory.cached_pods_version,
        ),
        (
            "ReplicaSets",
            &memory.waits_for_replica_sets_version,
            &memory.cached_replica_sets_version,
        ),
    ] {
        if let Some(version) = waits_for {
            writeln!(
                f,
                "  waiting for version {version} of {what}; the cache is at {cached}"
            )?;
        }
    }
    Ok(())
}

/// Says how many of `total` lines are left out after `n_written`.
fn fmt_more(n_written: usize, total: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match total.saturating_sub(n_written) {
        0 => Ok(()),
        more => writeln!(f, "  … and {more} more"),
    }
}

fn some_of(names: &[String], total: usize) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    let shown = names.len().min(LINES_MAX);
    let mut text = names[..shown].join(", ");
    if total > shown {
        write!(text, " and {} more", total - shown).unwrap_or_default();
    }
    text
}
