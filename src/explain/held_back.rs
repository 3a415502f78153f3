//! Creates that are held back after a refusal: why, until when, and the way out. Pure.

use std::time::Duration;

use super::model::{Finding, HoldReport, LineReport};
use crate::controller::decide::refusal::Refusal;
use crate::controller::memory::quota_line::PAUSE_MAX;
use crate::controller::memory::refusals::HeldBack;

/// The finding about a ReplicaSet in this namespace. `is_watched` tells whether quotas are watched.
pub fn finding(held_back: &HeldBack, namespace: &str, is_watched: bool) -> Finding {
    let way_out = match &held_back.refusal {
        Refusal::Quota(quota) if is_watched => format!(
            "a change of the quota that leaves more room starts a probe at once, and so does a pod \
             of the namespace that ends: kubectl -n {namespace} describe quota {quota}"
        ),
        Refusal::Quota(quota) => format!(
            "a pod of the namespace that ends, or a ReplicaSet that shrinks, starts a probe at \
             once; after any other change of the quota it takes {:.0} s at most, because quotas \
             are not watched: kubectl -n {namespace} describe quota {quota}",
            PAUSE_MAX.as_secs_f64()
        ),
        Refusal::Overload { .. } => {
            "nothing has to be done here: check the health of the API server, or of the webhook \
             that the error names"
                .to_owned()
        }
        Refusal::Invalid => "change the spec: that starts a try at once, unlike an annotation or \
                             a change of its pods; once a policy or webhook that rejects them is \
                             mended, scale up and back"
            .to_owned(),
    };
    Finding {
        what: format!(
            "creates of pods are held back: {}",
            why(held_back, is_watched)
        ),
        way_out: Some(way_out),
    }
}

/// Why, and until when. `is_watched` tells whether quotas are watched.
pub fn why(held_back: &HeldBack, is_watched: bool) -> String {
    let next = in_seconds(held_back.remaining);
    let plural = if held_back.n_refusals == 1 { "" } else { "s" };
    let since = format!(
        "{} refusal{plural} in {:.0} s",
        held_back.n_refusals,
        held_back.since.as_secs_f64()
    );
    match &held_back.refusal {
        Refusal::Quota(quota) => {
            let place = held_back.place.map_or_else(String::new, |place| {
                let sooner = if is_watched {
                    ", or as soon as it shows more room"
                } else {
                    ""
                };
                format!(
                    " at place {} of {}, whose next probe is {}{sooner}",
                    place.n_before + 1,
                    place.len,
                    in_seconds(place.next_probe_in)
                )
            });
            format!(
                "it waits in the line of the quota {quota}{place}; {since}; its own next try is \
                 {next} at the latest"
            )
        }
        Refusal::Overload { .. } => {
            format!("the API server or a webhook is overloaded; {since}; the next try is {next}")
        }
        Refusal::Invalid => format!(
            "the API server calls the pods invalid; {since}; the next try comes with the next \
             generation, or {next}"
        ),
    }
}

/// The same as data.
pub fn report(held_back: &HeldBack, is_watched: bool) -> HoldReport {
    let line = match &held_back.refusal {
        Refusal::Quota(quota) => Some(LineReport {
            quota: quota.to_string(),
            place: held_back.place.map(|place| place.n_before + 1),
            length: held_back.place.map(|place| place.len),
            next_probe_seconds: held_back.place.map(|it| it.next_probe_in.as_secs_f64()),
            is_watched,
        }),
        Refusal::Overload { .. } | Refusal::Invalid => None,
    };
    HoldReport {
        kind: Refusal::KINDS[held_back.refusal.kind()],
        refusals: held_back.n_refusals,
        since_seconds: held_back.since.as_secs_f64(),
        next_try_seconds: held_back.remaining.as_secs_f64(),
        line,
    }
}

fn in_seconds(time: Duration) -> String {
    format!("in {:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::{finding, report, why};
    use crate::controller::decide::refusal::Refusal;
    use crate::controller::memory::refusals::{HeldBack, LinePlace};

    fn held_back(refusal: Refusal) -> HeldBack {
        HeldBack {
            refusal,
            n_refusals: 3,
            since: Duration::from_secs(70),
            remaining: Duration::from_millis(640_200),
            place: Some(LinePlace {
                n_before: 4,
                len: 12,
                next_probe_in: Duration::from_millis(12_300),
            }),
        }
    }

    #[test]
    fn a_watched_quota_need_not_be_probed() {
        let quota = held_back(Refusal::Quota("few".into()));
        let finding = finding(&quota, "shop", true);
        let words = "whose next probe is in 12.3 s, or as soon as it shows more room; 3 refusals";
        assert!(finding.what.contains(words), "{}", finding.what);
        let way_out = finding.way_out.expect("a way out");
        assert!(
            way_out.starts_with("a change of the quota that leaves more room starts a probe"),
            "{way_out}"
        );
    }

    #[test]
    fn a_line_is_named_with_the_place_in_it_and_the_next_probe() {
        let finding = finding(&held_back(Refusal::Quota("few".into())), "shop", false);
        assert_eq!(
            finding.what,
            "creates of pods are held back: it waits in the line of the quota few at place 5 of \
             12, whose next probe is in 12.3 s; 3 refusals in 70 s; its own next try is in 640.2 \
             s at the latest"
        );
        let way_out = finding.way_out.expect("a way out");
        assert!(
            way_out.contains("kubectl -n shop describe quota few"),
            "{way_out}"
        );
    }

    #[test]
    fn the_report_names_the_line_as_data() {
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
        assert!(overload.contains("overloaded") && overload.contains("the next try is in 640.2 s"));
        let invalid = finding(&held_back(Refusal::Invalid), "shop", true);
        assert!(
            invalid
                .what
                .contains("with the next generation, or in 640.2 s")
        );
        assert!(
            invalid
                .way_out
                .is_some_and(|it| it.starts_with("change the spec"))
        );
    }
}
