//! Creates that are held back after a refusal: why, until when, and the way out. Pure.

use std::time::Duration;

use super::model::Finding;
use crate::controller::decide::refusal::Refusal;
use crate::controller::memory::quota_line::PAUSE_MAX;
use crate::controller::memory::refusals::HeldBack;

/// The finding about a ReplicaSet in this namespace.
pub fn finding(held_back: &HeldBack, namespace: &str) -> Finding {
    let way_out = match &held_back.refusal {
        Refusal::Quota(quota) => format!(
            "a pod of the namespace that ends, or a ReplicaSet that shrinks, starts a probe at \
             once; after any other change of the quota it takes {:.0} s at most: kubectl -n \
             {namespace} describe quota {quota}",
            PAUSE_MAX.as_secs_f64()
        ),
        Refusal::Overload { .. } => {
            "nothing has to be done here: check the health of the API server, or of the webhook \
             that the error names"
                .to_owned()
        }
        Refusal::Invalid => "change the spec: that starts a try at once, unlike an annotation or \
                             a change of its pods"
            .to_owned(),
    };
    Finding {
        what: format!("creates of pods are held back: {}", why(held_back)),
        way_out: Some(way_out),
    }
}

/// Why, and until when.
pub fn why(held_back: &HeldBack) -> String {
    let next = in_seconds(held_back.remaining);
    let since = format!(
        "{} refusals in {:.0} s",
        held_back.n_refusals,
        held_back.since.as_secs_f64()
    );
    match &held_back.refusal {
        Refusal::Quota(quota) => {
            let place = held_back.place.map_or_else(String::new, |place| {
                format!(
                    " at place {} of {}, whose next probe is {}",
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

fn in_seconds(time: Duration) -> String {
    format!("in {:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{finding, why};
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
    fn a_line_is_named_with_the_place_in_it_and_the_next_probe() {
        let finding = finding(&held_back(Refusal::Quota("few".into())), "shop");
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
    fn the_other_kinds_name_the_next_try() {
        let overload = why(&held_back(Refusal::Overload { retry_after: None }));
        assert!(overload.contains("overloaded") && overload.contains("the next try is in 640.2 s"));
        let invalid = finding(&held_back(Refusal::Invalid), "shop");
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
