//! Checks the daemon's permissions at startup and logs all missing ones in one message. Then polls
//! the API server's version, since it may be upgraded, and looks for Workloads. Runs on the thread
//! `self-check`; no other thread waits for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::version::Info;
use serde_json::{Value, json};

use super::manifests::Account;
use super::{Grant, Right, RightsOptions, grants, rbac_command};
use crate::api::{Status, WorkloadKind};
use crate::client::{Client, ClientConfig, ClientError, ClientOptions, Request};
use crate::live::Workloads;
use crate::stdx::build;
use crate::stdx::clock::{Backoff, BackoffParameters};
use crate::stdx::stop::Stop;
use crate::stdx::thread::Thread;
use crate::telemetry::metrics;

/// Timeout per request; after a timeout the check retries later.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval at which the thread looks whether the first lists are complete. The caches fill before
/// the first request, since pods wait for them, and some twenty reviews take a noticeable share of
/// a small API server's processors.
const LISTS_PERIOD: Duration = Duration::from_secs(1);

/// How long the first request waits for the lists: the missing permissions may be the reason why
/// they are not complete.
const LISTS_MAX: Duration = Duration::from_secs(10);

/// Back-off while the API server is unreachable. The watches log the outage.
const BACKOFF: BackoffParameters = BackoffParameters {
    initial: Duration::from_secs(1),
    cap: Duration::from_secs(30),
    jitter: 0.5,
    reset_after: Duration::MAX,
};

/// Polling interval of the API server's version. Alerts that compare versions wait for 15 minutes
/// (kubernetes-mixin `KubeVersionMismatch`).
const VERSION_PERIOD: Duration = Duration::from_mins(5);

const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const SELF_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// The self-check. It sends about twenty reviews in sequence on one connection, which is a
/// negligible load.
pub struct SelfCheck {
    client: Client,
    grants: Vec<Grant>,
    /// The command that prints manifests for these grants, without the account:
    /// `replicaset-controller rbac --namespace=shop`.
    command: String,
    workloads: Arc<Workloads>,
}

impl SelfCheck {
    /// Starts the thread `self-check`. `stop` aborts its connection.
    pub fn start(
        config: &ClientConfig,
        rights: &RightsOptions,
        workloads: Arc<Workloads>,
        are_listed: impl Fn() -> bool + Send + 'static,
        stop: &Stop,
    ) -> Thread {
        let client_options = ClientOptions {
            connections: 1,
            request_timeout: REQUEST_TIMEOUT,
            ..ClientOptions::default()
        };
        let check = Self {
            client: Client::new(config, &client_options, stop),
            // A review is a write in an audit log. The watches report what a dry run may not read.
            grants: if rights.dry_run {
                Vec::new()
            } else {
                grants(rights)
            },
            command: rbac_command(rights),
            workloads,
        };
        let (client, stopping) = (check.client.clone(), stop.clone());
        stop.on_stop(move || client.abort());
        Thread::spawn("self-check", stop, move || {
            check.run(&are_listed, &stopping);
        })
    }

    /// Checks the permissions, logs the missing ones, then polls the version. Blocks up to ten
    /// seconds at first, up to five seconds per request, in pauses of up to 45 seconds while the
    /// API server is unreachable, and five minutes between two version requests; `stop` ends it.
    fn run(&self, are_listed: &dyn Fn() -> bool, stop: &Stop) {
        let began = Instant::now();
        while !stop.wait_timeout(LISTS_PERIOD) {
            if are_listed() || began.elapsed() >= LISTS_MAX {
                break;
            }
        }
        if !self.grants.is_empty() {
            self.check_rights(stop);
        }
        let mut known = String::new();
        while !stop.is_stopped() {
            self.export_version(&mut known);
            if let Err(error) = self.workloads.discover(&self.client) {
                log::debug!(error:%; "cannot discover whether Workloads are served");
            }
            stop.wait_timeout(VERSION_PERIOD);
        }
    }

    /// Exports the API server's version as a metric, and warns of one that was not tested, unless
    /// it is `known`. On failure the metric keeps the last known version.
    fn export_version(&self, known: &mut String) {
        let version = match self.version() {
            Ok(version) => version,
            Err(error) => return log::debug!(error:%; "cannot read the API server's version"),
        };
        metrics::global().build.set_kubernetes_version(&version);
        let name = version.git_version;
        if name != *known {
            if !build::is_tested(&version.major, &version.minor) {
                let [oldest, newest] = build::TESTED;
                log::warn!(
                    "the API server's version is {name}, and this program was tested with \
                     1.{oldest} to 1.{newest}"
                );
            }
            *known = name;
        }
    }

