//! Derives from a report why a ReplicaSet makes no progress, and the remedy: pods that are not
//! available, pods that fail as fast as they are replaced, creation that is backed off after a
//! rejection. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp, Unit};

use super::model::{Finding, Report, Sources};
use crate::api::conditions::{Condition, REPLICA_FAILURE, get_condition};
use crate::api::workload_kind::REPLICA_SET;
use crate::api::{CompactTimestamp, Pod, PodPhase, Policy, ReplicaSet, WorkloadKind};
use crate::controller::decide::Step;
use crate::controller::decide::optional::failed_pods::{BackOff, FAILED_POD_BACKOFF};
use crate::controller::decide::optional::protection::Block;
use crate::controller::memory::own_writes::EXPECTATIONS_TIMEOUT;
use crate::controller::memory::rejections::{BackedOff, PAUSE_MAX, Rejection};
use crate::controller::other_writers::{self, EXPLAINED_FOR, OTHER_WRITER};
use crate::controller::warnings::{back_off_command, no_gang};
use crate::explain::inspect::{RecordFacts, ReplicaSetFacts};
use crate::rights::manifests::Account;
use crate::stdx::escape::shell_word;

/// The problems of the report's ReplicaSet with this decision, most important first; `None` if its
/// selector cannot be used.
pub fn findings(
    report: &Report,
    decision: Option<&Step>,
    facts: &ReplicaSetFacts,
    sources: &Sources,
    now: Timestamp,
) -> Vec<Finding> {
    let rs = &*facts.replica_set;
    let active = decision.map_or(&[][..], |decision| &decision.active);
    let back_off = decision.and_then(|decision| decision.effects.back_off.as_ref());
    let mut found = Vec::new();
    let mut add = |finding| found.push(finding);
    let memory = facts.memory.as_ref();
    let remedy = other_writers::remedy(facts.kind);
    let other = memory.and_then(|memory| memory.other_writer.clone());
    if let Some(other) = other.or_else(|| other_writer(report, &remedy, now)) {
        add(Finding::new(other, remedy));
    }
    let is_unseen = rs.generation != rs.status.observed_generation;
    let has_work = report.next.action != "nothing";
    if sources.is_standby && (has_work || is_unseen) {
        add(Finding::new(
            "this daemon is a standby: only the holder of the Lease creates and deletes pods",
            "if no daemon leads, the log names the holder: journalctl -u replicaset-controller | \
             grep 'is held by'; otherwise ask the leader, or leave out --server",
        ));
    }
    if let Err(error) = &rs.selector {
        add(Finding::new(
            format!("the selector cannot be used: {error}"),
            "spec.selector is immutable: delete and recreate the ReplicaSet",
        ));
    }
    if let Some(since) = rs.deletion {
        add(Finding::new(
            format!(
                "the ReplicaSet has been terminating since {since}: no sync creates or deletes pods"
            ),
            "check metadata.finalizers: their controllers must remove them before the object \
              disappears",
        ));
    }
    if let Some(block) = decision.and_then(|decision| decision.effects.block.as_ref()) {
        add(Finding::new(
            blocked(block, rs),
            fix_of_block(block, report),
        ));
    }
    let last_error = memory.and_then(|memory| memory.last_error.as_ref());
    let last_error = last_error.map(|error| error.message.to_string());
    let condition = get_condition(&rs.status.conditions, REPLICA_FAILURE);
    // A back-off is not an error, and has a finding of its own.
    let is_error = |it: &&Condition| it.reason.as_deref() != Some(FAILED_POD_BACKOFF);
    let condition = condition.filter(is_error);
    let error_message = last_error
        .or_else(|| condition.and_then(|condition| condition.message.clone()))
        .or_else(|| failed_create(report));
    let is_namespace = sources.namespace_is_terminating == Some(true)
        || error_message
            .as_deref()
            .is_some_and(is_namespace_terminating);
    // A terminating namespace explains every failed create, so it replaces the error.
    if is_namespace {
        add(terminating_namespace(&rs.key.namespace));
    } else if let Some(message) = error_message
        && (has_work || memory.is_some())
    {
        let fix = fix_of(&message, &rs.key.namespace, facts.kind);
        let what = format!("the last attempt failed: {message}");
        add(Finding { what, fix });
    }
    let of_rollout = of_rollout(&rs.key.namespace, sources);
    of_rollout.into_iter().for_each(&mut add);
    if let Some(memory) = memory {
        if let Some(backed_off) = &memory.backed_off {
            let is_watched = memory.quotas_are_watched;
            add(back_off_finding(backed_off, &rs.key.namespace, is_watched));
        }
        memory_findings(memory, report, &mut add);
    }
    if is_unseen && (memory.is_none() || sources.is_standby) {
        add(unseen_generation(report, facts));
    }
    let failure_loop = match back_off {
        Some(back_off) => Some(backing_off(back_off, facts, now)),
        None if facts.rules.policy.failed_pod_backoff.is_some() => None,
        // With a record, the policy has the daemon's flags.
        None if memory.is_some() => failing(facts, sources, now),
        None => backing_off_by_flag(rs).or_else(|| failing(facts, sources, now)),
    };
    // The API alone does not show why the controller waits.
    if failure_loop.is_none() && has_work && memory.is_none() && found.is_empty() {
        found.push(Finding::new(
            "pods are missing or surplus, and nothing in the API explains the delay",
            "run explain again in a few seconds; if nothing has changed, read the controller's log, \
             or add its state and last error with --server",
        ));
    }
    let more = [ignored_gang(memory, sources), overlap(facts), failure_loop];
    found.extend(more.into_iter().flatten());
    found.extend(unavailable(active, report, facts, sources, now));
    stuck_pods(report, facts, now, &mut found);
    let mistakes = Policy::mistakes(&rs.opt_ins).into_iter();
    let fix = "correct or remove the annotation; until then it is ignored";
    found.extend(mistakes.map(|what| Finding::new(what, fix)));
    found
}

