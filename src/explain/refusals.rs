//! Creates that wait after a refusal: why, until when, and the way out. Pure.

use super::model::{Finding, HoldReport, LineReport};
use crate::controller::memory::refusals::{HeldBack, PAUSE_MAX, Refusal};

/// The finding about a ReplicaSet in this namespace. `is_watched` tells whether quotas are watched.
pub fn finding(held_back: &HeldBack, namespace: &str, is_watched: bool) -> Finding {
    let longest = PAUSE_MAX.as_secs();
    let way_out = match &held_back.refusal {
        Refusal::Quota(quota) => {
            let ways = if is_watched {
                "free some of the quota, or raise it; its status starts the next try at once"
                    .to_owned()
            } else {
                format!(
                    "free some of the quota, which starts the next try at once, or raise it: \
                     quotas are not watched, so that takes up to {longest} s"
                )
            };
            format!("{ways}: kubectl -n {namespace} describe quota {quota}")
        }
        Refusal::Overload { .. } => "nothing has to be done here: check the health of the API \
                                     server, or of the webhook that the error names"
            .to_owned(),
        Refusal::Invalid => "change the spec, which starts a try at once, or repair the policy or \
                             webhook that rejects the pods, and wait for the next try"
            .to_owned(),
    };
    Finding {
        what: format!(
            "creates of pods are backed off: {}",
            why(held_back, is_watched)
        ),
        way_out: Some(way_out),
    }
}

/// Why, and until when.
fn why(held_back: &HeldBack, is_watched: bool) -> String {
    let (n, seconds) = (held_back.n_refusals, held_back.since.as_secs_f64());
    let plural = if n == 1 { "" } else { "s" };
    let next = next_try(held_back);
    let times = format!("{n} refusal{plural} in {seconds:.0} s; {next}");
    match (&held_back.refusal, held_back.position) {
        (Refusal::Quota(quota), position) => {
            let position = position.map_or_else(String::new, |it| {
                format!(", number {} of {} waiting", it.n_before + 1, it.len)
            });
            let sooner = if is_watched {
                ", or as soon as its status shows free quota"
            } else {
                ""
            };
            let own = held_back.remaining.as_secs_f64();
            format!(
                "blocked by quota \"{quota}\"{position}; {times}{sooner}; its own try at the \
                 latest in {own:.0} s"
            )
        }
        (Refusal::Overload { .. }, _) => {
            format!("the API server or a webhook is overloaded; {times}")
        }
        (Refusal::Invalid, _) => format!("the API server calls the pods invalid; {times}"),
    }
}

/// When a create is tried again: its own, or that of another one in the queue of its quota.
pub fn next_try(held_back: &HeldBack) -> String {
    let of_queue = held_back.position.map(|it| it.next_try_in);
    let next = of_queue
        .unwrap_or(held_back.remaining)
        .min(held_back.remaining);
    format!("next try in {:.1} s", next.as_secs_f64())
}

/// The same as data.
pub fn report(held_back: &HeldBack, is_watched: bool) -> HoldReport {
    let position = held_back.position;
    let of_quota = |quota: &str| LineReport {
        quota: quota.to_owned(),
        place: position.map(|it| it.n_before + 1),
        length: position.map(|it| it.len),
        next_probe_seconds: position.map(|it| it.next_try_in.as_secs_f64()),
        is_watched,
    };
    HoldReport {
        kind: Refusal::KINDS[held_back.refusal.kind()],
        refusals: held_back.n_refusals,
        since_seconds: held_back.since.as_secs_f64(),
        next_try_seconds: held_back.remaining.as_secs_f64(),
        line: match &held_back.refusal {
            Refusal::Quota(quota) => Some(of_quota(quota)),
            Refusal::Overload { .. } | Refusal::Invalid => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::{finding, report, why};
    use crate::controller::memory::refusals::{HeldBack, QueuePosition, Refusal};

    fn held_back(refusal: Refusal) -> HeldBack {
        HeldBack {
            refusal,
            n_refusals: 3,
            since: Duration::from_secs(70),
            remaining: Duration::from_millis(640_200),
            position: Some(QueuePosition {
                n_before: 4,
                len: 12,
                next_try_in: Duration::from_millis(12_300),
            }),
        }
    }

    #[test]
    fn a_queue_is_named_with_the_position_in_it_and_the_next_try() {
        for (is_watched, sooner) in [
            (false, ""),
            (true, ", or as soon as its status shows free quota"),
        ] {
            let quota = held_back(Refusal::Quota("few".into()));
            let finding = finding(&quota, "shop", is_watched);
            assert_eq!(
                finding.what,
                format!(
                    "creates of pods are backed off: blocked by quota \"few\", number 5 of 12 \
                     waiting; 3 refusals in 70 s; next try in 12.3 s{sooner}; its own try at the \
                     latest in 640 s"
                )
            );
            let way_out = finding.way_out.expect("a way out");
            assert!(
                way_out.contains("kubectl -n shop describe quota few"),
                "{way_out}"
            );
        }
    }

    #[test]
    fn the_report_names_the_queue_as_data() {
        let quota = report(&held_back(Refusal::Quota("few".into())), true);
        assert_eq!(
            serde_json::to_value(&quota).expect("JSON"),
            json!({
                "kind": "quota", "refusals": 3, "sinceSeconds": 70.0, "nextTrySeconds": 640.2,
                "line": {
                    "quota": "few", "place": 5, "length": 12, "nextProbeSeconds": 12.3,
                    "isWatched": true,
                },
            })
        );
        let invalid = report(&held_back(Refusal::Invalid), true);
        assert_eq!((invalid.kind, invalid.line), ("invalid", None));
    }

    #[test]
    fn the_other_kinds_name_the_next_try() {
        let overload = why(&held_back(Refusal::Overload { retry_after: None }), true);
        assert!(overload.contains("overloaded") && overload.contains("next try in 12.3 s"));
        let invalid = finding(&held_back(Refusal::Invalid), "shop", true);
        assert!(invalid.what.contains("next try in 12.3 s"));
        assert!(
            invalid
                .way_out
                .is_some_and(|it| it.starts_with("change the spec"))
        );
    }
}
