//! Memory during long churn, which must not grow.

use std::time::{Duration, Instant};

use super::Stage;
use super::replicas::kill_some;
use crate::contestant::Process;
use crate::statistics::number;

/// Deletes pods and waits for their replacement in a loop, and reads the memory each minute. Adds
/// each figure at once, so that it is printed during the hour.
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
