//! Field managers: reads `metadata.managedFields` to distinguish the writers of the fields that a
//! controller writes. Pure.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::compact_timestamp::optional;

/// The field manager of this program's writes: the user agent up to its slash (apiserver
/// `pkg/endpoints/handlers/create.go:managerOrUserAgent`).
pub const MANAGER: &str = "replicaset-controller";

/// A field manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manager {
    /// Name of the manager.
    pub name: String,
    /// Time of its last write.
    pub time: Option<Timestamp>,
}

/// The managers of the owner references of the object in `json`.
///
/// # Errors
/// If the text is not an API object.
pub fn of_owner_references(json: &[u8]) -> Result<Vec<Manager>, serde_json::Error> {
    let is_match = |entry: &EntryJson<'_>| {
        let fields = entry.fields.map_or("", RawValue::get);
        entry.subresource.is_none() && fields.contains("\"f:ownerReferences\"")
    };
    let object: ObjectJson<'_> = serde_json::from_slice(json)?;
    let entries = object
        .metadata
        .managed_fields
        .unwrap_or_default()
        .into_iter();
    let manager = |entry: EntryJson<'_>| Manager {
        name: entry.manager.unwrap_or_default().into_owned(),
        time: entry.time,
    };
    Ok(entries.filter(is_match).map(manager).collect())
}

#[derive(Deserialize)]
struct ObjectJson<'a> {
    #[serde(borrow)]
    metadata: MetadataJson<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetadataJson<'a> {
    #[serde(borrow)]
    managed_fields: Option<Vec<EntryJson<'a>>>,
}

#[derive(Deserialize)]
struct EntryJson<'a> {
    #[serde(borrow)]
    manager: Option<Cow<'a, str>>,
    #[serde(borrow)]
    subresource: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "optional")]
    time: Option<Timestamp>,
    #[serde(borrow, rename = "fieldsV1")]
    fields: Option<&'a RawValue>,
}

#[cfg(test)]
mod tests {
    use super::{MANAGER, of_owner_references};
    use crate::client::ClientOptions;

    #[test]
    fn only_writers_of_owner_references_count() {
        let json = br#"{"metadata": {"managedFields": [
            {"manager": "a", "operation": "Update", "time": "2026-01-01T00:00:00Z",
             "fieldsV1": {"f:metadata": {"f:ownerReferences": {".": {}}}}},
            {"manager": "b", "operation": "Update", "fieldsV1": {"f:spec": {}}},
            {"manager": "c", "operation": "Update", "subresource": "status",
             "fieldsV1": {"f:status": {"f:replicas": {}}}},
            {"manager": "d", "operation": "Update", "subresource": "status",
             "fieldsV1": {"f:metadata": {"f:ownerReferences": {}}}}
        ]}}"#;
        let names = |managers: Vec<super::Manager>| -> Vec<String> {
            managers.into_iter().map(|manager| manager.name).collect()
        };
        assert_eq!(names(of_owner_references(json).expect("an object")), ["a"]);
        let none = of_owner_references(br#"{"metadata": {}}"#);
        assert_eq!(names(none.expect("an object")), [""; 0]);
    }

    #[test]
    fn the_manager_is_the_user_agent_up_to_its_slash() {
        let agent = ClientOptions::default().user_agent;
        assert_eq!(agent.split('/').next(), Some(MANAGER));
    }
}
