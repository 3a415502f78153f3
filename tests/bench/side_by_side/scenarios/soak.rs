//! Churn for long: memory must not grow.

use std::time::{Duration, Instant};

use super::Stage;
use super::replicas::{kill_some, number};
use crate::contestant::Process;

/// Kills pods and lets them be replaced, again and again, and reads the memory each minute.
pub(super) fn soak(stage: &mut Stage<'_>, process: &Process) -> Result<(), String> {
    const MINUTE: Duration = Duration::from_mins(1);
    let began = Instant::now();
    let (mut n_replaced, mut memory) = (0, Vec::new());
    for minute in 1..=stage.options.soak_minutes {
        let until = MINUTE * u32::try_from(minute).unwrap_or(u32::MAX);
        while began.elapsed() < until {
            n_replaced += kill_some(stage)?.0;
        }
        memory.push(process.usage()?.resident);
    }
    let first = memory.first().copied().unwrap_or_default();
    let last = memory.last().copied().unwrap_or_default();
    let overshoot = stage.observer.lock().overshoot;
    stage.add("soak, pods replaced", number(n_replaced));
    stage.add("soak, memory after the first minute, MiB", first);
    for (minutes, memory) in (1..).zip(&memory).skip(9).step_by(10) {
        let figure = format!("soak, memory after {minutes} minutes, MiB");
        stage.add(&figure, *memory);
    }
    stage.add("soak, memory after the last minute, MiB", last);
    stage.add("soak, overshoot", number(overshoot));
    Ok(())
}
