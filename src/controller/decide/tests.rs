//! Properties of the decision alone, of drawn views. A failure names its seed, which
//! `SIMULATION_SEEDS=SEED..NEXT` repeats.

mod drawn;
mod upstream;

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::drawn::{Drawn, Stock};
use super::{Claim, claim_of};
use super::{Doubt, May, Plan, Pods, Step, View};
use crate::api::{Pod, ScaleDownMark, Uid};
use crate::controller::testing::now;
use crate::stdx::HashSet;

type Checked = Result<(), String>;

/// How many views were what.
#[derive(Debug, Default)]
struct Seen {
    creates: u32,
    deletes: u32,
    /// Choices that were compared with upstream's.
    sorted: u32,
    /// Scale-downs that spared pods, and that took protected ones after the timeout.
    spared: u32,
    timed_out: u32,
    counted: u32,
    adopts: u32,
    releases: u32,
    waits: u32,
    verifies: u32,
    at_rest: u32,
}

fn ensure(holds: bool, property: &str) -> Checked {
    holds.then_some(()).ok_or_else(|| property.to_owned())
}

#[test]
fn every_drawn_decision_is_safe_and_comes_back() {
    let (stock, mut seen) = (Stock::new(), Seen::default());
    let n_views = 20_000;
    for seed in 0..n_views {
        let drawn = stock.draw(seed);
        let checked = check(&drawn, &mut seen);
        if let Err(property) = checked {
            panic!(
                "seed {seed}: {property}: {drawn:#?} {:#?}",
                drawn.view().decide()
            );
        }
    }
    let Seen {
        creates,
        deletes,
        sorted,
        spared,
        timed_out,
        counted,
        adopts,
        releases,
        waits,
        verifies,
        at_rest,
    } = seen;
    let rarest = [
        creates, deletes, sorted, spared, timed_out, counted, adopts, releases, waits, verifies,
        at_rest,
    ];
    let is_varied = rarest.iter().all(|n| u64::from(*n) * 1_000 > n_views);
    assert!(is_varied, "{seen:?} of {n_views}");
}

/// PROPERTY P19: For every view, the decision acts only if nothing in the record forbids it, never
/// plans past `spec.replicas` or the burst, and never chooses a protected pod before the timeout.
/// Without opt-ins it chooses as upstream does. From counts, where they suffice, it is the same as
/// from pods. It says when to sync next, unless only an event can change it.
fn check(drawn: &Drawn, seen: &mut Seen) -> Checked {
    let view = drawn.view();
    let step = view.decide();
    ensure(
        is_same(&step, &drawn.view().decide()),
        "it is deterministic",
    )?;
    check_record(drawn, &step)?;
    check_claims(&view, &step, seen)?;
    check_plan(drawn, &step, seen)?;
    check_calm(drawn, &step)?;
    check_choice(drawn, &step, seen)?;
    check_counted(drawn, &view, &step, seen)?;
    check_next(drawn, &step, seen)?;
    let gone: HashSet<Uid> = step.adopt.iter().map(|pod| pod.uid.clone()).collect();
    if !gone.is_empty() {
        let again = view.decide_without(&gone);
        let is_gone = |pod: &Arc<Pod>| gone.contains(&pod.uid);
        ensure(
            !again.active.iter().any(is_gone),
            "a lost pod does not count",
        )?;
        check_record(drawn, &again)?;
        check_plan(drawn, &again, &mut Seen::default())?;
    }
    Ok(())
}

fn is_same(a: &Step, b: &Step) -> bool {
    let pods = |it: &Step| {
        let Step {
            active,
            adopt,
            release,
            delete,
            ..
        } = it.clone();
        [active, adopt, release, delete]
    };
    let effects = |it: &Step| {
        let effects = it.effects.clone();
        (effects.back_off, effects.block, effects.old_failed_pods)
    };
    let rest = |it: &Step| (it.plan, it.may, it.retry.clone(), it.counts, it.next_check);
    pods(a) == pods(b) && effects(a) == effects(b) && rest(a) == rest(b)
}

