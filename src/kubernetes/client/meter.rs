//! Request metrics of one client. The metric handles of a verb are resolved at its first request;
//! after that, counting a request costs a few nanoseconds and no allocation.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use ureq::http::uri::Uri;

use super::request::{Method, Request};
use crate::telemetry::metrics;
use crate::telemetry::metrics::rest_client::VerbMetrics;

/// The metric handles for one API server.
#[derive(Debug)]
pub(super) struct Meter {
    /// Host and port.
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

    /// Returns the metric handles of `method`.
    pub(super) fn verb(&self, method: Method) -> &VerbMetrics {
        let resolve = || {
            metrics::global()
                .rest_client
                .of(method.as_str(), &self.host)
        };
        self.verbs[method as usize].get_or_init(resolve)
    }
}

/// Measures one request, from the call until this is dropped, which is when the response was read.
#[derive(Debug)]
pub(super) struct ResponseMeter {
    meter: Arc<Meter>,
    method: Method,
    began: Instant,
    /// `None`: no response, or not a successful one.
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

    /// Records one attempt to send the request, the first or a retry.
    pub(super) fn attempted(&self, request: &Request) {
        let size = bytes(request.body_bytes());
        self.meter.verb(self.method).request_size.observe(size);
    }

    /// Adds `n_bytes` to the size of the response.
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