    fn version(&self) -> Result<Info, ClientError> {
        let response = self.client.send(&Request::get("/version"))?;
        let version: Info = serde_json::from_slice(&response.body)?;
        if version.git_version.is_empty() {
            return Err(ClientError::Decode("a version without a name".to_owned()));
        }
        Ok(version)
    }

    /// Retries until the reviews succeed or their failure is final.
    fn check_rights(&self, stop: &Stop) {
        let mut backoff = Backoff::new(BACKOFF);
        loop {
            match self.missing(stop) {
                Ok(missing) if missing.is_empty() => {
                    log::debug!("the API server grants all required permissions");
                    return;
                }
                Ok(missing) => {
                    self.log_missing(&missing);
                    return;
                }
                Err(ClientError::Stopped) => return,
                Err(error) if is_final(&error) => {
                    log::debug!(
                        error:%;
                        "the API server does not report the permissions of this account"
                    );
                    return;
                }
                Err(error) => {
                    log::debug!(error:%; "retrying the check of permissions");
                    if stop.wait_timeout(backoff.step(Instant::now(), fastrand::f64())) {
                        return;
                    }
                }
            }
        }
    }

    fn missing(&self, stop: &Stop) -> Result<Vec<Missing<'_>>, ClientError> {
        let mut missing = Vec::new();
        for grant in &self.grants {
            for right in &grant.rights {
                for verb in right.verbs {
                    if stop.is_stopped() {
                        return Err(ClientError::Stopped);
                    }
                    if !self.is_allowed(grant, right, verb)? {
                        missing.push((grant, right, *verb));
                    }
                }
            }
        }
        Ok(missing)
    }

    fn is_allowed(&self, grant: &Grant, right: &Right, verb: &str) -> Result<bool, ClientError> {
        let (resource, subresource) = right.resource_and_subresource();
        let response = self.create(
            ACCESS_REVIEWS,
            &json!({
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": {
                    "namespace": grant.namespace.as_deref().unwrap_or_default(),
                    "verb": verb,
                    "group": right.group,
                    "resource": resource,
                    "subresource": subresource,
                    "name": right.name.as_deref().unwrap_or_default(),
                }},
            }),
        )?;
        let allowed = response.pointer("/status/allowed").and_then(Value::as_bool);
        allowed.ok_or_else(|| ClientError::Decode("a review without a result".to_owned()))
    }

    /// The API server's name for this account, if it supports the review (Kubernetes 1.28 and
    /// newer).
    fn username(&self) -> Option<String> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let response = self.create(SELF_REVIEWS, &review).ok()?;
        let name = response.pointer("/status/userInfo/username")?.as_str()?;
        (!name.is_empty()).then(|| name.to_owned())
    }

    fn create(&self, path: &str, object: &Value) -> Result<Value, ClientError> {
        let request = Request::post(path).body("application/json", object.to_string());
        Ok(serde_json::from_slice(&self.client.send(&request)?.body)?)
    }

    fn log_missing(&self, missing: &[Missing<'_>]) {
        let username = self.username();
        let level = if missing.iter().any(|(grant, _, _)| grant.is_vital) {
            log::Level::Error
        } else {
            log::Level::Warn
        };
        let account = username.as_deref().map_or_else(
            || " --service-account=NAMESPACE/NAME".to_owned(),
            |name| format!(" {}", Account::of_username(name).flag()),
        );
        log::log!(
            level,
            "permissions are missing for {}: {}. To grant them: {}{account} | kubectl apply -f -",
            username.as_deref().unwrap_or("this account"),
            missing_rights(missing),
            self.command,
        );
    }
}

/// True if a retry would return the same error: the account may not create reviews, or the server
/// does not support them.
fn is_final(error: &ClientError) -> bool {
    let is_rejection = |status: &Status| matches!(status.code(), 400 | 403 | 404 | 405 | 422);
    match error {
        ClientError::Status(status) => is_rejection(status),
        ClientError::Transport(_) | ClientError::Credentials(_) => false,
        ClientError::Decode(_)
        | ClientError::Invalid(_)
        | ClientError::Stopped
        | ClientError::Fenced => true,
    }
}