/// What in the record forbids a create or a delete, does.
fn check_record(drawn: &Drawn, step: &Step) -> Checked {
    if !step.acts() {
        return ensure(step.delete.is_empty(), "only a step that acts chooses pods");
    }
    let record = &drawn.record;
    ensure(
        record.may == May::Act,
        "it waits for caches that lag behind own writes, and for open and expired expectations",
    )?;
    ensure(
        !record.is_unproven || record.is_confirmed,
        "it waits for the proof of a failover",
    )?;
    let is_compared = record.unknowns_are_compared;
    match step.plan {
        Plan::Nothing => Ok(()),
        Plan::Create(count) => {
            let generation = drawn.rs.generation;
            let waits = record
                .rejected
                .is_some_and(|(of, wait)| of == generation && wait.is_some());
            ensure(!waits, "creates wait after a rejection")?;
            ensure(record.loss_delay.is_none(), "creates wait after a loss")?;
            ensure(
                step.retry.len() <= count || is_compared,
                "it never leaves out a create of unknown outcome unasked",
            )
        }
        Plan::Delete(count) => {
            let is_protecting = drawn.rules.policy.scale_down_protection;
            let needs_choice = is_protecting || count < step.active.len();
            let waits = record.spec_delay.is_some() && needs_choice;
            ensure(!waits, "a choice waits for pods as new as the spec")
        }
    }
}

fn check_claims(view: &View<'_>, step: &Step, seen: &mut Seen) -> Checked {
    let Pods::Listed { owned, orphans } = &view.pods else {
        return Ok(());
    };
    if has_no_pods(step) {
        seen.waits += u32::from(matches!(step.may, May::Wait(_)));
        seen.verifies += u32::from(matches!(step.may, May::Verify(_)));
        return ensure(
            step.adopt.is_empty() && step.release.is_empty(),
            "it claims nothing in doubt",
        );
    }
    seen.adopts += u32::from(!step.adopt.is_empty());
    seen.releases += u32::from(!step.release.is_empty());
    let of = |claims: &[Claim]| -> Vec<_> {
        let all = owned.iter().chain(orphans).filter(|pod| pod.is_active());
        let ours = all.filter(|pod| claims.contains(&claim_of(view.rs, view.selector, pod)));
        ours.cloned().collect()
    };
    ensure(step.adopt == of(&[Claim::Adopt]), "it adopts as claimed")?;
    ensure(
        step.release == of(&[Claim::Release]),
        "it releases as claimed",
    )?;
    ensure(
        step.active == of(&[Claim::Keep, Claim::Adopt]),
        "it counts what it keeps and adopts",
    )
}

/// True for a step that was decided before the pods were read.
fn has_no_pods(step: &Step) -> bool {
    matches!(
        step.may,
        May::Verify(Doubt::Overdue | Doubt::Unseen) | May::Wait(_)
    ) && step.plan == Plan::Nothing
}

fn check_plan(drawn: &Drawn, step: &Step, seen: &mut Seen) -> Checked {
    let wanted = usize::try_from(drawn.rs.replicas).unwrap_or(0);
    let (n_active, burst) = (step.active.len(), drawn.rules.burst_replicas);
    ensure(step.plan.n_pods() <= burst, "no plan exceeds the burst")?;
    match step.plan {
        Plan::Nothing => return Ok(()),
        Plan::Create(count) => {
            seen.creates += u32::from(step.acts());
            ensure(
                count > 0 && n_active + count <= wanted,
                "no create too many",
            )?;
        }
        Plan::Delete(count) => {
            seen.deletes += u32::from(step.acts());
            ensure(
                count > 0 && n_active >= wanted + count,
                "no delete too many",
            )?;
        }
    }
    let is_terminating = drawn.rs.deletion.is_some();
    ensure(!is_terminating, "a terminating ReplicaSet keeps its pods")
}

