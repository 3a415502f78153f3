//! How long until a pod is seen.

use std::time::{Duration, Instant};

use crate::load::pause_until;
use crate::report::Report;
use crate::statistics::{median, quantile};
use crate::watch::{Observer, State};

/// Pods that are waited for, at most.
pub(crate) const PROBES_MAX: u32 = 100;

/// From the beginning of one to that of the next, at least.
pub(crate) const INTERVAL_MIN: Duration = Duration::from_millis(20);

/// Asks `every` so often for one pod, each of an owner of another name, as long as `goes_on`, and
/// measures from the time that `ask` answers until the pod is seen, in milliseconds. A pod that is seen
/// before took no time.
pub(crate) fn latencies(
    observer: &Observer,
    every: Duration,
    within: Duration,
    goes_on: impl Fn(&State) -> bool,
    mut ask: impl FnMut(&str) -> Result<Instant, String>,
) -> Result<Vec<f64>, String> {
    let mut asked = Vec::new();
    let mut next = Instant::now();
    for n in 0..PROBES_MAX {
        if !goes_on(&observer.lock()) {
            break;
        }
        let owner = format!("probe-{n}");
        let at = ask(&owner)?;
        asked.push((owner, at));
        // What a stall has made late is left out, lest a burst follow it.
        while next <= Instant::now() {
            next += every;
        }
        pause_until(next);
    }
    let all = |state: &State| {
        let mut owners = asked.iter();
        owners.all(|(owner, _)| state.first_pod.contains_key(owner))
    };
    observer.wait("a pod of each probe", within, all)?;
    let state = observer.lock();
    let of = |(owner, at): &(String, Instant)| {
        let seen = state.first_pod[owner];
        seen.saturating_duration_since(*at).as_secs_f64() * 1000.0
    };
    Ok(asked.iter().map(of).collect())
}

/// Notes the median, the 99th of a hundred, and each single one.
pub(crate) fn add_latencies(report: &mut Report, who: &'static str, what: &str, values: Vec<f64>) {
    report.add(who, &format!("{what}, p50 ms"), median(&values));
    report.add(who, &format!("{what}, p99 ms"), quantile(&values, 0.99));
    report.add_samples(who, &format!("{what}, ms"), values);
}
