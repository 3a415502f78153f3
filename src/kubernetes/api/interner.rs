//! Shares one copy of equal values between objects: namespaces, nodes, label sets, owners. Long
//! ones are not shared, since the tables keep some that no object holds.
//!
//! Each watch thread has its own interner, so there is no lock. Before a table grows, it drops the
//! values that no object holds.
//!
//! For some values decoded from protobuf it also maps the encoded bytes to the value, so that equal
//! bytes need no decoding.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::labels::Labels;
use super::owner_reference::ControllerRef;

/// Returns shared copies of equal values.
#[derive(Debug, Default)]
pub struct Interner {
    texts: Table<Arc<str>>,
    labels: Table<Labels>,
    owners: Table<Arc<ControllerRef>>,
    labels_by_bytes: ByBytes<Labels>,
    controllers_by_bytes: ByBytes<Option<Arc<ControllerRef>>>,
}

/// Bytes up to which a text, label set or owner is shared.
const SHARED_MAX: usize = 4 << 10;

impl Interner {
    /// The shared copy of `text`.
    pub fn text(&mut self, text: &str) -> Arc<str> {
        if text.len() > SHARED_MAX {
            return text.into();
        }
        if let Some(known) = self.texts.values.get(text) {
            return Arc::clone(known);
        }
        self.texts
            .insert(text.into(), |text| Arc::strong_count(text) > 1)
    }

    /// The shared copy of `labels`.
    pub fn labels(&mut self, labels: Labels) -> Labels {
        if labels.n_bytes() > SHARED_MAX {
            return labels;
        }
        if let Some(known) = self.labels.values.get(&labels) {
            return known.clone();
        }
        self.labels.insert(labels, Labels::is_shared)
    }

    /// The shared copy of `owner`.
    pub fn owner(&mut self, owner: ControllerRef) -> Arc<ControllerRef> {
        if owner.kind.len() + owner.name.len() + owner.uid.n_text_bytes() > SHARED_MAX {
            return Arc::new(owner);
        }
        if let Some(known) = self.owners.values.get(&owner) {
            return Arc::clone(known);
        }
        self.owners
            .insert(Arc::new(owner), |owner| Arc::strong_count(owner) > 1)
    }
}

impl Interner {
    /// The shared copy of the labels encoded in `bytes`; calls `read` to decode unknown bytes.
    ///
    /// # Errors
    /// Those of `read`.
    pub(super) fn labels_in<E>(
        &mut self,
        bytes: &[u8],
        read: impl FnOnce() -> Result<Labels, E>,
    ) -> Result<Labels, E> {
        if let Some(known) = self.labels_by_bytes.get(bytes) {
            return Ok(known.clone());
        }
        let labels = self.labels(read()?);
        self.labels_by_bytes.insert(bytes, &labels);
        Ok(labels)
    }

    /// The shared copy of the controller in `bytes`, an owner reference, if it names one; calls
    /// `read` to decode unknown bytes.
    ///
    /// # Errors
    /// Those of `read`.
    pub(super) fn controller_in<E>(
        &mut self,
        bytes: &[u8],
        read: impl FnOnce(&mut Self) -> Result<Option<Arc<ControllerRef>>, E>,
    ) -> Result<Option<Arc<ControllerRef>>, E> {
        if let Some(known) = self.controllers_by_bytes.get(bytes) {
            return Ok(known.clone());
        }
        let controller = read(self)?;
        self.controllers_by_bytes.insert(bytes, &controller);
        Ok(controller)
    }
}

/// Values by their encoded bytes. Clears itself when full.
#[derive(Debug)]
struct ByBytes<T>(HashMap<Box<[u8]>, T, RandomState>);

impl<T> Default for ByBytes<T> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<T: Clone> ByBytes<T> {
    /// Entries keep their values alive, so this also bounds the memory of unused values.
    const ENTRIES_MAX: usize = 1024;

    fn get(&self, bytes: &[u8]) -> Option<&T> {
        self.0.get(bytes)
    }

    fn insert(&mut self, bytes: &[u8], value: &T) {
        if bytes.len() > SHARED_MAX {
            return;
        }
        if self.0.len() >= Self::ENTRIES_MAX {
            self.0.clear();
        }
        self.0.insert(bytes.into(), value.clone());
    }
}

#[derive(Debug)]
struct Table<T> {
    values: HashSet<T, RandomState>,
    /// Size at which the table next drops values that no object holds.
    sweep_at: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            values: HashSet::default(),
            sweep_at: 1024,
        }
    }
}

impl<T: Clone + Eq + Hash> Table<T> {
    fn insert(&mut self, value: T, is_held: impl Fn(&T) -> bool) -> T {
        if self.values.len() >= self.sweep_at {
            self.values.retain(is_held);
            self.sweep_at = (2 * self.values.len()).max(1024);
        }
        self.values.insert(value.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::{Interner, SHARED_MAX};
    use crate::api::{ControllerRef, Labels};

    #[test]
    fn equal_values_are_shared_and_unused_ones_dropped() {
        let mut interner = Interner::default();
        let labels = |n: usize| -> Labels { [("app", n.to_string())].into_iter().collect() };
        let first = interner.labels(labels(0));
        assert!(first.is_shared_with(&interner.labels(labels(0))));
        for n in 0..10_000 {
            interner.labels(labels(n));
        }
        assert!(
            interner.labels.values.len() <= 1025,
            "unused label sets pile up"
        );
        assert!(
            first.is_shared_with(&interner.labels(labels(0))),
            "a set in use was dropped"
        );
    }

    /// Whoever may create a pod can write some MB into an owner reference, again and again.
    #[test]
    fn long_values_are_not_kept() {
        let mut interner = Interner::default();
        let long = "x".repeat(SHARED_MAX + 1);
        interner.text(&long);
        let read = || Ok::<_, ()>([("app", &*long)].into_iter().collect());
        assert_eq!(interner.labels_in(long.as_bytes(), read), read());
        let owner = || ControllerRef {
            kind: "ReplicaSet".into(),
            name: "web".into(),
            uid: long.as_str().into(),
        };
        assert_eq!(*interner.owner(owner()), owner());
        let owner = |interner: &mut Interner| Ok::<_, ()>(Some(interner.owner(owner())));
        assert!(interner.controller_in(long.as_bytes(), owner).is_ok());
        let Interner {
            texts,
            labels,
            owners,
            labels_by_bytes,
            controllers_by_bytes,
        } = interner;
        assert!(texts.values.is_empty() && labels.values.is_empty() && owners.values.is_empty());
        assert!(labels_by_bytes.0.is_empty() && controllers_by_bytes.0.is_empty());
    }
}