pub(super) fn terminating_namespace(namespace: &str) -> Finding {
    Finding::new(
        format!(
            "the namespace {namespace} is being terminated: the API server accepts no new objects \
             in it"
        ),
        "use another namespace, or wait for its deletion and recreate it",
    )
}

fn of_rollout(namespace: &str, sources: &Sources) -> Option<Finding> {
    match sources.rollout.as_ref()? {
        Ok(rollout) => of_deployment(namespace, rollout.blocked_by.as_deref()),
        Err(error) => Some(Finding::new(
            format!("its Deployment is unknown, and so is the rollout: {error}"),
            "grant get of deployments and list of replicasets to who runs explain",
        )),
    }
}

/// The problem of a Deployment that no report of its ReplicaSets shows.
pub(super) fn of_deployment(namespace: &str, blocked_by: Option<&str>) -> Option<Finding> {
    let blocked_by = blocked_by?;
    Some(Finding {
        what: format!("the Deployment waits for {blocked_by}"),
        fix: fix_of(blocked_by, namespace, &REPLICA_SET),
    })
}

/// What the newest event about another controller says, unless that is over.
fn other_writer(report: &Report, remedy: &str, now: Timestamp) -> Option<String> {
    let mut events = report.events.as_deref()?.iter().rev();
    let newest = events.find(|event| event.reason == OTHER_WRITER)?;
    let is_recent = newest.last_seen? >= now.checked_sub(EXPLAINED_FOR).ok()?;
    let message = &newest.message;
    let message = message.strip_suffix(&format!("; {remedy}"));
    is_recent.then(|| message.unwrap_or(&newest.message).to_owned())
}

/// The status is that of an older generation. Pods that have changed towards the new one show that
/// only the status is late.
fn unseen_generation(report: &Report, facts: &ReplicaSetFacts) -> Finding {
    let rs = &*facts.replica_set;
    let (generation, resource) = (rs.generation, facts.kind.resource);
    let reported = i64::from(rs.status.replicas);
    let active = i64::try_from(report.active).unwrap_or(i64::MAX);
    let is_followed = active != reported
        && (active - reported).signum() == (i64::from(rs.replicas) - reported).signum();
    if is_followed {
        return Finding::new(
            format!(
                "the pods follow generation {generation} ({active} are active), but its status \
                 is not written: status.replicas is {reported}"
            ),
            format!(
                "read the controller's log: it may not write {resource}/status (apply \
                 replicaset-controller rbac), or its rate limit delays it (raise --kube-api-qps)"
            ),
        );
    }
    Finding::new(
        format!(
            "generation {generation} has not been synced yet: status.observedGeneration is {}",
            rs.status.observed_generation
        ),
        format!(
            "read the controller's log (journalctl -u replicaset-controller -n 20): no daemon leads, \
             it has another API server or --namespace, it may not write {resource}/status, or its \
             rate limit delays it"
        ),
    )
}

