//! What identifies an object: `namespace/name`, the key in the cache, the queue and the log; its
//! UID, stored in 16 bytes if it is a UUID; its owner references, in particular the one with
//! `controller: true`; and its resource versions with their only valid comparison.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use arcstr::ArcStr;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::workload_kind::WorkloadKind;

/// Identifies one object of a known kind. Cloning copies two pointers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: ArcStr,
    pub name: ArcStr,
}

impl ObjectKey {
    pub fn new(namespace: impl Into<ArcStr>, name: impl Into<ArcStr>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// A hash of the namespace, the same in each process.
    pub fn namespace_hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.namespace.hash(&mut hasher);
        hasher.finish()
    }

    /// Checks that the key is valid in a request path and cannot redirect the request (apimachinery
    /// `pkg/api/validation/path/name.go:IsValidPathSegmentName`).
    pub fn check_path(&self) -> Result<(), String> {
        for part in [&*self.namespace, &*self.name] {
            if matches!(part, "." | "..") || part.contains(['/', '%']) {
                return Err(format!(
                    "{part:?} is not a valid name: names must not be \".\" or \"..\" nor \
                     contain \"/\" or \"%\""
                ));
            }
        }
        Ok(())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// Maximum length of most names, DNS subdomains, in bytes (apimachinery
/// `pkg/util/validation/validation.go:DNS1123SubdomainMaxLength`).
pub const SUBDOMAIN_BYTES_MAX: usize = 253;

/// True for DNS labels joined by dots.
pub fn is_subdomain(name: &str) -> bool {
    name.len() <= SUBDOMAIN_BYTES_MAX && name.split('.').all(is_label)
}

/// True for a DNS label of any length.
pub fn is_label(name: &str) -> bool {
    let is_inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    !name.is_empty() && name.bytes().all(is_inner) && !name.starts_with('-') && !name.ends_with('-')
}

/// What a type needs that prints as the text that it was made from.
macro_rules! of_text {
    ($Type:ident) => {
        impl Default for $Type {
            fn default() -> Self {
                Self::new("")
            }
        }

        impl From<&str> for $Type {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }

        impl fmt::Debug for $Type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($Type))
            }
        }

        impl Serialize for $Type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $Type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Ok(Self::new(&text))
            }
        }
    };
}

of_text!(Uid);
of_text!(ResourceVersion);

/// The UID of an object. It distinguishes objects with the same name.
///
/// Orders and prints like the text that the API server sent.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Uid(UidRepr);

/// INVARIANT: a text that [`parse_uuid`] accepts is always `Uuid`, so that equality of the
/// representation is equality of the text.
#[derive(Clone, PartialEq, Eq, Hash)]
enum UidRepr {
    Uuid([u8; 16]),
    Text(ArcStr),
}

impl Uid {
    pub fn new(text: &str) -> Self {
        match parse_uuid(text.as_bytes()) {
            Some(bytes) => Self(UidRepr::Uuid(bytes)),
            None => Self(UidRepr::Text(text.into())),
        }
    }

    pub fn n_text_bytes(&self) -> usize {
        match &self.0 {
            UidRepr::Uuid(_) => 0,
            UidRepr::Text(text) => text.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(&self.0, UidRepr::Text(text) if text.is_empty())
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            UidRepr::Text(text) => f.write_str(text),
            UidRepr::Uuid(bytes) => {
                let all = u128::from_be_bytes(*bytes);
                let (first, last) = (all >> 96, all & 0xffff_ffff_ffff);
                let [second, third, fourth] = [80, 64, 48].map(|shift| all >> shift & 0xffff);
                write!(
                    f,
                    "{first:08x}-{second:04x}-{third:04x}-{fourth:04x}-{last:012x}"
                )
            }
        }
    }
}

impl PartialOrd for Uid {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Uid {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            // Canonical UUIDs have dashes at fixed positions, so byte order equals text order.
            (UidRepr::Uuid(a), UidRepr::Uuid(b)) => a.cmp(b),
            (UidRepr::Text(a), UidRepr::Text(b)) => a.cmp(b),
            _ => self.to_string().cmp(&other.to_string()),
        }
    }
}

/// Accepts only the canonical lower-case form, so that the UID prints as received.
fn parse_uuid(text: &[u8]) -> Option<[u8; 16]> {
    if text.len() != 36 {
        return None;
    }
    let mut all = 0_u128;
    for (i, &c) in text.iter().enumerate() {
        match (i, c) {
            (8 | 13 | 18 | 23, b'-') => {}
            (8 | 13 | 18 | 23, _) | (_, b'A'..=b'F') => return None,
            _ => all = all << 4 | u128::from(char::from(c).to_digit(16)?),
        }
    }
    Some(all.to_be_bytes())
}

/// The first owner reference of an object that has `controller: true`.
///
/// Without its API version, because kind, name and UID alone decide ownership (kubernetes
/// `pkg/controller/replicaset:resolveControllerRef`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ControllerRef {
    /// The owner's kind, such as `ReplicaSet`.
    pub kind: ArcStr,
    pub name: ArcStr,
    pub uid: Uid,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerKey {
    pub namespace: ArcStr,
    /// The owner in the owned object's reference.
    pub owner: Arc<ControllerRef>,
}

