//! Checks the daemon's permissions at startup and logs all missing ones in one message. Then polls
//! the API server's version, since it may be upgraded. Runs on the thread `self-check`; no other
//! thread waits for it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::manifests::Account;
use super::{Grant, Right, RightsOptions, grants, missing_rights, rbac_command};
use crate::api::Status;
use crate::client::{Client, ClientConfig, ClientError, ClientOptions, Request};
use crate::stdx::backoff::{Backoff, BackoffParameters};
use crate::stdx::build;
use crate::stdx::stop::Stop;
use crate::stdx::thread::Thread;
use crate::telemetry::metrics;
use crate::telemetry::metrics::process::KubernetesVersion;

/// Timeout per request; after a timeout the check retries later.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Delay before the first request. The caches fill first, since pods wait for them, and some twenty
/// reviews take a noticeable share of a small API server's processors.
const START_DELAY: Duration = Duration::from_secs(1);

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
#[derive(Debug)]
pub struct SelfCheck {
    client: Client,
    /// The required permissions.
    grants: Vec<Grant>,
    /// The command that prints manifests for these grants, without the account:
    /// `replicaset-controller rbac --namespace=shop`.
    command: String,
}

impl SelfCheck {
    /// Starts the thread `self-check`. `stop` aborts its connection.
    pub fn start(config: &ClientConfig, rights: &RightsOptions, stop: &Stop) -> Thread {
        let client_options = ClientOptions {
            connections: 1,
            request_timeout: REQUEST_TIMEOUT,
            ..ClientOptions::default()
        };
        let check = Self {
            client: Client::new(config, &client_options, stop),
            grants: grants(rights),
            command: rbac_command(rights),
        };
        let (client, stopping) = (check.client.clone(), stop.clone());
        stop.on_stop(move || client.abort());
        Thread::spawn("self-check", stop, move || {
            check.run(&stopping);
        })
    }

    /// Checks the permissions, logs the missing ones, then polls the version. Blocks one second at
    /// first, up to five seconds per request, in pauses of up to 45 seconds while the API server is
    /// unreachable, and five minutes between two version requests; `stop` ends it.
    fn run(&self, stop: &Stop) {
        if stop.wait_timeout(START_DELAY) {
            return;
        }
        self.check_rights(stop);
        let mut known = String::new();
        while !stop.is_stopped() {
            self.export_version(&mut known);
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

    fn version(&self) -> Result<KubernetesVersion, ClientError> {
        let response = self.client.send(&Request::get("/version"))?;
        let version: Value = serde_json::from_slice(&response.body).map_err(|error| {
            ClientError::Decode(format!("the version is not an object: {error}"))
        })?;
        let text = |field: &str| version[field].as_str().unwrap_or_default().to_owned();
        if text("gitVersion").is_empty() {
            return Err(ClientError::Decode("a version without a name".to_owned()));
        }
        Ok(KubernetesVersion {
            major: text("major"),
            minor: text("minor"),
            git_version: text("gitVersion"),
        })
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
                    self.log_missing(missing);
                    return;
                }
                Err(ClientError::Stopped) => return,
                Err(error) if is_final(&error) => {
                    log::debug!(error:%; "the API server does not say what we may do");
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

    fn missing(&self, stop: &Stop) -> Result<Vec<(&Grant, &Right, &'static str)>, ClientError> {
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
        let response = self.client.send(&request)?;
        serde_json::from_slice(&response.body)
            .map_err(|error| ClientError::Decode(format!("the response is not an object: {error}")))
    }

    fn log_missing(&self, missing: Vec<(&Grant, &Right, &'static str)>) {
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
            "rights are missing for {}: {}. To grant them: {}{account} | kubectl apply -f -",
            username.as_deref().unwrap_or("this account"),
            missing_rights(missing),
            self.command,
        );
    }
}

/// True if a retry would return the same error: the account may not create reviews, or the server
/// does not support them.
fn is_final(error: &ClientError) -> bool {
    let is_refusal = |status: &Status| matches!(status.code(), 400 | 403 | 404 | 405 | 422);
    match error {
        ClientError::Status(status) => is_refusal(status),
        ClientError::Transport(_) | ClientError::Credentials(_) => false,
        ClientError::Decode(_)
        | ClientError::Invalid(_)
        | ClientError::Stopped
        | ClientError::Fenced => true,
    }
}