/// True if the timeout of a blocked scale-down has passed.
fn is_timed_out(drawn: &Drawn) -> bool {
    let Some(timeout) = drawn.rules.policy.protected_timeout else {
        return false;
    };
    let began = drawn.rs.status.conditions.first();
    let began = began.and_then(|condition| condition.last_transition_time);
    let waited = began.map_or(0, |began| now().duration_since(began).as_secs());
    u64::try_from(waited).is_ok_and(|waited| waited >= timeout.as_secs())
}

fn is_protected(pod: &Pod) -> bool {
    pod.scale_down == ScaleDownMark::Never
}

/// The number of pods that a scale-down has to keep.
fn n_kept(drawn: &Drawn, step: &Step) -> usize {
    let wanted = usize::try_from(drawn.rs.replicas).unwrap_or(0);
    let n_protected = step.active.iter().filter(|pod| is_protected(pod)).count();
    if drawn.rules.policy.scale_down_protection && !is_timed_out(drawn) {
        wanted.max(n_protected)
    } else {
        wanted
    }
}

/// Without anything in the record, and without a back-off, it does all that is due.
fn check_calm(drawn: &Drawn, step: &Step) -> Checked {
    let is_calm = drawn.record.owner.is_none() && drawn.rules.policy.failed_pod_backoff.is_none();
    if !is_calm || drawn.rs.deletion.is_some() {
        return Ok(());
    }
    let wanted = usize::try_from(drawn.rs.replicas).unwrap_or(0);
    let (n_active, burst) = (step.active.len(), drawn.rules.burst_replicas);
    let n_surplus = n_active.saturating_sub(n_kept(drawn, step));
    let due = if n_active < wanted {
        Plan::Create((wanted - n_active).min(burst))
    } else if n_surplus > 0 {
        Plan::Delete(n_surplus.min(burst))
    } else {
        Plan::Nothing
    };
    ensure(
        (step.plan, step.may) == (due, May::Act),
        "it does what is due",
    )
}

fn check_choice(drawn: &Drawn, step: &Step, seen: &mut Seen) -> Checked {
    let Plan::Delete(count) = step.plan else {
        return ensure(step.delete.is_empty(), "no delete without a plan");
    };
    if !step.acts() {
        return Ok(());
    }
    let chosen: HashSet<&Uid> = step.delete.iter().map(|pod| &pod.uid).collect();
    ensure(
        chosen.len() == count,
        "it chooses as many pods as it plans to delete",
    )?;
    let is_active = |uid: &Uid| step.active.iter().any(|pod| pod.uid == *uid);
    ensure(
        chosen.iter().all(|uid| is_active(uid)),
        "it chooses active pods",
    )?;
    let policy = &drawn.rules.policy;
    let is_chosen = |pod: &Pod| chosen.contains(&pod.uid);
    if policy.scale_down_protection {
        let mut protected = step.active.iter().filter(|pod| is_protected(pod));
        let n_protected = protected.clone().count();
        let wanted = usize::try_from(drawn.rs.replicas).unwrap_or(0);
        let may_choose = is_timed_out(drawn) && n_protected > wanted;
        let takes_protected = protected.any(|pod| is_chosen(pod));
        ensure(may_choose || !takes_protected, "it spares protected pods")?;
        seen.spared += u32::from(n_protected > 0 && !takes_protected);
        seen.timed_out += u32::from(takes_protected);
        let mut others = step.active.iter().filter(|pod| !is_protected(pod));
        ensure(
            !takes_protected || others.all(|pod| is_chosen(pod)) || has_retries(drawn, step),
            "it takes protected pods after all others",
        )?;
    }
    let is_upstreams = !policy.scale_down_protection && policy.scale_down_order.is_upstreams();
    if is_upstreams
        && !has_retries(drawn, step)
        && count < step.active.len()
        && let Some(sorted) = upstream::sorted(drawn, step)
    {
        seen.sorted += 1;
        let is_upstreams = step.delete == sorted[..count];
        ensure(is_upstreams, "it chooses as upstream does")?;
    }
    Ok(())
}

