//! Whole daemons under simulation: one to three processes, each with every thread of [`Manager`],
//! on one virtual clock, against a model of two API servers.
//!
//! [`turns`](crate::stdx::turns) runs the daemon's own loops; [`simulated`](crate::client) takes
//! the place of TCP. Everything above is what ships: elector and fence, reflectors, retries, the
//! rate limit, the queue, workers, events, the order of start and stop. Only rayon is
//! missing: the jobs of a batch run on threads of their own.
//!
//! [`plan`] draws a history from its seed, [`world`] lets it happen, [`network`] carries requests
//! and watches with the [`faults`] of single requests, [`cluster`] plays users, kubelets and
//! garbage collection, [`daemon`] the processes, and [`api_server`] the servers. [`lease`] follows
//! who leads. [`oracles`] judge each request when its last byte leaves the process, by what that
//! process had read ([`view`]). Then the faults end, and every ReplicaSet must converge within two
//! seconds of its own time ([`settle`]), and the leader must report so ([`leader_report`]). In a
//! quarter of the histories a dry run watches the leader ([`dry_run`]), and a new ReplicaSet passes
//! through a fixed sequence ([`calm`]).
//!
//! A failure names its seed and is made smaller. `SIMULATION_SEEDS=FIRST..END` runs other seeds.

mod api_server;
mod calm;
mod cluster;
mod daemon;
mod dry_run;
mod failing;
mod faults;
mod http;
mod knowledge;
mod leader_report;
mod lease;
mod marks;
mod network;
mod objects;
mod opt_ins;
mod oracles;
mod plan;
mod preferences;
mod quota;
mod rejections;
mod report;
mod settle;
mod shrink;
mod simulate;
mod view;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use self::cluster::{name_of, replica_set};
use self::daemon::Daemon;
use self::objects::Kind;
use self::plan::Plan;
use self::world::{Event, World};
use crate::client::simulated::Attached;
use crate::stdx::turns::simulation::Scheduler;

/// The course of one history.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The first failure; empty if nothing did.
    wrong: Vec<String>,
    lines: Vec<String>,
    n_steps: u64,
    n_turns: u64,
    n_late_writes: u64,
    n_late_copies: u64,
    virtual_time: Duration,
    faults: BTreeMap<&'static str, u64>,
    reached: BTreeMap<&'static str, u64>,
}

/// Runs one history to its end.
fn run(plan: &Plan) -> Outcome {
    let scheduler = Scheduler::new(plan.seed);
    scheduler.set_slowness(plan.slowness);
    scheduler.set_crash_rate(plan.crash_rate);
    let world = World::new(&scheduler, plan.clone());
    scheduler.attach(Some(Arc::new(Attached(Arc::clone(&world) as Arc<_>))));
    scheduler.run(|| {
        begin(&world, plan);
        world.run_until(plan.length);
        world.settle();
        world.scale_beside_dry_run();
        world.try_new_replica_set();
        if world.lock().wrong.is_empty() {
            world.stop_all();
        }
        world.kill_all();
    });
    // The world and the scheduler refer to each other.
    scheduler.attach(None);
    let mut state = world.lock();
    let mut reached = scheduler.reached();
    reached.append(&mut state.reached);
    Outcome {
        wrong: std::mem::take(&mut state.wrong),
        lines: std::mem::take(&mut state.lines),
        n_steps: state.n_steps,
        n_turns: scheduler.n_turns(),
        n_late_writes: state.n_late_writes,
        n_late_copies: state.late_copies.len() as u64,
        virtual_time: scheduler.elapsed(),
        faults: std::mem::take(&mut state.faults.counts),
        reached,
    }
}

fn begin(world: &Arc<World>, plan: &Plan) {
    let mut state = world.lock();
    for (set, replicas) in plan.replicas.iter().enumerate() {
        let object = replica_set(&name_of(set), *replicas, &plan.opt_ins_of(set));
        state.write(Duration::ZERO, |api| api.create(Kind::ReplicaSet, object));
    }
    for number in 0..plan.n_daemons + usize::from(plan.has_dry_run) {
        state.daemons.push(Daemon::default());
        let at = Duration::from_millis(10 + 300 * number as u64);
        state.schedule(at, Event::Start(number));
    }
    for (at, action) in &plan.actions {
        state.schedule(*at, Event::Act(action.clone()));
    }
    state.schedule(Duration::from_secs(40), Event::Bookmarks);
    if plan
        .actions
        .iter()
        .any(|(_, action)| *action == plan::Action::Restore)
    {
        state.schedule(Duration::from_secs(1), Event::Snapshot);
    }
}

#[expect(clippy::print_stdout, reason = "the figures are what a run is for")]
fn print(totals: &report::Totals) {
    print!("{totals}");
}

/// Runs the history of this seed.
///
/// # Errors
/// The report of a smaller history that fails too.
fn check(seed: u64) -> Result<Outcome, String> {
    let outcome = run(&Plan::new(seed));
    if outcome.wrong.is_empty() {
        Ok(outcome)
    } else {
        Err(shrink::print_the_smallest(&Plan::new(seed)))
    }
}

/// The kinds of faults, and what else, that a run of many histories must have had.
fn all_faults() -> impl Iterator<Item = &'static str> {
    faults::KINDS.into_iter().chain(plan::FAULTS).chain([
        world::CRASH,
        daemon::RESTORED,
        lease::LOST,
        dry_run::COMPARED,
        calm::TRIED,
    ])
}

#[test]
fn no_history_breaks_a_promise_and_every_one_settles() {
    let given = |name| std::env::var(name).ok();
    if let Some(minutes) = given("SIMULATION_MINUTES").and_then(|it| it.parse::<f64>().ok()) {
        return simulate::simulate(Duration::from_secs_f64(60.0 * minutes));
    }
    let seeds = given("SIMULATION_SEEDS");
    let range = seeds.as_deref().and_then(|range| range.split_once(".."));
    let range = range.and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    let range = range.unwrap_or(0..40);
    let mut totals = report::Totals::of(range.start, range.end);
    for seed in range {
        totals.add(&check(seed).unwrap_or_else(|failure| panic!("{failure}")));
    }
    print(&totals);
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in [3, 4] {
        let (first, second) = (run(&Plan::new(seed)), run(&Plan::new(seed)));
        let lines = first.lines.iter().zip(&second.lines);
        for (number, (first, second)) in lines.enumerate() {
            assert_eq!(first, second, "line {number} of seed {seed}");
        }
        assert_eq!(first.lines.len(), second.lines.len());
    }
}
