//! The API server's audit log: who sent which request when. It distinguishes writers, which the
//! state of the objects does not.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::support::{number_at, resource_version, text_at};

/// Bodies of the writes that are judged, and no more: an hour's log must fit the disk.
pub(super) const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete]
  resources:
  - {group: \"\", resources: [pods, pods/status]}
  - {group: apps, resources: [replicasets, replicasets/status, deployments]}
  - {group: coordination.k8s.io, resources: [leases]}
- level: Metadata
";

/// A request, as the API server saw it.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    /// The user; for kube-controller-manager, which is an administrator here, its program.
    pub(super) who: String,
    pub(super) verb: String,
    /// Such as `pods` and `replicasets/status`.
    pub(super) resource: String,
    pub(super) name: String,
    pub(super) code: i64,
    pub(super) uri: String,
    /// The version of the object in the response; 0 without one.
    pub(super) version: u64,
    /// `spec.holderIdentity` in the request.
    pub(super) holder: String,
    /// When the request came, and when it was answered.
    pub(super) times: [String; 2],
}

impl Line {
    /// `None` for a stage other than the last.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let event: Value = serde_json::from_str(text).ok()?;
        let is_long = matches!(text_at(&event, "/verb").as_str(), "watch");
        let stage = text_at(&event, "/stage");
        if stage == "ResponseStarted" && !is_long {
            return None;
        }
        if is_long && stage != "ResponseStarted" {
            return None;
        }
        let user = text_at(&event, "/user/username");
        let agent = text_at(&event, "/userAgent");
        let is_theirs = agent.starts_with("kube-controller-manager");
        let mut resource = text_at(&event, "/objectRef/resource");
        let part = text_at(&event, "/objectRef/subresource");
        if !part.is_empty() {
            resource = format!("{resource}/{part}");
        }
        let in_body = text_at(&event, "/requestObject/metadata/name");
        let name = text_at(&event, "/objectRef/name");
        Some(Self {
            who: if is_theirs { agent } else { user },
            verb: text_at(&event, "/verb"),
            resource,
            name: if name.is_empty() { in_body } else { name },
            code: number_at(&event, "/responseStatus/code"),
            uri: text_at(&event, "/requestURI"),
            version: resource_version(&event["responseObject"]),
            holder: text_at(&event, "/requestObject/spec/holderIdentity"),
            times: ["/requestReceivedTimestamp", "/stageTimestamp"].map(|it| text_at(&event, it)),
        })
    }

    /// From the request to the response.
    pub(super) fn took(&self) -> Option<Duration> {
        let [from, to] = [0, 1].map(|n| self.times[n].parse::<jiff::Timestamp>().ok());
        to?.duration_since(from?).try_into().ok()
    }

    /// The line, without bodies.
    pub(super) fn described(&self) -> String {
        let [from, to] = &self.times;
        let (verb, resource, name) = (&self.verb, &self.resource, &self.name);
        let (who, code, version) = (&self.who, self.code, self.version);
        format!("{from} to {to}: {who} {verb} {resource} {name}: {code}, version {version}")
    }

    /// True for the users of the daemons under test.
    pub(super) fn is_ours(&self) -> bool {
        self.who.starts_with("replicaset-controller")
    }

    /// True for a list of a whole collection, streaming ones included.
    pub(super) fn is_list(&self) -> bool {
        let is_of_one = self.uri.contains("fieldSelector=");
        let is_streamed = self.verb == "watch" && self.uri.contains("sendInitialEvents=true");
        !is_of_one && (self.verb == "list" || is_streamed)
    }
}

/// The length of the log so far.
pub(super) fn end(log: &Path) -> u64 {
    log.metadata().map_or(0, |metadata| metadata.len())
}

/// The lines after `from` bytes that contain one of these strings.
pub(super) fn read(log: &Path, from: u64, about: &[&str]) -> Vec<Line> {
    let mut file = File::open(log).expect("a readable audit log");
    file.seek(SeekFrom::Start(from)).expect("a regular file");
    let lines = BufReader::new(file).lines().map_while(Result::ok);
    let lines = lines.filter(|line| about.iter().any(|about| line.contains(about)));
    lines.filter_map(|line| Line::parse(&line)).collect()
}