fn ignored_gang(memory: Option<&RecordFacts>, sources: &Sources) -> Option<Finding> {
    let workload = memory.and_then(|memory| memory.gang_workload.as_deref());
    let workload = workload.or(sources.gang_workload.as_deref())?;
    Some(Finding::new(
        no_gang(workload),
        "remove gang scheduling from the Deployment, or let kube-controller-manager control \
         ReplicaSets",
    ))
}

/// Reports that the selector also matches the pods of another ReplicaSet.
fn overlap(facts: &ReplicaSetFacts) -> Option<Finding> {
    let selector = facts.replica_set.selector.as_ref().ok()?;
    let is_selected = |it: &&std::sync::Arc<ReplicaSet>| selector.matches(&it.template_labels);
    let mut others: Vec<_> = facts.neighbours.iter().filter(is_selected).collect();
    others.sort_by(|a, b| a.key.cmp(&b.key));
    let (first, more) = others.split_first()?;
    let and_more = match more.len() {
        0 => String::new(),
        n => format!(" and of {n} more"),
    };
    let (short, name) = (facts.kind.short_name, &first.key.name);
    Some(Finding::new(
        format!("its selector also matches pods of {short}/{name}{and_more}"),
        "give each its own selector and pod labels; until then either may adopt orphans of the \
         other",
    ))
}

/// Reports a back-off that only the condition shows: a flag of the daemon switches it on.
fn backing_off_by_flag(rs: &ReplicaSet) -> Option<Finding> {
    let condition = get_condition(&rs.status.conditions, REPLICA_FAILURE)?;
    let is_back_off = condition.reason.as_deref() == Some(FAILED_POD_BACKOFF);
    let message = condition.message.as_deref().unwrap_or_default();
    is_back_off.then(|| {
        Finding::new(
            format!("a flag of the daemon backs off replacements of Failed pods: {message}"),
            "use --server, which includes the daemon's flags and state",
        )
    })
}

fn blocked(block: &Block, rs: &ReplicaSet) -> String {
    let (_, message) = block.reason_and_message(rs.replicas);
    let since = block.since;
    format!("protected pods have blocked the scale-down since {since}: {message}")
}

fn fix_of_block(block: &Block, report: &Report) -> String {
    let (namespace, name) = (shell_word(&report.namespace), shell_word(&report.name));
    let kind = report.kind.to_lowercase();
    let pod = block.names.first().map_or("POD", |name| name);
    let pod = shell_word(pod);
    let timeout = match block.until {
        Some(_) => String::new(),
        None => format!(
            ", or limit the block: kubectl -n {namespace} annotate {kind} {name} \
             replicaset-controller/protected-timeout=30m"
        ),
    };
    format!(
        "once the pod may be deleted: kubectl -n {namespace} annotate pod {pod} \
         replicaset-controller/scale-down-{timeout}"
    )
}

