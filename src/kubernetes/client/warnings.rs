//! `Warning` headers: notices of the API server to its users, such as a policy that a pod violates.
//! Each distinct text is logged once.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use ureq::http::HeaderMap;
use ureq::http::header::WARNING;

/// Maximum texts remembered. Above it no further text is logged, so that a text with a name in it
/// cannot fill log and memory.
const TEXTS_MAX: usize = 256;

/// The warnings that were logged.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    state: Mutex<HashSet<String>>,
}

impl Warnings {
    /// Logs the warnings in a response's headers that were not logged before.
    pub(super) fn log(&self, headers: &HeaderMap) {
        for value in headers.get_all(WARNING) {
            let Ok(value) = value.to_str() else { continue };
            for text in texts(value) {
                if self.is_new(&text) {
                    log::warn!("the API server warns: {text}");
                }
            }
        }
    }

    fn is_new(&self, text: &str) -> bool {
        let mut seen = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        seen.len() < TEXTS_MAX && seen.insert(text.to_owned())
    }
}

/// The texts in one header's value: `299 - "text"`, several joined by commas. Codes other than 299
/// come from caches in between and do not concern the cluster.
fn texts(value: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = value;
    while let Some((head, tail)) = rest.split_once('"') {
        let (text, after) = unquote(tail);
        let code = head.trim_start_matches([',', ' ']).split(' ').next();
        if code == Some("299") && !text.is_empty() {
            texts.push(text);
        }
        rest = after;
    }
    texts
}

/// Returns the quoted text at the start of `input` without its escapes, and the remaining input.
fn unquote(input: &str) -> (String, &str) {
    let mut text = String::new();
    let mut chars = input.char_indices();
    while let Some((i, char)) = chars.next() {
        match char {
            '"' => return (text, &input[i + 1..]),
            '\\' => text.extend(chars.next().map(|(_, escaped)| escaped)),
            char => text.push(char),
        }
    }
    (text, "")
}

#[cfg(test)]
mod tests {
    use super::{TEXTS_MAX, Warnings, texts};

    #[test]
    fn warnings_are_parsed_from_the_header() {
        assert_eq!(texts("299 - \"a \\\"b\\\" c\""), ["a \"b\" c"]);
        assert_eq!(
            texts("299 - \"one, two\", 299 - \"three\""),
            ["one, two", "three"]
        );
        assert_eq!(
            texts("299 - \"dated\" \"Sat, 25 Aug 2012 23:34:45 GMT\", 299 - \"b\""),
            ["dated", "b"]
        );
        assert_eq!(texts("110 proxy \"stale\""), [""; 0]);
        assert_eq!(texts("nonsense"), [""; 0]);
    }

    #[test]
    fn each_text_is_new_once_up_to_a_limit() {
        let warnings = Warnings::default();
        assert!(warnings.is_new("a") && !warnings.is_new("a"));
        let n_new = (0..1000).filter(|i| warnings.is_new(&i.to_string()));
        assert_eq!(n_new.count(), TEXTS_MAX - 1);
    }
}
