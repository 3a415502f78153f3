//! How long until a pod is seen.

use std::time::{Duration, Instant};

use crate::load::pause;
use crate::statistics::quantile;
use crate::watch::{Observer, State};

/// Pods that are waited for, one after the other.
const PROBES: usize = 100;

/// Between two of them.
const INTERVAL: Duration = Duration::from_millis(20);

/// The median and the 99th of a hundred, in milliseconds.
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

/// Asks for one pod after the other, each of an owner of another name, and measures from the time that
/// `ask` answers until the pod is seen.
pub(crate) fn latency(
    observer: &Observer,
    within: Duration,
    ask: impl Fn(&str) -> Result<Instant, String>,
) -> Result<Latency, String> {
    let mut asked = Vec::new();
    for n in 0..PROBES {
        let owner = format!("probe-{n}");
        let at = ask(&owner)?;
        asked.push((owner, at));
        pause(INTERVAL);
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
    let latencies: Vec<f64> = asked.iter().map(of).collect();
    drop(state);
    Ok(Latency {
        p50: quantile(&latencies, 0.5),
        p99: quantile(&latencies, 0.99),
    })
}
