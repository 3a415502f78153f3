//! The secret of these tests, and how to find it in what the daemon shows.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Part of every secret.
pub(super) const CANARY: &str = "qzqz-canary-of-the-test-qzqz";

/// The secret as it is, and in base64 wherever it begins within a longer text.
fn forms() -> Vec<String> {
    let in_base64 = (0..3).map(|before| {
        let text = " ".repeat(before) + CANARY;
        let encoded = STANDARD.encode(text);
        // The first and the last characters depend on the neighbours.
        encoded[4..encoded.len() - 4].to_owned()
    });
    std::iter::once(CANARY.to_owned())
        .chain(in_base64)
        .collect()
}

/// The text, plus the decoded bytes of its hex dumps: rows such as `4745 5420 2f61  GET./a`.
fn with_dumps(text: &str) -> String {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let (_, row) = line.rsplit_once(": ").unwrap_or_default();
        let groups = row.split(' ').take_while(|it| {
            it.len().is_multiple_of(2)
                && !it.is_empty()
                && it.chars().all(|c| c.is_ascii_hexdigit())
        });
        for group in groups {
            let pairs = (0..group.len()).step_by(2);
            bytes.extend(pairs.filter_map(|at| u8::from_str_radix(&group[at..at + 2], 16).ok()));
        }
    }
    format!("{text}{}", String::from_utf8_lossy(&bytes))
}

/// The lines of `text` that show the secret, and where they were found.
pub(super) fn leaks(place: &str, text: &str) -> Vec<String> {
    let forms = forms();
    let is_leak = |line: &&str| forms.iter().any(|form| line.contains(form));
    let all = with_dumps(text);
    let found = all.lines().filter(is_leak);
    found.map(|line| format!("{place}: {line:.400}")).collect()
}

#[test]
fn the_canary_is_found_in_every_form() {
    for text in [
        format!("token={CANARY}&"),
        STANDARD.encode(format!("u:{CANARY}")),
        STANDARD.encode(format!("user:{CANARY} and more")),
        STANDARD.encode(format!("name:{CANARY}")),
    ] {
        assert_eq!(leaks("here", &format!("x\n{text}\ny")).len(), 1, "{text}");
    }
    let digits = CANARY.bytes().map(|byte| format!("{byte:02x}"));
    let groups = digits
        .collect::<Vec<_>>()
        .chunks(2)
        .map(<[String]>::concat)
        .collect::<Vec<_>>();
    let dump = format!("TRACE [main] dump: {}", groups.join(" "));
    assert_eq!(leaks("here", &dump).len(), 1, "{dump}");
    assert_eq!(leaks("here", "nothing"), [""; 0]);
}