fn memory_findings(memory: &RecordFacts, report: &Report, add: &mut impl FnMut(Finding)) {
    if let Some(open) = &memory.expectations {
        let memory_report = report.memory.as_ref();
        let names = |names: &[String]| match names {
            [] => String::new(),
            [one] => format!(" ({one})"),
            [one, ..] => format!(" ({one}, …)"),
        };
        let remaining = EXPECTATIONS_TIMEOUT.saturating_sub(open.age);
        add(Finding::new(
            format!(
                "waiting for the watch to confirm {} creates{} and {} deletes{} sent {:.1} s ago \
                 (expectations)",
                open.creations.len(),
                names(memory_report.map_or(&[], |it| &it.expected_creations)),
                open.deletions.len(),
                names(memory_report.map_or(&[], |it| &it.expected_deletions)),
                open.age.as_secs_f64(),
            ),
            format!(
                "the controller queries the API server in {:.0} s; until then, the thread \
                 watch-pods in /debug/threads shows whether the watch lags",
                remaining.as_secs_f64()
            ),
        ));
    }
    if memory.waits_for.is_some() {
        let what = "waiting for the cache to show the last write; its watch event enqueues the \
                    ReplicaSet";
        add(Finding {
            what: what.to_owned(),
            fix: None,
        });
    }
    if memory.queue.n_failures > 0
        && let Some(due) = memory.queue.due_in
    {
        let error = memory.last_error.as_ref();
        let is_denied = error.is_some_and(|error| denied_user(&error.message).is_some());
        add(Finding {
            what: format!(
                "in back-off after {} failures; next attempt in {:.1} s",
                memory.queue.n_failures,
                due.as_secs_f64()
            ),
            // Without the permission another attempt fails, too.
            fix: (!is_denied).then(|| {
                "to retry now, change the ReplicaSet, for example with kubectl annotate".to_owned()
            }),
        });
    }
    if memory.queue.is_waiting && !memory.queue.is_processing {
        add(Finding::new(
            "queued, waiting for a worker",
            "if this persists, see the threads sync-* in /debug/threads; \
             --concurrent-replicaset-syncs adds workers",
        ));
    }
}

/// Reports pods that exceed their deletion grace period. They still hold resources of their nodes
/// and quota.
fn stuck_pods(report: &Report, facts: &ReplicaSetFacts, now: Timestamp, found: &mut Vec<Finding>) {
    let is_overdue = |due: CompactTimestamp| due.age(now).as_secs() > 5;
    let overdue = facts
        .owned
        .iter()
        .filter(|pod| pod.deletion.is_some_and(is_overdue));
    let mut names = overdue.map(|pod| &*pod.key.name);
    let Some(first) = names.next() else { return };
    let more = names.count();
    let of = report.not_counted.iter().find(|pod| pod.pod == first);
    let because = of.map_or("terminating", |pod| &pod.because);
    let what = match more {
        0 => format!("pod {first} is stuck: {because}; it does not count as a replica"),
        _ => format!(
            "pod {first} and {more} more are stuck: {because}; they do not count as replicas"
        ),
    };
    let fix = format!(
        "the controller of its finalizer must remove the finalizer, or its node must respond: \
         kubectl -n {} get pod {} -o jsonpath='{{.metadata.finalizers}} {{.spec.nodeName}}'",
        shell_word(&report.namespace),
        shell_word(first)
    );
    found.push(Finding::new(what, fix));
}

/// The newest failed create, from the events.
fn failed_create(report: &Report) -> Option<String> {
    let events = report.events.as_deref()?;
    let newest = events
        .iter()
        .rev()
        .find(|event| event.reason.contains("Create"))?;
    (newest.type_ == "Warning").then(|| newest.message.clone())
}

fn is_namespace_terminating(message: &str) -> bool {
    message.contains("because it is being terminated")
}

/// The account whose permission this error of the API server misses.
fn denied_user(message: &str) -> Option<&str> {
    let (_, user) = message.split_once("forbidden: User \"")?;
    Some(user.split_once("\" cannot ")?.0)
}

