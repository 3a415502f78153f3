//! `make chaos`: rounds of real faults on a real control plane, drawn by seed. They are judged by
//! etcd's watches of their objects and by the API server's audit log. Without `CHAOS_MINUTES` and
//! `CHAOS_SEED` the test passes at once.

/// The API server's audit log.
mod audit;
/// The judge finds each breach.
mod breaches;
/// What etcd shows of the round's namespace.
mod chronicle;
/// What happens to daemons, connections and servers.
mod faults;
/// The invariants.
mod judge;
/// What the ReplicaSets opt in to.
mod opt_ins;
/// The figures of a run.
mod record;
/// The properties of a system at rest.
mod rest;
/// The control plane, and daemons.
mod site;
/// The workloads of a round.
mod stage;

use std::env;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use faults::Fault;
use judge::Verdict;
use record::Figures;
use rest::FOREIGN;
use serde_json::json;
use site::Site;
use stage::{Scene, Stage};

use crate::support::{Kind, resource_version};

/// Rounds that run beside each other.
const LANES: usize = 3;

/// Audit lines, and lines of each log, that a failed round prints.
const LINES_MAX: usize = 80;

/// How a round ended.
#[derive(Debug)]
struct Outcome {
    seed: u64,
    scene: Scene,
    fault: Fault,
    n_kills: usize,
    /// Whether the chronicle has all states.
    is_watched: bool,
    verdict: Verdict,
    journal: String,
    /// The last lines of the daemons' logs.
    logs: String,
    /// The audit lines that name a pod of a violation.
    lines: Vec<String>,
}

fn given<T: std::str::FromStr>(variable: &str) -> Option<T> {
    env::var(variable).ok()?.parse().ok()
}

#[test]
fn no_round_breaks_an_invariant() {
    if let Some(seed) = given("CHAOS_SEED") {
        let outcome = round(&Site::start(), seed);
        say(&described(&outcome));
        assert!(outcome.verdict.violations.is_empty());
    } else if let Some(minutes) = given::<f64>("CHAOS_MINUTES") {
        run(Duration::from_secs_f64(60.0 * minutes));
    }
}

/// Runs rounds for about `time`, and adds a line to the record.
fn run(time: Duration) {
    let site = Site::start();
    let (began, first) = (Instant::now(), record::end());
    let (next, figures) = (Mutex::new(first), Mutex::new(Figures::new(first)));
    let failed = Mutex::new(Vec::new());
    let lane = || {
        while began.elapsed() < time {
            let seed = {
                let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
                *next += 1;
                *next - 1
            };
            let outcome = catch_unwind(AssertUnwindSafe(|| round(&site, seed)));
            let mut figures = figures.lock().unwrap_or_else(PoisonError::into_inner);
            let violations = if let Ok(outcome) = outcome {
                figures.add(&outcome);
                say(&described(&outcome));
                outcome.verdict.violations
            } else {
                figures.n_failed += 1;
                vec![format!("it panicked\n{}", repeat(seed))]
            };
            if !violations.is_empty() {
                let failed = &mut *failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.push(format!("seed {seed}: {}", violations.join("\n  ")));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(lane);
        }
    });
    let mut figures = figures.into_inner().unwrap_or_else(PoisonError::into_inner);
    figures.took(began.elapsed());
    say(&figures.line());
    figures.append();
    // Once more, where a log of which only the end is kept has them.
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(failed.is_empty(), "rounds failed:\n{}", failed.join("\n"));
}

fn round(site: &Site, seed: u64) -> Outcome {
    let mut rng = fastrand::Rng::with_seed(seed);
    let fault = Fault::draw(&mut rng);
    let scene = Scene::ALL[rng.usize(0..Scene::ALL.len())];
    if fault.is_shared() {
        let _alone = site
            .everything
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        play(site, seed, rng, fault, scene)
    } else {
        let _beside = site
            .everything
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        play(site, seed, rng, fault, scene)
    }
}