impl OwnerKey {
    pub fn new(kind: &str, owner: &ObjectKey, uid: &Uid) -> Self {
        Self {
            namespace: owner.namespace.clone(),
            owner: Arc::new(ControllerRef {
                kind: kind.into(),
                name: owner.name.clone(),
                uid: uid.clone(),
            }),
        }
    }
}

/// The owner reference to a controller, as sent to the API server.
pub fn controlling_reference(kind: &WorkloadKind, name: &str, uid: &Uid) -> OwnerReference {
    OwnerReference {
        api_version: kind.api_version.to_owned(),
        kind: kind.kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_string(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// A position in the API server's history. Empty if unknown.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(Repr);

/// INVARIANT: a text that [`parse_number`] accepts is always `Number`.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Number(u64),
    Text(ArcStr),
}

impl ResourceVersion {
    pub fn new(text: &str) -> Self {
        match parse_number(text) {
            Some(number) => Self(Repr::Number(number)),
            None => Self(Repr::Text(text.into())),
        }
    }

    /// The numeric value, if it is a number.
    pub fn number(&self) -> Option<u64> {
        match &self.0 {
            Repr::Number(number) => Some(*number),
            Repr::Text(_) => None,
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(&self.0, Repr::Text(text) if text.is_empty())
    }

    /// Compares two versions; `None` unless both are decimal numbers without leading zeros.
    ///
    /// Numbers of any length compare (apimachinery `util/resourceversion:CompareResourceVersion`).
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        if let (Repr::Number(a), Repr::Number(b)) = (&self.0, &other.0) {
            Some(a.cmp(b))
        } else {
            let (a, b) = (self.to_string(), other.to_string());
            (is_comparable(&a) && is_comparable(&b))
                .then(|| a.len().cmp(&b.len()).then_with(|| a.cmp(&b)))
        }
    }

    /// True if `self` is at least as new as `required`. Also true for incomparable versions, since
    /// those must never block a sync.
    pub fn is_as_new_as(&self, required: &Self) -> bool {
        self.compare(required) != Some(Ordering::Less)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Number(number) => write!(f, "{number}"),
            Repr::Text(text) => f.write_str(text),
        }
    }
}

fn is_comparable(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('0') && text.bytes().all(|c| c.is_ascii_digit())
}

fn parse_number(text: &str) -> Option<u64> {
    if is_comparable(text) {
        text.parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering::{Equal, Greater, Less};

    use super::{ObjectKey, ResourceVersion, Uid};

    #[test]
    fn a_22_keys_print_as_namespace_slash_name() {
        let keys = ["pod1", "pod2"].map(|name| ObjectKey::new("default", name).to_string());
        assert_eq!(keys, ["default/pod1", "default/pod2"]);
        assert_eq!(ObjectKey::new("", "node-1").to_string(), "node-1");
    }

    #[test]
    fn keys_that_redirect_a_request_are_invalid() {
        for (namespace, name) in [
            ("n", "../../../api/v1/nodes"),
            ("n", ".."),
            ("n", "a/status"),
            ("n", "a%2fb"),
            ("..", "a"),
            ("n/pods", "a"),
        ] {
            ObjectKey::new(namespace, name)
                .check_path()
                .expect_err(name);
        }
        assert_eq!(ObjectKey::new("n", "a.b-c").check_path(), Ok(()));
        assert_eq!(ObjectKey::new("", "node-1").check_path(), Ok(()));
    }

    #[test]
    fn any_text_prints_as_received() {
        for text in [
            "",
            "uid-1",
            "0f8fad5b-d9cb-469f-a165-70867728950e",
            "0F8FAD5B-D9CB-469F-A165-70867728950E",
            "0f8fad5bd9cb-469f-a165-70867728950e-",
        ] {
            assert_eq!(Uid::new(text).to_string(), text);
        }
    }

    #[test]
    fn uids_order_like_their_text() {
        let mut uids = ["b", "0f8fad5b-d9cb-469f-a165-70867728950e", "1", "0"].map(Uid::new);
        uids.sort();
        assert_eq!(
            uids.map(|uid| uid.to_string()),
            ["0", "0f8fad5b-d9cb-469f-a165-70867728950e", "1", "b"]
        );
    }

    #[test]
    fn h_08_decimal_strings_of_any_length_compare() {
        let long = "99999999999999999999999999999999";
        for (a, b, expected) in [
            ("5", "10", Some(Less)),
            ("10", "10", Some(Equal)),
            ("15", "10", Some(Greater)),
            (long, "10", Some(Greater)),
            ("18446744073709551615", "18446744073709551616", Some(Less)),
            (long, long, Some(Equal)),
            ("", "10", None),
            ("0", "10", None),
            ("010", "10", None),
            ("ten", "10", None),
            ("+10", "10", None),
        ] {
            let (a, b) = (ResourceVersion::new(a), ResourceVersion::new(b));
            assert_eq!(a.compare(&b), expected, "{a:?} against {b:?}");
        }
    }

    #[test]
    fn h_07_incomparable_versions_never_block() {
        for (current, required, ready) in [
            ("5", "10", false),
            ("10", "10", true),
            ("15", "10", true),
            ("", "10", true),
            ("x", "10", true),
            ("5", "", true),
        ] {
            let (current, required) = (
                ResourceVersion::new(current),
                ResourceVersion::new(required),
            );
            assert_eq!(
                current.is_as_new_as(&required),
                ready,
                "{current:?} for {required:?}"
            );
        }
    }
}
