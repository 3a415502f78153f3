//! Where requests of one client are counted and measured. Handles are looked up when the first request
//! of a verb is sent; after that, counting one costs a few nanoseconds and no allocation.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use ureq::http::uri::Uri;

use super::request::{Method, Request};
use crate::telemetry::metrics;
use crate::telemetry::metrics::rest_client::VerbMetrics;

/// The handles of one API server.
#[derive(Debug)]
pub(super) struct Meter {
    /// Name and port.
    host: String,
    verbs: [OnceLock<VerbMetrics>; Method::ALL.len()],
}

impl Meter {
    pub(super) fn new(server: &Uri) -> Self {
        let host = server
            .authority()
            .map_or("none", |authority| authority.as_str());
        Self {
            host: host.to_owned(),
            verbs: Default::default(),
        }
    }

    /// Where requests of this method are counted.
    pub(super) fn verb(&self, method: Method) -> &VerbMetrics {
        let resolve = || {
            metrics::global()
                .rest_client
                .of(method.as_str(), &self.host)
        };
        self.verbs[method as usize].get_or_init(resolve)
    }
}

/// Measures one request from the wish to send it until its answer was read, which is when this is
/// dropped.
#[derive(Debug)]
pub(super) struct ResponseMeter {
    meter: Arc<Meter>,
    method: Method,
    began: Instant,
    /// `None`: there was no answer, or not the one that was asked for.
    n_bytes: Option<usize>,
}

impl ResponseMeter {
    pub(super) fn new(meter: &Arc<Meter>, request: &Request) -> Self {
        Self {
            meter: Arc::clone(meter),
            method: request.method(),
            began: Instant::now(),
            n_bytes: None,
        }
    }

    /// The request is sent, for the first time or again.
    pub(super) fn attempted(&self, request: &Request) {
        let size = bytes(request.body_bytes());
        self.meter.verb(self.method).request_size.observe(size);
    }

    /// So much more of the answer is here.
    pub(super) fn received(&mut self, n_bytes: usize) {
        self.n_bytes = Some(self.n_bytes.unwrap_or(0) + n_bytes);
    }
}

impl Drop for ResponseMeter {
    fn drop(&mut self) {
        let metrics = self.meter.verb(self.method);
        metrics
            .request_duration
            .observe(self.began.elapsed().as_secs_f64());
        if let Some(n_bytes) = self.n_bytes {
            metrics.response_size.observe(bytes(n_bytes));
        }
    }
}

fn bytes(n_bytes: usize) -> f64 {
    metrics::whole(u64::try_from(n_bytes).unwrap_or(u64::MAX))
}
