//! The differences between the two servers that are meant to be, each with its reason. Pure.

use super::compare::{Difference, Rule};

/// All of them. With the usual seed each has to be met, so that none outlives its reason.
pub(super) const ACCEPTED: &[Rule] = &[
    // Admission plugins give every pod an account, a priority and two tolerations. The dev server has
    // no such plugins, and no controller or kubelet of its reads what they add.
    Rule {
        name: "admission defaults",
        accepts: |_, difference| {
            const ADDED: [&str; 5] = [
                "serviceAccount",
                "serviceAccountName",
                "priority",
                "preemptionPolicy",
                "tolerations",
            ];
            let added = |name: &&str| difference.ends_with(&["spec", name]);
            difference.dev.is_none() && ADDED.iter().any(added)
        },
    },
    // kube-apiserver shows what has changed as a dump of Go structures, over many lines.
    Rule {
        name: "dump of a forbidden change",
        accepts: |_, difference| {
            difference.texts().is_some_and(|(real, dev)| {
                let head = real.split('\n').next().unwrap_or_default();
                head.contains("pod updates may not change fields") && dev == head
            })
        },
    },
    // kube-apiserver quotes the whole object that a patch would have made.
    Rule {
        name: "dump of a patched object",
        accepts: |_, difference| {
            messages(difference).is_some_and(|(real, dev)| {
                let is_dump = |text: &str| text.contains("Invalid value: \"{\\\"");
                is_dump(real) && is_dump(dev)
            })
        },
    },
    // The words in which Go's parsers of JSON and YAML say what they did not expect, and where.
    Rule {
        name: "parser's words",
        accepts: |_, difference| {
            const WORDS: [&str; 5] = [
                "json parse error: ",
                "json: cannot unmarshal",
                "unexpected end of JSON input",
                "invalid character",
                "error decoding YAML: ",
            ];
            messages(difference)
                .is_some_and(|(real, _)| WORDS.iter().any(|words| real.contains(words)))
        },
    },
    // The words in which the parser of selectors says what it did not expect.
    Rule {
        name: "selector parser's words",
        accepts: |step, difference| {
            let has_selector = step.query.iter().any(|(name, _)| name == "labelSelector");
            has_selector
                && messages(difference).is_some_and(|(real, _)| {
                    real.starts_with("unable to parse requirement: ") || real.starts_with("found '")
                })
        },
    },
    // Where in Go's sources the table of kinds is made.
    Rule {
        name: "name of the scheme",
        accepts: |_, difference| {
            messages(difference)
                .is_some_and(|(real, _)| real.contains("in scheme \"pkg/runtime/scheme.go"))
        },
    },
    // The dev server counts what a quota limits at once and by itself; in a cluster, a controller
    // does.
    Rule {
        name: "quota counted at once",
        accepts: |step, difference| {
            let is_count = difference.path.iter().any(|name| name == "status")
                || difference.ends_with(&["resourceVersion"]);
            is_count && step.path.contains("/resourcequotas")
        },
    },
    // kubectl does not print what the columns of a table mean.
    Rule {
        name: "descriptions of columns",
        accepts: |_, difference| {
            difference
                .path
                .iter()
                .any(|name| name == "columnDefinitions")
                && difference.ends_with(&["description"])
        },
    },
];

/// The texts on both sides, if they are the message of a refusal or of one of its causes.
fn messages(difference: &Difference) -> Option<(&str, &str)> {
    let texts = difference.texts();
    texts.filter(|_| difference.ends_with(&["message"]))
}