fn fix_of(message: &str, namespace: &str, kind: &WorkloadKind) -> Option<String> {
    let namespace = shell_word(namespace);
    let fix = if message.contains("failed quota") {
        format!(
            "set the resources that the quota requires in the template, or add a LimitRange with \
             defaults: kubectl -n {namespace} describe quota"
        )
    } else if message.contains("exceeded quota") {
        format!(
            "raise the quota, free some of it, or request less in the template: kubectl -n \
             {namespace} describe quota"
        )
    } else if message.contains("error looking up service account") {
        let name = message.rsplit_once("error looking up service account ");
        let name = name.and_then(|(_, rest)| rest.split_once('/')?.1.split(':').next());
        // The message may be that of any webhook.
        let name = shell_word(name.unwrap_or("NAME"));
        format!(
            "create the service account that the error names: kubectl -n {namespace} create \
             serviceaccount {name}"
        )
    } else if message.contains("violates PodSecurity") {
        "make the template meet the namespace's Pod Security level, or change that level".to_owned()
    } else if message.contains("failed calling webhook") {
        "the webhook does not respond or fails: check its Service, pods, log, certificate and \
         failurePolicy"
            .to_owned()
    } else if message.contains("imum ") && message.contains(" usage per ") {
        format!(
            "change the template's resources, or the LimitRange: kubectl -n {namespace} describe \
             limitrange"
        )
    } else if message.contains("denied the request") || message.contains("denied request") {
        "correct the template so that the named webhook or policy accepts it, or change that"
            .to_owned()
    } else if message.contains("no PriorityClass") {
        "create the PriorityClass that the template names, or name another".to_owned()
    } else if message.contains("is invalid") {
        "correct the template: the named field is invalid".to_owned()
    } else if let Some(user) = denied_user(message) {
        format!(
            "grant the permission: replicaset-controller rbac {} | kubectl apply -f -, with the \
             other flags of the installation. If all is unchanged, the role was edited (kubectl \
             get clusterrole {} -o yaml): a restart of kube-apiserver restores it",
            Account::of_username(user).flag(),
            kind.cluster_role
        )
    } else if message.contains("its controller, which has observed") {
        "check that a Deployment controller runs: kube-controller-manager's, or this daemon's \
         with --controllers=replicaset-controller,deployment-controller"
            .to_owned()
    } else if message.contains("no response from the API server") {
        "the API server did not respond: check its health, and the daemon's log".to_owned()
    } else {
        return None;
    };
    Some(fix)
}

/// Failures older than this are not part of a failure loop.
const RECENT: Duration = Duration::from_mins(10);

/// Minimum recent failures for a finding. There must also be more failures than replicas.
const FAILED_FROM: usize = 5;

/// The states of the unavailable active pods, and the remedy. `None` if all are available.
pub(super) fn unavailable(
    active: &[std::sync::Arc<Pod>],
    report: &Report,
    facts: &ReplicaSetFacts,
    sources: &Sources,
    now: Timestamp,
) -> Option<Finding> {
    let seconds = facts.replica_set.min_ready_seconds;
    let mut groups: BTreeMap<String, Vec<&Pod>> = BTreeMap::new();
    let unavailable = active.iter().filter(|pod| !pod.is_available(seconds, now));
    for pod in unavailable {
        groups
            .entry(state_of(pod, sources, seconds))
            .or_default()
            .push(pod);
    }
    let mut groups: Vec<(String, Vec<&Pod>)> = groups.into_iter().collect();
    // The largest group comes first, and its first pod is the example.
    groups.sort_by_key(|(_, pods)| std::cmp::Reverse(pods.len()));
    let example = groups.first()?.1.first()?;
    let states = groups.iter();
    let states = states.map(|(state, pods)| format!("{} {state}", pods.len()));
    let states: Vec<String> = states.collect();
    let (available, n_active) = (report.available, active.len());
    let is_desired = usize::try_from(report.desired).is_ok_and(|desired| desired == n_active);
    let matches = if is_desired && report.next.action == "nothing" {
        "pod count matches; "
    } else {
        ""
    };
    let states = states.join("; ");
    let what = format!("{matches}{available} of {n_active} available: {states}");
    Some(Finding::new(what, describe(example)))
}

fn state_of(pod: &Pod, sources: &Sources, min_ready_seconds: i32) -> String {
    let reason = sources.reason_of(pod);
    let in_brackets = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    if pod.is_ready {
        return format!("Ready for less than minReadySeconds ({min_ready_seconds} s)");
    }
    match (&pod.node, pod.phase) {
        (None, _) => format!("Pending, no node{in_brackets}"),
        (Some(_), PodPhase::Running) => format!("Running, not Ready{in_brackets}"),
        (Some(_), phase) => format!("{phase:?}, not Running yet{in_brackets}"),
    }
}

