//! A layer round any [`Handler`] that records what comes by and breaks it as a test asks.

use std::fmt;
use std::sync::Arc;

use super::exchange::{Answer, ApiRequest, Handler};
use super::recorder::Recorder;

/// The layer. Clones are the same layer.
#[derive(Clone)]
pub struct Faults {
    inner: Arc<dyn Handler>,
    recorder: Recorder,
}

impl Faults {
    /// A layer round `inner` that breaks nothing yet.
    pub fn new(inner: Arc<dyn Handler>, recorder: Recorder) -> Self {
        Self { inner, recorder }
    }

    /// What came by.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").finish_non_exhaustive()
    }
}

impl Handler for Faults {
    fn handle(&self, request: ApiRequest) -> Answer {
        let recorded = self.recorder.add(request.clone());
        let answer = self.inner.handle(request);
        recorded.set_code(answer.code);
        answer
    }
}
