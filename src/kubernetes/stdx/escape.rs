//! Escapes foreign text for the log and terminals, and shortens it for events and conditions. Pure.
//!
//! Text from an API server, a webhook or a client may contain characters that move a terminal's
//! cursor, forge a log line, or reverse the reading order. Events and conditions keep them, as
//! upstream's: kubectl escapes what it prints (cli-runtime `pkg/printers/terminal.go`).

use std::borrow::Cow;
use std::error::Error;
use std::fmt::Write;

/// Returns `text` on one line: escapes control characters, line and paragraph separators, and marks
/// that change the text direction, such as `\n` and `\u{1b}`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    escape(text, is_harmful, |c| c.escape_default().to_string())
}

/// Like [`escaped`], but keeps newlines.
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    let is_harmful = |c| c != '\n' && is_harmful(c);
    escape(text, is_harmful, |c| c.escape_default().to_string())
}

/// Returns the JSON text `json` with the characters that [`escaped`] escapes as `\uXXXX`. Those
/// below U+0020 stay: within strings JSON escapes them already.
pub fn escaped_json(json: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| c >= ' ' && is_harmful(c);
    // All of them have one unit in UTF-16.
    escape(json, is_harmful, |c| format!("\\u{:04x}", u32::from(c)))
}

/// Returns `text` such that HTML shows it, also within a quoted attribute.
pub fn escaped_html(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns `text` as one word of a command for a shell, quoted if it needs to be.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:/@,=+".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
    }
}

/// Maximum bytes of a text in the log and of an event's message. A server's message may have 1 MiB.
/// What collects logs splits or cuts lines above 16 to 48 KiB.
pub const TEXT_BYTES_MAX: usize = 8 << 10;

/// `text`, cut after [`TEXT_BYTES_MAX`].
pub fn shortened(text: Cow<'_, str>) -> String {
    let mut text = text.into_owned();
    let kept = text.floor_char_boundary(TEXT_BYTES_MAX);
    let n_cut = text.len() - kept;
    if n_cut > 0 {
        text.truncate(kept);
        text.extend(["… (", &n_cut.to_string(), " bytes left out)"]);
    }
    text
}

fn escape(
    text: &str,
    is_harmful: impl Fn(char) -> bool,
    escaped: impl Fn(char) -> String,
) -> Cow<'_, str> {
    if !text.contains(&is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut result = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_harmful(c) {
            result.push_str(&escaped(c));
        } else {
            result.push(c);
        }
    }
    Cow::Owned(result)
}

fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{2028}' | '\u{2029}'
                | '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

/// The error and all its sources, joined by `: `.
pub fn report(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        // Writing to a string cannot fail.
        write!(line, ": {error}").unwrap_or_default();
        source = error.source();
    }
    line
}

/// Maximum bytes of a condition's message, as of an event's (kubernetes
/// `pkg/apis/core/validation/events.go:noteLengthLimit`).
const MESSAGE_BYTES_MAX: usize = 1024;

/// `message` in a form fit for a condition: at most 1024 bytes.
pub fn bounded(message: &str) -> String {
    let mut message = message.to_owned();
    if message.len() > MESSAGE_BYTES_MAX {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX - '…'.len_utf8()));
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::{escaped, escaped_json, escaped_lines, shell_word};

    #[test]
    fn words_that_a_shell_would_read_otherwise_are_quoted() {
        for (text, expected) in [
            ("web-1.a", "web-1.a"),
            ("system:a/b", "system:a/b"),
            ("", "''"),
            ("a b", "'a b'"),
            ("O'Brien", r"'O'\''Brien'"),
            ("$(id);*", "'$(id);*'"),
        ] {
            assert_eq!(shell_word(text), expected);
        }
    }

    #[test]
    fn json_keeps_its_value() {
        let value = "\u{7f}\u{9b}2J\n\u{1b}\u{202e}txt\u{2028}größer";
        let json = serde_json::to_string_pretty(&[value]).expect("a text");
        let safe = escaped_json(&json);
        assert_eq!(
            safe,
            "[\n  \"\\u007f\\u009b2J\\n\\u001b\\u202etxt\\u2028größer\"\n]"
        );
        let read: Vec<String> = serde_json::from_str(&safe).expect("JSON");
        assert_eq!(read, [value]);
    }

    #[test]
    fn control_and_direction_characters_are_escaped() {
        for (text, expected) in [
            ("a\r\n\u{1b}[2K\u{7}", r"a\r\n\u{1b}[2K\u{7}"),
            ("\u{85}\u{2028}\u{2029}", r"\u{85}\u{2028}\u{2029}"),
            (
                "\u{202e}txt\u{2066}\u{200f}",
                r"\u{202e}txt\u{2066}\u{200f}",
            ),
            ("\u{9b}31m", r"\u{9b}31m"),
        ] {
            assert_eq!(escaped(text), expected);
        }
        assert_eq!(escaped_lines("a\nb\u{1b}"), "a\nb\\u{1b}");
        let plain = "größer \"quoted\" \\ 漢字 …";
        assert!(matches!(escaped(plain), Cow::Borrowed(same) if same == plain));
    }
}
