//! `namespace/name`: the key of an object in the cache, the queue and the log.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Identifies one object of a known kind. Cloning copies two pointers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: Arc<str>,
    /// The name within the namespace.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of `name` in `namespace`.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
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
    ///
    /// # Errors
    /// The problem with the namespace or the name.
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

#[cfg(test)]
mod tests {
    use super::ObjectKey;

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
}
