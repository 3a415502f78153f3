//! When a certificate that the daemon presents expires: a metric, and a warning ahead. The threads
//! that look for a renewed certificate call this.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use jiff::Timestamp;

use super::metrics;
use crate::stdx::certificate::Certificate;
use crate::stdx::tls::certificates;

/// A certificate in use. The metric ends with the value.
#[derive(Debug)]
pub struct Expiry {
    name: String,
    begin: SystemTime,
    end: SystemTime,
    /// The last warning, so that each is logged once.
    warned: Mutex<Option<Phase>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Less than a tenth of the lifetime is left.
    Near,
    Over,
}

impl Expiry {
    /// The first certificate in `pem`, for `usage`: `client` or `serving`. `None` if it cannot be
    /// read. Warns if its end is near.
    pub fn of(usage: &str, file: Option<&Path>, pem: &[u8]) -> Option<Arc<Self>> {
        let certificates = certificates("", pem).ok()?;
        let validity = Certificate::parse(&certificates[0]).ok()?.validity?;
        let file = file.map_or_else(String::new, |file| file.display().to_string());
        let expiry = Self::new(usage, &file, validity);
        expiry.warn_if_due();
        Some(expiry)
    }

    fn new(usage: &str, file: &str, (begin, end): (SystemTime, SystemTime)) -> Arc<Self> {
        let name = format!("the {usage} certificate {file}");
        let expiry = Arc::new(Self {
            name: name.trim_end().to_owned(),
            begin,
            end,
            warned: Mutex::default(),
        });
        let shown = Arc::downgrade(&expiry);
        let seconds = move || Some(metrics::seconds_until(shown.upgrade()?.end));
        let metrics = &metrics::global().credentials;
        metrics.certificate_ttl.register(&[usage, file], seconds);
        expiry
    }

    /// Logs a warning when the end is near, and when it has come.
    pub fn warn_if_due(&self) {
        if let Some(warning) = self.warning(SystemTime::now()) {
            log::warn!("{warning}");
        }
    }

    fn warning(&self, now: SystemTime) -> Option<String> {
        let lifetime = self.end.duration_since(self.begin).unwrap_or_default();
        let left = self.end.duration_since(now).unwrap_or_default();
        let phase = if left.is_zero() {
            Phase::Over
        } else if left < lifetime / 10 {
            Phase::Near
        } else {
            return None;
        };
        let warned = self.warned.lock();
        let before = warned
            .unwrap_or_else(PoisonError::into_inner)
            .replace(phase);
        if before == Some(phase) {
            return None;
        }
        let (name, end) = (&self.name, Timestamp::try_from(self.end).ok()?);
        let verb = if phase == Phase::Over {
            "has expired"
        } else {
            "expires"
        };
        Some(format!("{name} {verb} at {end:.0}: renew it"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::Expiry;
    use crate::telemetry::metrics;

    #[test]
    fn the_end_of_a_certificate_is_a_metric_and_a_warning_ahead() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let expiry = Expiry::new("client", "/a.crt", (at(1000), at(2000)));
        let name =
            "replicaset_controller_certificate_ttl_seconds{file=\"/a.crt\",usage=\"client\"}";
        let value = || {
            let metrics = metrics::render();
            let line = metrics.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse::<f64>().ok()
        };
        assert!(value().is_some_and(|seconds| seconds < -1e9));
        assert_eq!(expiry.warning(at(1899)), None);
        let near = "the client certificate /a.crt expires at 1970-01-01T00:33:20Z: renew it";
        assert_eq!(expiry.warning(at(1901)).as_deref(), Some(near));
        assert_eq!(expiry.warning(at(1902)), None, "once");
        let over = near.replace("expires", "has expired");
        assert_eq!(expiry.warning(at(2000)), Some(over));
        drop(expiry);
        assert_eq!(value(), None);
    }
}
