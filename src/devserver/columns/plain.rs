//! Table columns of the kinds that the server only stores, and of custom resources. Pure, except
//! for the clock.

use serde_json::{Value, json};

use crate::columns::since;
use crate::objects::{number, text};

/// A column with its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column(pub(crate) &'static str, pub(crate) Cell);

/// The content of a column. The texts are JSON pointers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cell {
    Text(&'static str),
    Count(&'static str),
    /// The number of members.
    Size(&'static str),
    /// Two counts, such as `1/3`.
    Ratio(&'static str, &'static str),
    /// The time since then.
    Since(&'static str),
}

impl Cell {
    /// The column's type in a table.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Count(_) => "integer",
            _ => "string",
        }
    }

    pub(crate) fn of(self, object: &Value) -> Value {
        let count = |pointer: &str| number(object, pointer).unwrap_or(0);
        match self {
            Self::Text(pointer) => match object.pointer(pointer) {
                None | Some(Value::Null) => json!("<none>"),
                Some(Value::String(text)) => json!(text),
                Some(other) => json!(other.to_string()),
            },
            Self::Count(pointer) => json!(count(pointer)),
            Self::Size(pointer) => {
                let map = object.pointer(pointer).and_then(Value::as_object);
                json!(map.map_or(0, serde_json::Map::len).to_string())
            }
            Self::Ratio(part, whole) => json!(format!("{}/{}", count(part), count(whole))),
            Self::Since(pointer) => json!(since(text(object, pointer))),
        }
    }
}
