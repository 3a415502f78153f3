//! What the API server's audit log says of a contestant, if there is one (`make bench
//! BENCH_AUDIT=yes`): its requests by verb, resource and code.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::PathBuf;

use serde_json::Value;

use crate::report::OURS;

/// The agent of the harness's own requests, to which no figure belongs.
pub(crate) const HARNESS: &str = "side-by-side";

/// The audit log from some moment on.
pub(crate) struct Audit {
    log: PathBuf,
    from: u64,
}

impl Audit {
    /// Begins now; `None` without an audit log.
    pub(crate) fn begin() -> Option<Self> {
        let log = std::env::var_os("CONTROL_PLANE_AUDIT_LOG").filter(|log| !log.is_empty())?;
        let log = PathBuf::from(log);
        let from = log.metadata().map_or(0, |metadata| metadata.len());
        Some(Self { log, from })
    }

    /// The requests of a contestant since then.
    pub(crate) fn requests_of(&self, who: &str) -> Result<BTreeMap<String, usize>, String> {
        let problem = |error: std::io::Error| format!("{}: {error}", self.log.display());
        let mut file = File::open(&self.log).map_err(problem)?;
        file.seek(SeekFrom::Start(self.from)).map_err(problem)?;
        let mut requests = BTreeMap::new();
        for line in BufReader::new(file).lines() {
            let line = line.map_err(problem)?;
            if let Some(request) = request(&line, who) {
                *requests.entry(request).or_default() += 1;
            }
        }
        Ok(requests)
    }
}

/// The verb, resource and code of an answered request of this contestant.
fn request(line: &str, who: &str) -> Option<String> {
    let event: Value = serde_json::from_str(line).ok()?;
    let agent = event["userAgent"].as_str()?;
    // Other controllers of a kube-controller-manager run beside both contestants.
    let is_its_own = if who == OURS {
        agent.starts_with("replicaset-controller/")
    } else {
        agent.starts_with("kube-controller-manager/") && agent.ends_with("/replicaset-controller")
    };
    if !is_its_own || event["stage"] != "ResponseComplete" {
        return None;
    }
    let (verb, resource) = (
        event["verb"].as_str()?,
        event["objectRef"]["resource"].as_str()?,
    );
    let code = event["responseStatus"]["code"].as_u64().unwrap_or(0);
    Some(match event["objectRef"]["subresource"].as_str() {
        Some(part) => format!("{verb} {resource}/{part}: {code}"),
        None => format!("{verb} {resource}: {code}"),
    })
}
