//! `namespace/name`: how the cache, the queue and the logs name an object.

use std::fmt;
use std::sync::Arc;

/// Names one object of a known kind. Cloning copies two pointers.
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
}