pub(super) fn failing(
    facts: &ReplicaSetFacts,
    sources: &Sources,
    now: Timestamp,
) -> Option<Finding> {
    let created = |pod: &Pod| pod.creation.map(|creation| creation.age(now));
    let is_recent = |pod: &&Pod| {
        let age = created(pod).map(SignedDuration::unsigned_abs);
        pod.phase == PodPhase::Failed && age.is_some_and(|age| age < RECENT)
    };
    let pods = facts.owned.iter().map(|pod| &**pod);
    let mut failed: Vec<&Pod> = pods.filter(is_recent).collect();
    let replicas = usize::try_from(facts.replica_set.replicas).unwrap_or(0);
    if failed.len() < FAILED_FROM.max(replicas + 1) {
        return None;
    }
    failed.sort_by_key(|pod| std::cmp::Reverse(created(pod)));
    let (oldest, newest) = (failed.first()?, failed.last()?);
    let within = created(oldest)?.as_secs() - created(newest)?.as_secs();
    let reason = sources.reason_of(newest);
    let reason = reason.map_or_else(String::new, |reason| format!(", reason {reason}"));
    let node = newest.node.as_ref();
    let node = node.map_or_else(String::new, |node| format!(", on {node}"));
    Some(Finding {
        what: format!(
            "{} pods that were created within {} s failed{reason}{node}; each is replaced \
             immediately",
            failed.len(),
            within.max(1)
        ),
        fix: Some(format!(
            "{}; to slow the replacements down: {}",
            describe(newest),
            back_off_command(&facts.replica_set, facts.kind.singular)
        )),
    })
}

/// Reports how failing pods delay their replacements, and the remedy.
pub(super) fn backing_off(back_off: &BackOff, facts: &ReplicaSetFacts, now: Timestamp) -> Finding {
    let n_backed_off = back_off.n_backed_off;
    let next = match (n_backed_off, now.checked_add(back_off.remaining)) {
        (0, _) => "their replacements are not Ready yet".to_owned(),
        (_, Ok(at)) if at > now => format!(
            "{n_backed_off} replacement pods are delayed; the next is created at {}",
            at.round(Unit::Second).unwrap_or(at)
        ),
        _ => format!("{n_backed_off} replacement pods are delayed; one is due now"),
    };
    let rs = &facts.replica_set;
    let namespace = shell_word(&rs.key.namespace);
    let selector = rs.selector.as_ref().map(ToString::to_string);
    let selector = selector.unwrap_or_default();
    let selector = shell_word(&selector);
    Finding {
        what: format!(
            "{}; current round since {}; {next}, one every {:.0} s",
            back_off.history(),
            back_off.round_began,
            back_off.wait.as_secs_f64().max(1.0)
        ),
        fix: Some(format!(
            "{}; the back-off ends when one pod is Ready or the Failed pods are deleted: kubectl \
             -n {namespace} delete pods -l {selector} --field-selector status.phase=Failed",
            describe(&back_off.last)
        )),
    }
}

fn describe(pod: &Pod) -> String {
    let (namespace, name) = (shell_word(&pod.key.namespace), shell_word(&pod.key.name));
    format!("kubectl -n {namespace} describe pod {name}")
}

/// The finding about a ReplicaSet in this namespace. `is_watched`: whether quotas are watched.
pub fn back_off_finding(backed_off: &BackedOff, namespace: &str, is_watched: bool) -> Finding {
    let longest = PAUSE_MAX.as_secs();
    let fix = match &backed_off.rejection {
        Rejection::Quota(quota) => {
            let ways = if is_watched {
                "free some of the quota, or raise it; a change of its status triggers the next \
                 attempt"
                    .to_owned()
            } else {
                format!(
                    "free some of the quota, which triggers the next attempt, or raise it, which \
                     takes effect within {longest} s because quotas are not watched"
                )
            };
            let (namespace, quota) = (shell_word(namespace), shell_word(quota));
            format!("{ways}: kubectl -n {namespace} describe quota {quota}")
        }
        Rejection::Overload { .. } => "no change of the ReplicaSet is needed: check the health of \
                                     the API server, or of the webhook that the error names"
            .to_owned(),
        Rejection::Invalid | Rejection::Denied => {
            "change the spec, which is retried at once; or correct what rejects the pods, and \
             wait for the next attempt"
                .to_owned()
        }
    };
    let why = why(backed_off, is_watched);
    Finding::new(format!("pod creation is backed off: {why}"), fix)
}

