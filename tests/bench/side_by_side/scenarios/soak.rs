//! Churn for long: memory must not grow.

use std::time::{Duration, Instant};

use super::Stage;
use super::replicas::kill_some;
use crate::contestant::Process;
use crate::statistics::number;

/// Kills pods and lets them be replaced, again and again, and reads the memory each minute. Figures are
/// told as they come, so that whoever waits an hour for the last one has the others.
pub(super) fn soak(stage: &mut Stage<'_>, process: &Process) -> Result<(), String> {
    const MINUTE: Duration = Duration::from_mins(1);
    let began = Instant::now();
    let (mut n_replaced, mut last) = (0, 0.0);
    for minute in 1..=stage.options.soak_minutes {
        let until = MINUTE * u32::try_from(minute).unwrap_or(u32::MAX);
        while began.elapsed() < until {
            n_replaced += kill_some(stage)?.0;
        }
        last = process.usage()?.resident;
        if minute == 1 {
            stage.add("soak, memory after the first minute, MiB", last);
        } else if minute % 10 == 0 {
            let figure = format!("soak, memory after {minute} minutes, MiB");
            stage.add(&figure, last);
        }
    }
    stage.add("soak, memory after the last minute, MiB", last);
    stage.add("soak, pods replaced", number(n_replaced));
    stage.add_overshoot("soak")
}
