//! The accepted differences between the two servers, each with its reason. Pure.

use super::compare::{Difference, Rule};

/// All accepted differences. With the default seed each must occur, so that none outlives its
/// reason.
pub(super) const ACCEPTED: &[Rule] = &[
    // Admission plugins add a priority and two tolerations to every pod. The dev server has no such
    // plugins, and none of its components reads these fields.
    Rule {
        name: "admission defaults",
        accepts: |_, difference| {
            const ADDED: [&str; 3] = ["priority", "preemptionPolicy", "tolerations"];
            let added = |name: &&str| difference.ends_with(&["spec", name]);
            difference.dev.is_none() && ADDED.iter().any(added)
        },
    },
    // kube-apiserver appends a dump of Go structures with the change, over many lines.
    Rule {
        name: "dump of a forbidden change",
        accepts: |_, difference| {
            difference.texts().is_some_and(|(real, dev)| {
                let head = real.split('\n').next().unwrap_or_default();
                head.contains("pod updates may not change fields") && dev == head
            })
        },
    },
    // kube-apiserver quotes the whole patched object.
    Rule {
        name: "dump of a patched object",
        accepts: |_, difference| {
            messages(difference).is_some_and(|(real, dev)| {
                let is_dump = |text: &str| text.contains("Invalid value: \"{\\\"");
                is_dump(real) && is_dump(dev)
            })
        },
    },
    // The error messages of Go's JSON and YAML parsers.
    Rule {
        name: "parser's words",
        accepts: |_, difference| {
            const WORDS: [&str; 6] = [
                "error encoding patch: yaml: ",
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
    // The dev server adds to a 404 what it serves instead. kube-apiserver has only a plain text for
    // an unknown group.
    Rule {
        name: "what is served instead",
        accepts: |_, difference| {
            const WORDS: [&str; 2] = [
                "the server could not find the requested resource",
                "404 page not found (get things.nothing.example)",
            ];
            messages(difference).is_some_and(|(real, dev)| {
                WORDS.contains(&real) && dev.starts_with("the dev server ")
            })
        },
    },
    Rule {
        name: "status for an unknown group",
        accepts: |step, difference| {
            let names = ["details", "reason", "status"];
            step.path.starts_with("/apis/nothing.example/")
                && names.iter().any(|name| difference.ends_with(&[name]))
        },
    },
    // The error messages of Go's selector parser.
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
    // The message contains the Go source line that creates the scheme.
    Rule {
        name: "name of the scheme",
        accepts: |_, difference| {
            messages(difference)
                .is_some_and(|(real, _)| real.contains("in scheme \"pkg/runtime/scheme.go"))
        },
    },
    // The dev server updates a quota's usage at once. In a cluster, the quota controller does.
    Rule {
        name: "quota counted at once",
        accepts: |step, difference| {
            let is_count = difference.path.iter().any(|name| name == "status")
                || difference.ends_with(&["resourceVersion"]);
            is_count && step.path.contains("/resourcequotas")
        },
    },
    // kubectl does not print the descriptions of a table's columns.
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

/// Further accepted differences of an API server that is older than 1.N, each with that N. With the
/// default seed each must occur there.
pub(super) const ACCEPTED_OF_OLDER: &[(u32, Rule)] = &[
    // A missing member of an owner reference was an invalid value, without an index.
    (
        37,
        Rule {
            name: "owners before 1.37",
            accepts: |step, difference| {
                let names = ["field", "reason", "message"];
                let is_cause = names.iter().any(|name| difference.ends_with(&[name]));
                let is_older = |text: &str| {
                    text == "FieldValueInvalid"
                        || text.contains("metadata.ownerReferences.")
                        || text.ends_with("must not be empty")
                };
                is_cause
                    && step.to_string().contains("ownerReferences")
                    && difference.texts().is_some_and(|(real, _)| is_older(real))
            },
        },
    ),
    // DeleteOptions that cannot be read were an internal error.
    (
        35,
        Rule {
            name: "options of a delete before 1.35",
            accepts: |step, difference| {
                let names = ["HTTP", "code", "reason"];
                let is_500 = difference.real.as_ref().is_none_or(|real| real == 500);
                step.method == "DELETE"
                    && is_500
                    && names.iter().any(|name| difference.ends_with(&[name]))
            },
        },
    ),
    // The table of service accounts had a column with the number of secrets.
    (
        35,
        Rule {
            name: "service accounts before 1.35",
            accepts: |step, difference| {
                let parts = ["columnDefinitions", "cells"];
                let is_part = |name: &str| parts.contains(&name);
                step.path.contains("/serviceaccounts")
                    && difference.path.iter().any(|name| is_part(name))
            },
        },
    ),
];

/// The strings of both sides, if they are the message of a status error or of one of its causes.
fn messages(difference: &Difference) -> Option<(&str, &str)> {
    let texts = difference.texts();
    texts.filter(|_| difference.ends_with(&["message"]))
}
