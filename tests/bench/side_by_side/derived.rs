//! Figures derived from others, which the goals refer to.

use crate::figures::{
    BARE_LIST, MEMORY_EMPTY, MEMORY_FULL, RAW_RATE, RESTART_MEMORY, RESTART_PEAK, RESTART_SECONDS,
    UP_ONE_RATE,
};
use crate::options::Options;
use crate::report::{Derived, FLOOR, ORIGINAL, OURS, Report};
use crate::statistics::number;

/// Adds the derived figures of each round whose operands were measured.
pub(crate) fn add(report: &mut Report, options: &Options) {
    let n_pods = number(options.pods_of_many());
    let raw_rate = report.median(FLOOR, RAW_RATE);
    for round in 1..=report.n_rounds() {
        let bare_list = report.of_round(FLOOR, BARE_LIST, round);
        for who in [ORIGINAL, OURS] {
            let of = |figure: &str| report.of_round(who, figure, round);
            let grown = of(MEMORY_FULL).zip(of(MEMORY_EMPTY));
            let grown = grown.map(|(full, empty)| (full - empty) * 1024.0 * 1024.0);
            let all = [
                (
                    MEMORY_FULL,
                    "bytes a pod over the empty controller",
                    ratio(grown, Some(n_pods)),
                ),
                (
                    RESTART_PEAK,
                    "restart, peak over settled memory",
                    ratio(of(RESTART_PEAK), of(RESTART_MEMORY)),
                ),
                (
                    RESTART_SECONDS,
                    "restart, times the bare list",
                    ratio(of(RESTART_SECONDS), bare_list),
                ),
                (
                    UP_ONE_RATE,
                    "scale-up of one, part of the raw create rate",
                    ratio(of(UP_ONE_RATE), raw_rate),
                ),
            ];
            for (below, figure, value) in all {
                if let Some(value) = value {
                    report.add_derived(&Derived {
                        who,
                        figure,
                        below,
                        round,
                        value,
                    });
                }
            }
        }
    }
}

fn ratio(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    let (part, whole) = part.zip(whole)?;
    (whole > 0.0).then(|| part / whole)
}
