//! Lists in JSON: each item is decoded from its own slice of the body.

use std::io::Read;

use super::decode::{Decode, Decoded, ListMetadata, OBJECT_BYTES_MAX, ReadList, StreamError};
use super::json_items::JsonItems;
use super::json_object::read_object;
use crate::api::interner::Interner;

/// The body of a list in JSON.
pub(super) struct JsonList {
    items: JsonItems<Box<dyn Read + Send>>,
}

impl JsonList {
    pub(super) fn new(body: Box<dyn Read + Send>) -> Self {
        Self {
            items: JsonItems::new(body, OBJECT_BYTES_MAX),
        }
    }

    /// Rejects a `Table` or another kind's list: decoded as a list of pods it would be empty.
    fn check_kind<T: Decode>(&self) -> Result<(), StreamError> {
        match self.items.kind() {
            Some(kind) if kind.strip_suffix("List") != Some(T::KIND) => {
                Err(StreamError::OtherKind(kind.to_owned()))
            }
            _ => Ok(()),
        }
    }
}

impl<T: Decode> ReadList<T> for JsonList {
    fn next_object(
        &mut self,
        interner: &mut Interner,
    ) -> Result<Option<Decoded<T::Object>>, StreamError> {
        let decoded = self
            .items
            .next_item()?
            .map(|item| read_object::<T>(item, interner));
        self.check_kind::<T>()?;
        if decoded.is_none() {
            self.items.metadata().check()?;
        }
        Ok(decoded)
    }

    fn metadata(&self) -> &ListMetadata {
        self.items.metadata()
    }
}