fn play(site: &Site, seed: u64, rng: fastrand::Rng, fault: Fault, scene: Scene) -> Outcome {
    let log = site.plane.audit_log();
    let from = audit::end(log);
    let namespace = format!("chaos-{seed}");
    let mut stage = Stage::new(site, &namespace, scene, rng);
    let lease_space = if fault == Fault::Successor {
        "kube-system"
    } else {
        &namespace
    };
    let kinds = [
        (Kind::Pods, &*namespace),
        (Kind::ReplicaSets, &*namespace),
        (Kind::Leases, lease_space),
    ];
    let etcd = site.plane.variable("CONTROL_PLANE_ETCD");
    let chronicle = chronicle::Chronicle::start(etcd, &kinds, stage.began, &stage.stop);
    let mut left = faults::run(fault, &mut stage);
    let mut violations = left.unrest;
    violations.extend(faults::end(&mut stage, &mut left.daemons));
    let logs = faults::logs(&left.daemons, LINES_MAX);
    catch_up(&stage, &chronicle);
    let about = [
        format!("\"{namespace}\""),
        "replicaset-controller-shared".to_owned(),
    ];
    let about = [&*about[0], &*about[1]];
    let mut lines = audit::read(log, from, &about);
    if fault == Fault::TwoServers {
        site.kill_server(&namespace);
        lines.extend(audit::read(&site.second_log(&namespace), 0, &about));
    }
    let seen = chronicle.seen();
    let mut verdict = judge::judge(seen.as_deref().unwrap_or_default(), &lines, &left.terms);
    violations.append(&mut verdict.violations);
    verdict.violations = violations;
    stage.clean_up();
    let lines = lines.iter().filter(|line| {
        // A pod's name contains its ReplicaSet's.
        let is_told = |violation: &String| violation.contains(&line.name);
        let is_of_set = line.resource.starts_with("pods") || line.resource.starts_with("replica");
        is_of_set && !line.name.is_empty() && verdict.violations.iter().any(is_told)
    });
    Outcome {
        seed,
        scene,
        fault,
        n_kills: left.n_kills,
        is_watched: seen.is_some(),
        lines: lines.map(audit::Line::described).take(LINES_MAX).collect(),
        verdict,
        journal: stage.journal.clone(),
        logs,
    }
}

/// Waits until the chronicle has everything that is stored now.
fn catch_up(stage: &Stage, chronicle: &chronicle::Chronicle) {
    let mark = json!({"metadata": {"annotations": {"chaos": "end"}}});
    let last_pod = resource_version(&stage.api.merge_patch(Kind::Pods, FOREIGN, &mark));
    let sets = stage.api.list(Kind::ReplicaSets, "");
    let last_set = sets.iter().map(resource_version).max().unwrap_or(0);
    stage
        .site
        .waiting
        .eventually("the watches have caught up", || {
            chronicle.seen().is_none()
                || (chronicle.version(Kind::Pods) >= last_pod
                    && chronicle.version(Kind::ReplicaSets) >= last_set)
        });
}

fn repeat(seed: u64) -> String {
    format!("To repeat it: make chaos CHAOS_SEED={seed}")
}

fn described(outcome: &Outcome) -> String {
    let Outcome { seed, verdict, .. } = outcome;
    let (scene, fault) = (outcome.scene.name(), outcome.fault.name());
    let mut text = format!(
        "seed {seed}: {scene}, {fault}: {} kills, {} created, {} deleted, {} above, {} requests, \
         {} lists, {} writes by lease",
        outcome.n_kills,
        verdict.n_created,
        verdict.n_deleted,
        verdict.overshoot_max,
        verdict.n_requests,
        verdict.n_lists,
        verdict.n_leased
    );
    if !outcome.is_watched {
        text += "; only its end is judged";
    }
    if !verdict.violations.is_empty() {
        let lists = [&verdict.violations, &outcome.lines].map(|list| list.join("\n  "));
        text = format!(
            "{text}\nFAILED:\n  {}\nwhat was done:\n{}audit lines:\n  {}\nlogs:\n{}\n{}",
            lists[0],
            outcome.journal,
            lists[1],
            outcome.logs,
            repeat(*seed)
        );
    }
    text
}

/// Prints past the harness, which captures what other threads print only in part.
fn say(text: &str) {
    let mut output = std::io::stderr().lock();
    writeln!(output, "{text}").unwrap_or_default();
}
