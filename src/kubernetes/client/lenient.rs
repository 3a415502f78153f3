//! YAML and JSON as Kubernetes' own programs read them: the last of duplicate members counts, null
//! is a zero value, unknown members have no effect, and editors may have put a byte order mark.

use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde_saphyr::{DuplicateKeyPolicy, Error};

/// Parses all documents of a file.
///
/// # Errors
/// Where and what is wrong. The text never quotes the file, which may hold a secret.
pub(super) fn documents<T: DeserializeOwned>(bytes: &[u8]) -> Result<Vec<T>, String> {
    let text = text(bytes).ok_or("not text in UTF-8 or UTF-16")?;
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        with_snippet: false,
    };
    let documents = serde_saphyr::from_multiple_with_options(&text, options);
    documents.map_err(|error| problem(&error))
}

/// Reads null as the default. For members of structs, together with `default`.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Reads null as the empty list, and as the default of an element.
pub(super) fn list<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let list = Option::<Vec<Option<T>>>::deserialize(deserializer)?;
    let elements = list.into_iter().flatten();
    Ok(elements.map(Option::unwrap_or_default).collect())
}

/// Windows' editors mark UTF-16, and sometimes UTF-8, with a byte order mark.
fn text(bytes: &[u8]) -> Option<String> {
    let wide = |unit: fn([u8; 2]) -> u16| {
        let (units, rest) = bytes[2..].as_chunks::<2>();
        let units: Vec<u16> = units.iter().copied().map(unit).collect();
        String::from_utf16(&units).ok().filter(|_| rest.is_empty())
    };
    match bytes {
        [0xff, 0xfe, ..] => wide(u16::from_le_bytes),
        [0xfe, 0xff, ..] => wide(u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => str::from_utf8(rest).ok().map(str::to_owned),
        _ => str::from_utf8(bytes).ok().map(str::to_owned),
    }
}

fn problem(error: &Error) -> String {
    let what = match error {
        Error::Unexpected { expected, .. } => must_be(expected),
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            must_be(expected)
        }
        Error::InvalidScalar { ty, .. } => must_be(ty),
        Error::NullIntoString { .. } => must_be("string"),
        Error::Eof { .. } => "the end is missing".to_owned(),
        // The scanner's own messages, which quote nothing.
        Error::ExternalMessage { msg, .. } | Error::Message { msg, .. } => {
            msg.lines().next().unwrap_or_default().to_owned()
        }
        _ => "this is not valid YAML".to_owned(),
    };
    match error.location() {
        Some(at) => format!("line {} column {}: {what}", at.line(), at.column()),
        None => what,
    }
}

/// Says in Kubernetes' words what the parser expected.
fn must_be(expected: &str) -> String {
    let kinds = [
        ("string", "a string"),
        ("seq", "a list"),
        ("map", "a map"),
        ("struct", "a map"),
        ("bool", "true or false"),
    ];
    let kind = kinds.iter().find(|(word, _)| expected.contains(word));
    let kind = kind.map_or("of another kind", |(_, kind)| *kind);
    format!("this must be {kind}")
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::{documents, list, or_default};

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default)]
    struct Thing {
        #[serde(deserialize_with = "or_default")]
        name: String,
        #[serde(deserialize_with = "list")]
        names: Vec<String>,
        #[serde(deserialize_with = "or_default")]
        is_on: bool,
        inner: Option<Box<Thing>>,
    }

    #[track_caller]
    fn check(bytes: &[u8], name: &str, names: &[&str]) {
        let things: Vec<Thing> = documents(bytes).expect("it is valid");
        assert_eq!(things[0].name, name);
        assert_eq!(things[0].names, names);
    }

    #[test]
    fn it_reads_what_go_reads() {
        check(b"name: a\nname: b\n", "b", &[]);
        check(b"{\"name\": \"a\", \"name\": \"b\"}", "b", &[]);
        check(b"\xef\xbb\xbf{\"name\": \"a\"}", "a", &[]);
        check(
            b"---\nname: null\nnames: [a, null]\nother: {a: 1}\n",
            "",
            &["a", ""],
        );
        check(
            b"{\n\t\"names\": null, \"name\": ~, \"inner\": null}",
            "",
            &[],
        );
        check(b"inner: {name: a, name: b}\n", "", &[]);
        let things: Vec<Thing> = documents(b"").expect("nothing is wrong");
        assert_eq!(things, []);
    }

    #[track_caller]
    fn check_error(text: &str, expected: &str) {
        let error = documents::<Thing>(text.as_bytes()).expect_err("it is not valid");
        assert_eq!(error, expected);
    }

    #[test]
    fn errors_have_a_position_and_no_content() {
        check_error("name: [secret]", "line 1 column 7: this must be a string");
        check_error(
            "name: a\nnames: secret",
            "line 2 column 8: this must be a list",
        );
        check_error(
            "names: [[secret]]",
            "line 1 column 9: this must be a string",
        );
        check_error(
            "is_on: secret",
            "line 1 column 8: this must be true or false",
        );
        check_error("inner: secret", "line 1 column 8: this must be a map");
        check_error("name: 'secret", "line 1 column 7: unclosed quote");
        check_error("- secret", "line 1 column 1: this must be a map");
        let error = documents::<Thing>(b"\xff\xfea").expect_err("half a character");
        assert_eq!(error, "not text in UTF-8 or UTF-16");
    }
}
