//! Metrics of client credentials: exec plugins and reloaded files
//! (component-base `metrics/prometheus/restclient/metrics.go`). `client` records them on the thread
//! that renews the credentials.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use prometheus::{Histogram, IntCounterVec};

use super::{Computed, Registry};

/// In seconds, from ten minutes (too early) to four years (far too late).
#[rustfmt::skip]
const ROTATION_AGES: [f64; 11] = [
    600.0, 1800.0, 3600.0, 14_400.0, 86_400.0, 604_800.0, 2_592_000.0, 7_776_000.0, 15_552_000.0,
    31_104_000.0, 124_416_000.0,
];

/// The result of an exec plugin call (client-go `plugin/pkg/client/auth/exec/metrics.go`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecPluginCall {
    /// The plugin returned credentials.
    NoError,
    /// The plugin exited with this code.
    ExecutionError(i32),
    /// The program does not exist.
    NotFound,
    /// The program failed to start for another reason, or its output was unusable.
    ClientInternalError,
}

families! {
    pub struct CredentialMetrics {
        /// [ALPHA] Gauge of the shortest TTL (time-to-live) of the client certificate(s) managed by
        /// the auth exec plugin. The value is in seconds until certificate expiry (negative if
        /// already expired). If auth exec plugins are unused or manage no TLS certificates, the
        /// value will be +INF.
        exec_plugin_ttl: Computed = computed_gauges("rest_client_exec_plugin_ttl_seconds", &[]);
        /// [ALPHA] Number of calls to an exec plugin, partitioned by the type of event encountered
        /// (no_error, plugin_execution_error, plugin_not_found_error, client_internal_error) and an
        /// optional exit code. The exit code will be set to 0 if and only if the plugin call was
        /// successful.
        exec_plugin_calls: IntCounterVec
            = counters("rest_client_exec_plugin_call_total", &["code", "call_status"]);
        /// [ALPHA] Histogram of the number of seconds the last auth exec plugin client certificate
        /// lived before being rotated. If auth exec plugin client certificates are unused,
        /// histogram will contain no data.
        exec_plugin_rotation_age: Histogram
            = histogram("rest_client_exec_plugin_certificate_rotation_age", &ROTATION_AGES);
        /// [ALPHA] Number of times a CA reload is attempted, partitioned by the result and reason
        /// for the reload attempt
        ca_reloads: IntCounterVec
            = counters("rest_client_transport_ca_reload_total", &["result", "reason"]);
        /// Seconds until a certificate in use expires, negative after that. The client certificates
        /// of exec plugins have a metric of their own.
        pub(in crate::telemetry) certificate_ttl: Computed
            = computed_gauges("replicaset_controller_certificate_ttl_seconds", &["usage", "file"]);
    }
}

impl CredentialMetrics {
    pub fn exec_plugin_called(&self, call: ExecPluginCall) {
        // Failures without an exit code count as 1.
        let (code, status) = match call {
            ExecPluginCall::NoError => (0, "no_error"),
            ExecPluginCall::ExecutionError(code) => (code, "plugin_execution_error"),
            ExecPluginCall::NotFound => (1, "plugin_not_found_error"),
            ExecPluginCall::ClientInternalError => (1, "client_internal_error"),
        };
        let counter = self
            .exec_plugin_calls
            .with_label_values(&[&code.to_string(), status]);
        counter.inc();
    }

    /// Shows that no exec plugin has issued a client certificate.
    pub(super) fn expect_no_exec_plugin(&self) {
        self.exec_plugin_ttl.register(&[], || Some(f64::INFINITY));
    }

    /// Shows the `expiry` of an exec plugin's client certificate until `issued` is dropped.
    pub fn exec_plugin_issued<T: Send + Sync + 'static>(
        &self,
        issued: &Arc<T>,
        expiry: SystemTime,
    ) {
        let issued = Arc::downgrade(issued);
        let ttl = move || (issued.strong_count() > 0).then(|| seconds_until(expiry));
        self.exec_plugin_ttl.register_beside(&[], ttl);
    }

    /// Records the age of an exec plugin's client certificate at its replacement.
    pub fn exec_plugin_certificate_rotated(&self, age: Duration) {
        self.exec_plugin_rotation_age.observe(age.as_secs_f64());
    }

    /// Counts an attempt to reload the CA file: whether its content changed, or why it is unusable:
    /// `read_error`, `empty` or `ca_parse_error` (client-go `transport/ca_rotation.go`).
    pub fn ca_reloaded(&self, changed: Result<bool, &str>) {
        let (result, reason) = match changed {
            Ok(true) => ("success", "updated"),
            Ok(false) => ("success", "unchanged"),
            Err(reason) => ("failure", reason),
        };
        self.ca_reloads.with_label_values(&[result, reason]).inc();
    }
}

pub(in crate::telemetry) fn seconds_until(time: SystemTime) -> f64 {
    match time.duration_since(SystemTime::now()) {
        Ok(remaining) => remaining.as_secs_f64(),
        Err(error) => -error.duration().as_secs_f64(),
    }
}