/// The consequence if the account may not list or watch pods.
pub const PODS_FORBIDDEN: &str = "the controllers wait until this account may list and watch pods";

/// The consequence if the account may not list or watch what the Deployment controller reads.
pub const DEPLOYMENTS_FORBIDDEN: &str = "no Deployment is rolled out until this account may list \
                                         and watch deployments and replicasets: bind it to the \
                                         role system:controller:deployment-controller, or remove \
                                         deployment-controller from --controllers";

/// The consequence if the account may not watch quotas, and the remedy.
pub const QUOTAS_FORBIDDEN: &str = "quotas are not watched, so a raised quota takes effect with \
                                    the next attempt, within 30 s. This optional permission \
                                    takes effect within ten minutes, or after a restart; to \
                                    grant it to the account that the error names: \
                                    replicaset-controller rbac --watch-quotas --user=NAME | \
                                    kubectl apply -f -";

/// The consequence if the account may not list or watch objects of this kind.
pub fn forbidden_workload(workload: &WorkloadKind) -> String {
    let WorkloadKind {
        kind,
        resource,
        cluster_role,
        controller,
        ..
    } = workload;
    format!(
        "no {kind} is controlled until this account may list and watch {resource}: bind it to \
         the role {cluster_role}, or remove {controller} from --controllers"
    )
}

/// A permission that is missing: a verb of a right.
type Missing<'a> = (&'a Grant, &'a Right, &'a str);

/// Describes each missing permission with its purpose and scope. `missing` holds the denied verbs,
/// grouped by grant.
pub fn missing_rights(missing: &[Missing<'_>]) -> String {
    let of_object = |same: &[Missing<'_>]| {
        let verbs: Vec<&str> = same.iter().map(|(_, _, verb)| *verb).collect();
        format!("{} {}", verbs.join(", "), object(same[0].1))
    };
    let of_grant = |missing: &[Missing<'_>]| {
        let grant = missing[0].0;
        let objects = missing
            .chunk_by(|a, b| is_same_object(a.1, b.1))
            .map(of_object);
        let objects: Vec<String> = objects.collect();
        let (purpose, objects) = (&grant.purpose, objects.join(", "));
        format!("cannot {purpose} without: {objects}{}", place(grant))
    };
    let grants = missing
        .chunk_by(|a, b| std::ptr::eq(a.0, b.0))
        .map(of_grant);
    grants.collect::<Vec<_>>().join("; ")
}

fn is_same_object(one: &Right, other: &Right) -> bool {
    (one.group, &one.resource, &one.name) == (other.group, &other.resource, &other.name)
}

/// The form of `kubectl auth can-i`: `replicasets.apps/status`, `leases.coordination.k8s.io/name`.
fn object(right: &Right) -> String {
    let (resource, subresource) = right.resource_and_subresource();
    let mut text = resource.to_owned();
    for (before, part) in [
        ('.', right.group),
        ('/', subresource),
        ('/', right.name.as_deref().unwrap_or_default()),
    ] {
        if !part.is_empty() {
            text.push(before);
            text.push_str(part);
        }
    }
    text
}

fn place(grant: &Grant) -> String {
    match &grant.namespace {
        Some(namespace) => format!(" in namespace {namespace}"),
        None => " in the whole cluster".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::grants;
    use super::super::tests::all_enabled;
    use super::missing_rights;

    #[test]
    fn each_missing_permission_has_its_purpose_and_scope() {
        let grants = grants(&all_enabled());
        let is_missing = |resource: &str, verb: &str| {
            matches!(
                (resource, verb),
                ("pods", "create" | "delete") | ("leases", "update") | ("replicasets/status", _)
            )
        };
        let mut missing = Vec::new();
        for grant in [&grants[0], &grants[2]] {
            for right in &grant.rights {
                for verb in right.verbs {
                    if is_missing(&right.resource, verb) {
                        missing.push((grant, right, *verb));
                    }
                }
            }
        }
        assert_eq!(
            missing_rights(&missing),
            "cannot control ReplicaSets without: update replicasets.apps/status, create, delete \
             pods in the whole cluster; cannot take part in the leader election without: update \
             leases.coordination.k8s.io/kube-controller-manager in namespace kube-system"
        );
        assert_eq!(missing_rights(&[]), "");
    }
}
