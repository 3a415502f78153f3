//! Text from elsewhere made harmless for the log, for terminals and for events. Pure.
//!
//! What an API server, a webhook or a client says may hold bytes that move a terminal's cursor,
//! begin a new line that looks like one of the daemon's own, or turn the order of what is read.

use std::borrow::Cow;
use std::fmt::Write;

/// `text` on one line: control characters, separators of lines and paragraphs and marks that turn
/// the direction of writing become escapes such as `\n` and `\u{1b}`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    escape(text, is_harmful)
}

/// As [`escaped`], for text of several lines, whose newlines stay.
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| c != '\n' && is_harmful(c))
}

fn escape(text: &str, is_harmful: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_harmful(c) {
            // Writing to a string cannot fail.
            write!(escaped, "{}", c.escape_default()).unwrap_or_default();
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
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

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::{escaped, escaped_lines};

    #[test]
    fn what_moves_cursors_begins_lines_or_turns_text_is_escaped() {
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
