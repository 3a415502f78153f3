//! When each watch last heard from the API server, and since when it cannot: a layer round where its
//! lists and watches come from. On the watch's own thread; read by the checks of `progress`.

use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cache::list_watch::{ListQuery, WatchQuery};
use crate::cache::reflector::{Body, Source};
use crate::client::ClientError;
use crate::stdx::report::report;

/// What is known of one watch's contact with the API server.
#[derive(Debug)]
pub(super) struct Contact {
    created: Instant,
    /// Milliseconds from `created` to the last byte that came.
    heard_ms: AtomicU64,
    /// When the first request failed that no success has followed, and the last one's reason.
    failing: Mutex<Option<(Instant, String)>>,
}

impl Contact {
    pub(super) fn new() -> Self {
        Self {
            created: Instant::now(),
            heard_ms: AtomicU64::default(),
            failing: Mutex::default(),
        }
    }

    /// How long nothing was heard; since the start if nothing ever was.
    pub(super) fn silence(&self) -> Duration {
        let heard = Duration::from_millis(self.heard_ms.load(Ordering::Relaxed));
        self.created.elapsed().saturating_sub(heard)
    }

    /// How long no list or watch could be opened, and why; `None` if the last one could.
    pub(super) fn outage(&self) -> Option<(Duration, String)> {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, why) = failing.as_ref()?;
        Some((since.elapsed(), why.clone()))
    }

    fn hear(&self) {
        let ms = u64::try_from(self.created.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard_ms.store(ms, Ordering::Relaxed);
    }

    fn note(&self, opened: &Result<Body, ClientError>) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        *failing = match (opened, failing.take()) {
            (Ok(_), _) => None,
            (Err(error), None) => Some((Instant::now(), report(error))),
            (Err(error), Some((since, _))) => Some((since, report(error))),
        };
        drop(failing);
        if opened.is_ok() {
            self.hear();
        }
    }
}

/// A source that notes when something comes of it.
#[derive(Debug)]
pub(super) struct Noted<S> {
    pub(super) source: S,
    pub(super) contact: Arc<Contact>,
}

impl<S: Source> Noted<S> {
    fn noted(&self, opened: Result<Body, ClientError>) -> Result<Body, ClientError> {
        self.contact.note(&opened);
        let body = opened?;
        let reader = NotedReader {
            inner: body.reader,
            contact: Arc::clone(&self.contact),
        };
        Ok(Body {
            content_type: body.content_type,
            reader: Box::new(reader),
        })
    }
}

impl<S: Source> Source for Noted<S> {
    fn open_list(&mut self, query: &ListQuery) -> Result<Body, ClientError> {
        let opened = self.source.open_list(query);
        self.noted(opened)
    }

    fn open_watch(&mut self, query: &WatchQuery) -> Result<Body, ClientError> {
        let opened = self.source.open_watch(query);
        self.noted(opened)
    }
}

struct NotedReader {
    inner: Box<dyn Read + Send>,
    contact: Arc<Contact>,
}

impl Read for NotedReader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let n_bytes = self.inner.read(bytes)?;
        if n_bytes > 0 {
            self.contact.hear();
        }
        Ok(n_bytes)
    }
}
