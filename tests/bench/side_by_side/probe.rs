//! Measures the time until a pod is observed.

use std::time::{Duration, Instant};

use crate::load::pause_until;
use crate::report::Report;
use crate::statistics::{median, quantile};
use crate::watch::{Observer, State};

/// Maximum number of probes.
pub(crate) const PROBES_MAX: u32 = 100;

/// Minimum interval between the starts of two probes.
pub(crate) const INTERVAL_MIN: Duration = Duration::from_millis(20);

/// Starts a probe per `every` while `goes_on`: `start` requests one pod of a new owner. Measures in
/// milliseconds from the time that `start` returns until the owner's first pod is observed, 0 if
/// that comes first.
pub(crate) fn latencies(
    observer: &Observer,
    every: Duration,
    within: Duration,
    goes_on: impl Fn(&State) -> bool,
    mut start: impl FnMut(&str) -> Result<Instant, String>,
) -> Result<Vec<f64>, String> {
    let mut started = Vec::new();
    let mut next = Instant::now();
    for n in 0..PROBES_MAX {
        if !goes_on(&observer.lock()) {
            break;
        }
        let owner = format!("probe-{n}");
        let at = start(&owner)?;
        started.push((owner, at));
        // Skips probes that a stall has delayed. Otherwise they would form a burst.
        while next <= Instant::now() {
            next += every;
        }
        pause_until(next);
    }
    let all = |state: &State| {
        let mut owners = started.iter();
        owners.all(|(owner, _)| state.first_pod.contains_key(owner))
    };
    observer.wait("a pod of each probe", within, all)?;
    let state = observer.lock();
    let of = |(owner, at): &(String, Instant)| {
        let observed = state.first_pod[owner];
        observed.saturating_duration_since(*at).as_secs_f64() * 1000.0
    };
    Ok(started.iter().map(of).collect())
}

/// Adds the median, the 99th percentile and all single values to the report.
pub(crate) fn add_latencies(report: &mut Report, who: &'static str, what: &str, values: Vec<f64>) {
    report.add(who, &format!("{what}, p50 ms"), median(&values));
    report.add(who, &format!("{what}, p99 ms"), quantile(&values, 0.99));
    report.add_samples(who, &format!("{what}, ms"), values);
}
