//! The controller is killed while responses to its creates are lost. Another controller continues,
//! and no pod is created twice.

use std::collections::HashSet;
use std::time::Duration;

use super::{PATIENCE, collection, replica_set, until_complete};
use crate::devserver::{Action, Matcher, Rule};
use crate::run::stand_in::demo::stage::{ChapterResult, Stage, check};

const SET: &str = "phoenix";

const REPLICAS: usize = 120;

/// Number of creates before the first lost response. The server carries out the next creates, but
/// their responses are lost.
const N_ANSWERED: usize = 40;

const N_UNANSWERED: usize = 12;

/// Duration of a create, long enough to kill the controller during the scale-up.
const CREATE_TIME: Duration = Duration::from_millis(60);

pub(super) fn play(stage: &mut Stage<'_>) -> ChapterResult<String> {
    let before = stage.version();
    let creates = || Matcher::verb("create", "pods");
    let slow = stage.add_rule(Rule::new(creates(), Action::Delay(CREATE_TIME)));
    let lost = Rule::new(creates(), Action::CutAfter).after(N_ANSWERED);
    let lost = stage.add_rule(lost.times(N_UNANSWERED));
    stage.command(format!("kubectl create -f {SET}.yaml   # wants {REPLICAS}"));
    let shown = interrupt(stage, &lost);
    lost.remove();
    slow.remove();
    shown?;
    let n_first = stage.pods_since(before, "default").added;
    check((N_ANSWERED + 1..REPLICAS).contains(&n_first), || {
        format!("{n_first} pods existed when the controller was killed")
    })?;
    stage.note(format!(
        "killed: {n_first} of {REPLICAS} pods exist; the answers to {N_UNANSWERED} of the creates \
         were lost"
    ));
    let n_then = n_first;
    stage.hold("no pod is created without a controller", 0.3, |world| {
        world.pods_of_name(SET).len() == n_then
    })?;
    stage.pause(0.5)?;

    stage.command("systemctl restart replicaset-controller");
    stage.start_controller()?;
    until_complete(stage, SET)?;
    // A late create or delete would arrive within this time.
    let world = stage.hold("nothing more happens", 0.5, |world| {
        world.pods_of_name(SET).len() == REPLICAS
    })?;
    let tally = stage.pods_since(before, "default");
    check(
        tally.is_complete && tally.added == REPLICAS && tally.deleted == 0,
        || {
            let (added, deleted) = (tally.added, tally.deleted);
            format!("{added} pods were created and {deleted} deleted, not {REPLICAS} and 0")
        },
    )?;
    let pods = world.pods_of_name(SET);
    let names: HashSet<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
    check(names.len() == REPLICAS, || {
        format!("{} distinct pod names", names.len())
    })?;
    stage.note(format!(
        "restarted: {} more pods were created, {} in total, none twice and none deleted",
        tally.added - n_first,
        tally.added
    ));
    stage.pause(0.4)?;
    Ok(format!(
        "killed at {n_first} pods, {N_UNANSWERED} answers lost; restarted: {REPLICAS} pods \
         in total, none twice"
    ))
}

fn interrupt(stage: &mut Stage<'_>, lost: &crate::devserver::RuleHandle) -> ChapterResult<()> {
    stage.create(&collection("default"), &replica_set(SET, REPLICAS))?;
    stage.until("the middle of the scale-up", PATIENCE, |_, _| {
        lost.hits() == N_UNANSWERED
    })?;
    stage.kill_controller()
}
