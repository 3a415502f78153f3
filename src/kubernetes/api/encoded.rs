//! An encoded object with its media type.

/// The media type that every API server supports.
pub const JSON: &str = "application/json";

/// The value of an `Accept` header for JSON without `metadata.managedFields`. An API server without
/// the feature `ManagedFieldsOptOut` ignores the parameter; one that refuses its value takes the
/// clause without it.
pub const JSON_WITHOUT_MANAGED_FIELDS: &str =
    "application/json;drop=metadata.managedFields, application/json";

/// The body of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Its encoding.
    pub media_type: &'static str,
    /// The bytes.
    pub bytes: Vec<u8>,
}