fn why(backed_off: &BackedOff, is_watched: bool) -> String {
    let (n, seconds) = (backed_off.n_rejections, backed_off.since.as_secs_f64());
    let plural = if n == 1 { "" } else { "s" };
    let next = next_try(backed_off);
    let times = format!("{n} create{plural} rejected in {seconds:.0} s; {next}");
    match &backed_off.rejection {
        Rejection::Quota(quota) => {
            let position = backed_off.position.map_or_else(String::new, |it| {
                format!(" ({} of {} waiting for it)", it.n_before + 1, it.len)
            });
            let sooner = if is_watched {
                " or when the quota changes"
            } else {
                ""
            };
            let own = backed_off.remaining.as_secs_f64();
            format!(
                "blocked by quota \"{quota}\"{position}; {times}{sooner}; its own turn in {own:.0} s \
                 at the latest"
            )
        }
        Rejection::Overload { .. } => {
            format!("the API server or a webhook is overloaded or does not respond; {times}")
        }
        Rejection::Invalid => format!("the API server rejects the pods as invalid; {times}"),
        Rejection::Denied => {
            format!("a webhook, policy or missing permission rejects the pods; {times}")
        }
    }
}

/// When a create is tried again: its own, or that of another one in the queue of its quota.
pub fn next_try(backed_off: &BackedOff) -> String {
    let of_queue = backed_off.position.map(|it| it.next_try_in);
    let next = of_queue
        .unwrap_or(backed_off.remaining)
        .min(backed_off.remaining);
    format!("next attempt in {:.1} s", next.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{back_off_finding, fix_of, why};
    use crate::api::workload_kind::REPLICA_SET;
    use crate::controller::memory::rejections::{BackedOff, QueuePosition, Rejection};

    fn backed_off(rejection: Rejection) -> BackedOff {
        BackedOff {
            rejection,
            n_rejections: 3,
            since: Duration::from_secs(70),
            remaining: Duration::from_millis(640_200),
            position: Some(QueuePosition {
                n_before: 4,
                len: 12,
                next_try_in: Duration::from_millis(12_300),
            }),
        }
    }

    #[test]
    fn a_queue_is_named_with_the_position_in_it_and_the_next_try() {
        for (is_watched, sooner) in [(false, ""), (true, " or when the quota changes")] {
            let quota = backed_off(Rejection::Quota("few".into()));
            let finding = back_off_finding(&quota, "shop", is_watched);
            assert_eq!(
                finding.what,
                format!(
                    "pod creation is backed off: blocked by quota \"few\" (5 of 12 waiting for \
                     it); 3 creates rejected in 70 s; next attempt in 12.3 s{sooner}; its own turn \
                     in 640 s at the latest"
                )
            );
            let fix = finding.fix.expect("a fix");
            assert!(fix.contains("kubectl -n shop describe quota few"), "{fix}");
        }
    }

    #[test]
    fn a_command_quotes_what_an_error_names() {
        let quota = backed_off(Rejection::Quota("$(id)".into()));
        let fix = back_off_finding(&quota, "shop", true).fix;
        let fix = fix.expect("a remedy");
        assert!(fix.ends_with("describe quota '$(id)'"), "{fix}");
        let message = "error looking up service account shop/a;id: not found";
        let fix = fix_of(message, "shop", &REPLICA_SET).expect("a remedy");
        assert!(fix.ends_with("create serviceaccount 'a;id'"), "{fix}");
    }

    #[test]
    fn the_other_kinds_name_the_next_try() {
        let overload = why(&backed_off(Rejection::Overload { retry_after: None }), true);
        assert!(overload.contains("overloaded") && overload.contains("next attempt in 12.3 s"));
        let invalid = back_off_finding(&backed_off(Rejection::Invalid), "shop", true);
        assert!(invalid.what.contains("next attempt in 12.3 s"));
        assert!(
            invalid
                .fix
                .is_some_and(|it| it.starts_with("change the spec"))
        );
    }
}
