//! Decodes one object from protobuf.

use super::decode::{Decode, Decoded, Unread, check_names};
use super::store::UnreadKey;
use crate::api::interner::Interner;
use crate::api::protobuf::wire::Fields;
use crate::api::protobuf::{ObjectMeta, Parts, ProtobufError};
use crate::api::{ObjectKey, ResourceVersion, Uid};

/// Decodes an object, or at least its identity if the object cannot be decoded.
pub(super) fn read_object<T: Decode>(
    message: &[u8],
    interner: &mut Interner,
) -> Decoded<T::Object> {
    let object = T::from_protobuf(message, interner).map_err(|error| unread(message, &error))?;
    check_names(object)
}

fn unread(message: &[u8], error: &ProtobufError) -> Unread {
    let metadata = Parts::of(message).unwrap_or_default().metadata;
    // Field by field, since any of the others may be the undecodable one.
    let text_of = |tag| {
        let mut fields = Fields::of(metadata).filter_map(Result::ok);
        let field = fields.find(|field| field.tag == tag);
        field.and_then(|field| field.text().ok()).unwrap_or("")
    };
    let name = text_of(ObjectMeta::NAME);
    let key = (!name.is_empty()).then(|| UnreadKey {
        key: ObjectKey::new(text_of(ObjectMeta::NAMESPACE), name),
        uid: Uid::new(text_of(ObjectMeta::UID)),
    });
    Unread {
        key,
        resource_version: ResourceVersion::new(text_of(ObjectMeta::RESOURCE_VERSION)),
        error: error.to_string(),
    }
}
