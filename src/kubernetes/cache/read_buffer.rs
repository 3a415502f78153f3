//! A buffer of body bytes that have arrived and are not consumed yet.
//!
//! The readers of lists and watches use it on a watch thread. It grows to the longest value that a
//! reader needs in one piece; the readers limit that length.

use std::io;
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use super::decode::StreamError;
use super::store::{Indexed, Store, UnreadKey};
use crate::api::{ObjectKey, Uid};
use crate::stdx::HashMap;

/// Initial size, in bytes: several usual objects.
pub(super) const BUFFER_BYTES: usize = 64 << 10;

/// A body and its read-ahead bytes.
pub(super) struct ReadBuffer<R> {
    body: R,
    /// `start..end` has arrived and is not taken.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl<R: Read> ReadBuffer<R> {
    pub(super) fn new(body: R) -> Self {
        Self {
            body,
            bytes: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
        }
    }

    /// The bytes that have arrived and are not taken.
    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Takes `n` bytes that have arrived. The range is valid for [`get`](Self::get) until the next
    /// [`fill`](Self::fill).
    pub(super) fn take(&mut self, n: usize) -> Range<usize> {
        let taken = self.start..self.start + n;
        self.start = taken.end;
        taken
    }

    /// Returns bytes that were taken.
    pub(super) fn get(&self, taken: Range<usize>) -> &[u8] {
        &self.bytes[taken]
    }

    /// Reads more bytes after those in the buffer. Blocks until some have arrived; the body's own
    /// read ends the wait.
    pub(super) fn fill(&mut self) -> Result<(), StreamError> {
        if self.has_more()? {
            return Ok(());
        }
        Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())
    }

    /// Like [`fill`](Self::fill), but returns false if the body has ended.
    pub(super) fn has_more(&mut self) -> Result<bool, StreamError> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 && self.bytes.len() - self.end < self.bytes.len() / 4 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.bytes.len() {
            self.bytes.resize(2 * self.bytes.len(), 0);
        }
        loop {
            match self.body.read(&mut self.bytes[self.end..]) {
                Ok(n) => {
                    self.end += n;
                    return Ok(n > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Releases the memory of a very long value once the buffer is empty.
    pub(super) fn shrink(&mut self, bytes_max: usize) {
        if self.start == self.end && self.bytes.len() > bytes_max {
            (self.start, self.end) = (0, 0);
            self.bytes = vec![0; BUFFER_BYTES];
        }
    }
}

// Collects a list while it is read.
//
// The [`reflector`](super::reflector) uses it on its watch thread. The collected objects become
// the store's contents in one step, or are dropped.

/// The objects of a list, in their order of arrival.
#[derive(Debug)]
pub(super) struct Collector<T> {
    /// `None` for an object that was deleted during the list.
    objects: Vec<Option<Arc<T>>>,
    /// The index of each object in `objects`.
    indices: HashMap<ObjectKey, usize>,
    /// Objects without a decodable state.
    unread: HashMap<ObjectKey, Uid>,
}

impl<T: Indexed> Collector<T> {
    /// Adds the new state of an object. If the store has an equal object, the collector keeps that
    /// one, so that a relist does not hold every object twice.
    pub(super) fn upsert(&mut self, object: T, store: &Store<T>) {
        let cached = store.get(object.key()).filter(|cached| **cached == object);
        let object = cached.unwrap_or_else(|| Arc::new(object));
        let key = object.key().clone();
        self.unread.remove(&key);
        if let Some(index) = self.indices.get(&key) {
            self.objects[*index] = Some(object);
        } else {
            self.indices.insert(key, self.objects.len());
            self.objects.push(Some(object));
        }
    }

    /// Adds an object that cannot be decoded. A state of the same object collected before stays.
    pub(super) fn upsert_unread(&mut self, unread: UnreadKey) {
        let index = self.indices.get(&unread.key);
        let collected = index.and_then(|index| self.objects[*index].as_ref());
        if !collected.is_some_and(|object| unread.uid.is_empty() || unread.uid == *object.uid()) {
            self.remove(&unread.key);
            self.unread.insert(unread.key, unread.uid);
        }
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.unread.remove(key);
        if let Some(index) = self.indices.remove(key) {
            self.objects[index] = None;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.indices.len() + self.unread.len()
    }

    /// Returns the list: its objects, and the undecodable ones.
    pub(super) fn finish(self) -> (Vec<Arc<T>>, Vec<UnreadKey>) {
        drop(self.indices);
        let unread = self.unread.into_iter();
        let unread = unread.map(|(key, uid)| UnreadKey { key, uid }).collect();
        (self.objects.into_iter().flatten().collect(), unread)
    }
}

impl<T> Default for Collector<T> {
    fn default() -> Self {
        Self {
            objects: Vec::new(),
            indices: HashMap::default(),
            unread: HashMap::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::io::Read;

    use super::{Arc, BUFFER_BYTES, Collector, ReadBuffer, Store, UnreadKey};
    use crate::api::{ObjectKey, Pod, Uid};

    /// A body whose reads end in these ways, one after the other.
    struct Body(Vec<io::Result<&'static [u8]>>);

    impl Read for Body {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let bytes = self.0.remove(0)?;
            buffer[..bytes.len()].copy_from_slice(bytes);
            Ok(bytes.len())
        }
    }

    #[test]
    fn only_an_interrupted_read_is_repeated() {
        let interrupted = io::Error::from(io::ErrorKind::Interrupted);
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        let body = Body(vec![Err(interrupted), Ok(b"one"), Err(reset), Ok(b"two")]);
        let mut buffer = ReadBuffer::new(body);
        assert!(buffer.has_more().expect("the second read"));
        assert_eq!(buffer.unread(), b"one");
        let error = buffer.has_more().expect_err("the connection is reset");
        assert!(error.to_string().contains("reset"), "{error}");
    }

    #[test]
    fn the_buffer_grows_for_one_value_only_and_shrinks_after_it() {
        let mut buffer = ReadBuffer::new(io::repeat(7));
        for _ in 0..10 {
            buffer.fill().expect("more");
            buffer.take(buffer.unread().len() - 1);
            assert_eq!(buffer.bytes.len(), BUFFER_BYTES);
        }
        while buffer.unread().len() <= 2 * BUFFER_BYTES {
            buffer.fill().expect("more");
        }
        buffer.shrink(BUFFER_BYTES);
        assert_eq!(buffer.bytes.len(), 4 * BUFFER_BYTES, "it is not empty");
        buffer.take(buffer.unread().len());
        buffer.shrink(4 * BUFFER_BYTES);
        assert_eq!(buffer.bytes.len(), 4 * BUFFER_BYTES);
        buffer.shrink(BUFFER_BYTES);
        assert_eq!(
            (buffer.bytes.len(), buffer.unread().len()),
            (BUFFER_BYTES, 0)
        );
    }

    /// Otherwise the store would keep the state from before the list.
    #[test]
    fn an_object_that_becomes_readable_during_its_list_is_read() {
        let (mut collector, store) = (Collector::default(), Store::new());
        let key = ObjectKey::new("default", "a");
        collector.upsert_unread(UnreadKey {
            key: key.clone(),
            uid: Uid::new("uid-a"),
        });
        let pod = Pod {
            key,
            uid: Uid::new("uid-a"),
            ..Pod::default()
        };
        collector.upsert(pod.clone(), &store);
        assert_eq!(collector.finish(), (vec![Arc::new(pod)], Vec::new()));
    }
}
