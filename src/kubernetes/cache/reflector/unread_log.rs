//! Logs each undecodable object once.

use std::collections::HashSet;

use log::Level;

use crate::api::ObjectKey;
use crate::cache::decode::Unread;

/// Maximum objects remembered. A collection with more undecodable objects is broken, and has been
/// logged enough by then.
const KEYS_MAX: usize = 1000;

/// The objects that were logged.
#[derive(Debug, Default)]
pub(super) struct UnreadLog {
    keys: HashSet<ObjectKey>,
    is_nameless_logged: bool,
    is_foreign_logged: bool,
}

impl UnreadLog {
    /// Logs an object unless it was logged before.
    pub(super) fn log(&mut self, kind: &str, unread: &Unread) {
        if let Some(line) = self.line(kind, unread) {
            log::warn!("{line}");
        }
    }

    /// Logs a message that the request does not allow; only the first one at the default level.
    pub(super) fn log_foreign(&mut self, resource: &str, description: &str) {
        let is_logged = std::mem::replace(&mut self.is_foreign_logged, true);
        let level = if is_logged { Level::Debug } else { Level::Warn };
        log::log!(
            level,
            "the watch of {resource} sent {description}, it is skipped"
        );
    }

    fn line(&mut self, kind: &str, unread: &Unread) -> Option<String> {
        let error = &unread.error;
        let Some(identity) = &unread.key else {
            let is_logged = std::mem::replace(&mut self.is_nameless_logged, true);
            let line =
                format!("cannot read a {kind} and not even its name, it is skipped: {error}");
            return (!is_logged).then_some(line);
        };
        if self.keys.len() >= KEYS_MAX || !self.keys.insert(identity.key.clone()) {
            return None;
        }
        let key = &identity.key;
        let more = if self.keys.len() == KEYS_MAX {
            "; no further ones are logged"
        } else {
            ""
        };
        Some(format!(
            "cannot read {kind} {key}, it is skipped: {error}{more}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::{KEYS_MAX, UnreadLog};
    use crate::api::{ObjectKey, ResourceVersion, Uid};
    use crate::cache::decode::Unread;
    use crate::cache::store::UnreadKey;

    fn unread(name: Option<&str>) -> Unread {
        Unread {
            key: name.map(|name| UnreadKey {
                key: ObjectKey::new("n", name),
                uid: Uid::default(),
            }),
            resource_version: ResourceVersion::default(),
            error: "bad".to_owned(),
        }
    }

    #[test]
    fn each_object_is_logged_once_up_to_a_limit() {
        let mut log = UnreadLog::default();
        let line = log.line("Pod", &unread(Some("a")));
        assert_eq!(
            line.as_deref(),
            Some("cannot read Pod n/a, it is skipped: bad")
        );
        assert_eq!(log.line("Pod", &unread(Some("a"))), None);
        assert!(log.line("Pod", &unread(None)).is_some());
        assert_eq!(log.line("Pod", &unread(None)), None);
        let lines =
            (0..2 * KEYS_MAX).filter_map(|n| log.line("Pod", &unread(Some(&n.to_string()))));
        let lines: Vec<String> = lines.collect();
        assert_eq!(lines.len(), KEYS_MAX - 1);
        assert!(lines[KEYS_MAX - 2].ends_with("no further ones are logged"));
    }
}