/// True if deletes of unknown outcome are repeated first.
fn has_retries(drawn: &Drawn, step: &Step) -> bool {
    let unknown = &drawn.record.unknown_deletions;
    step.active.iter().any(|pod| unknown.contains(&pod.uid))
}

/// Where counts suffice, they give the same decision as the pods.
fn check_counted(drawn: &Drawn, view: &View<'_>, step: &Step, seen: &mut Seen) -> Checked {
    if has_no_pods(step) || !step.adopt.is_empty() || !step.release.is_empty() {
        return Ok(());
    }
    let is_failed = |pod: &Pod| pod.failure.is_some() && pod.deletion.is_none();
    let n_failed = drawn.owned.iter().filter(|pod| is_failed(pod)).count();
    if !view.counts_are_enough(step.counts, n_failed) {
        return Ok(());
    }
    seen.counted += 1;
    let (counts, next_check) = (step.counts, step.next_check);
    let by_counts = drawn.view_of(Pods::Counted { counts, next_check }).decide();
    let now = Instant::now();
    let all = |step: &Step| {
        let next = step.next(&drawn.rs, now);
        (step.counts, step.plan, step.may, step.has_converged(), next)
    };
    ensure(
        all(step) == all(&by_counts),
        "counts give the same decision",
    )
}

/// It names when it changes without an event.
fn check_next(drawn: &Drawn, step: &Step, seen: &mut Seen) -> Checked {
    let now = Instant::now();
    let next = step.next(&drawn.rs, now);
    let (high, low) = (next.high, next.low);
    let is_verify = matches!(step.may, May::Verify(_));
    for at in [high, low].into_iter().flatten() {
        ensure(at > now || is_verify, "it never comes back at once")?;
    }
    let is_by = |at: Option<Instant>, delay: Duration| at.is_some_and(|at| at <= now + delay);
    // After own writes the sync adds when they expire.
    let has_converged = step.has_converged();
    seen.at_rest += u32::from(has_converged);
    let is_blocked = step.effects.block.as_ref();
    let waits_for_marks = is_blocked.is_some_and(|block| block.remaining.is_none());
    ensure(
        high.or(low).is_some() || step.acts() || has_converged || waits_for_marks,
        "it comes back",
    )?;
    match step.may {
        May::Report(Some(delay)) | May::Wait(delay) => {
            ensure(is_by(high, delay), "a wait ends in time")?;
        }
        May::Verify(_) => ensure(is_by(high, Duration::ZERO), "a doubt ends at once")?,
        May::Report(None) | May::Act => {}
    }
    if has_no_pods(step) {
        return Ok(());
    }
    let is_over = |block: &super::optional::protection::Block| block.is_over();
    if let Some(block) = is_blocked.filter(|block| !is_over(block))
        && let Some(timeout) = drawn.rules.policy.protected_timeout
    {
        let waited = now_since(block.since);
        let left = timeout.saturating_sub(waited);
        ensure(is_by(high, left), "a block ends by its timeout")?;
    }
    check_availability(drawn, step, |delay| is_by(low, delay))
}

fn now_since(at: jiff::Timestamp) -> Duration {
    Duration::try_from(now().duration_since(at)).unwrap_or_default()
}

/// It comes back when the next Ready pod becomes available.
fn check_availability(drawn: &Drawn, step: &Step, comes_by: impl Fn(Duration) -> bool) -> Checked {
    let min_ready = i64::from(drawn.rs.min_ready_seconds);
    let remaining = |pod: &Pod| {
        let since = pod.ready_transition.filter(|_| pod.is_ready)?.timestamp();
        let ready_for = now().duration_since(since).as_secs();
        u64::try_from(min_ready - ready_for)
            .ok()
            .filter(|left| *left > 0)
    };
    let next = step.active.iter().filter_map(|pod| remaining(pod)).min();
    match next.filter(|_| min_ready > 0) {
        Some(left) => ensure(
            comes_by(Duration::from_secs(left)),
            "it comes back when a pod becomes available",
        ),
        None => Ok(()),
    }
}
