//! Asks the API server at start whether the daemon may do what it needs to, and names everything
//! that is missing in one message; and asks for its version, again and again, since it may be
//! upgraded. On a thread of its own, `self-check`, so that nothing waits for it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::manifests::Account;
use super::{Grant, Right, missing_rights};
use crate::api::Status;
use crate::client::{Client, ClientConfig, ClientError, ClientOptions, Request};
use crate::stdx::backoff::{Backoff, BackoffParameters};
use crate::stdx::stop::Stop;
use crate::stdx::thread::Thread;
use crate::telemetry::metrics;
use crate::telemetry::metrics::process::KubernetesVersion;

/// How long one answer may take; an API server that is slower than this is asked again later.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How long the check waits before its first question: caches are filled first, since pods are waiting
/// for that, and on a small API server a score of questions takes a good part of the same processors.
const HEAD_START: Duration = Duration::from_secs(1);

/// Pauses while the API server cannot be reached. The watches say so by themselves.
const PAUSES: BackoffParameters = BackoffParameters {
    initial: Duration::from_secs(1),
    cap: Duration::from_secs(30),
    factor: 2.0,
    jitter: 0.5,
    reset_after: Duration::MAX,
};

/// Time between two looks at the API server's version: alerts that compare versions wait for 15
/// minutes (kubernetes-mixin `KubeVersionMismatch`).
const VERSION_PERIOD: Duration = Duration::from_mins(5);

const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const SELF_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// What is asked for.
#[derive(Clone, Debug)]
pub struct SelfCheckOptions {
    /// What is needed.
    pub grants: Vec<Grant>,
    /// The command that prints manifests for these grants, without the account:
    /// `replicaset-controller rbac --namespace=shop`.
    pub command: String,
}

/// One check. Some twenty questions, one after the other on one connection, so that no API server
/// notices.
#[derive(Debug)]
pub struct SelfCheck {
    client: Client,
    options: SelfCheckOptions,
}

impl SelfCheck {
    /// Starts the thread `self-check`. When `stop` is given, its connection is cut.
    ///
    /// # Errors
    /// If the configuration does not make a client.
    pub fn start(
        config: &ClientConfig,
        options: &SelfCheckOptions,
        stop: &Stop,
    ) -> Result<Thread, ClientError> {
        let client_options = ClientOptions {
            connections: 1,
            request_timeout: ANSWER_WITHIN,
            ..ClientOptions::default()
        };
        let check = Self {
            client: Client::new(config, &client_options, stop)?,
            options: options.clone(),
        };
        let (client, stopping) = (check.client.clone(), stop.clone());
        stop.on_stop(move || client.abort());
        Ok(Thread::spawn("self-check", stop, move || {
            check.run(&stopping);
        }))
    }

    /// Asks, logs what is missing, and follows the version. Waits a second first, then for answers,
    /// at most five seconds each, for pauses of up to 45 seconds while the API server cannot be
    /// reached, and for five minutes between two looks at the version; `stop` ends it.
    fn run(&self, stop: &Stop) {
        if stop.wait_timeout(HEAD_START) {
            return;
        }
        self.check_rights(stop);
        while !stop.is_stopped() {
            self.show_version();
            stop.wait_timeout(VERSION_PERIOD);
        }
    }

    /// Shows the version of the API server in the metrics. One that does not tell it keeps the
    /// version that it told before.
    fn show_version(&self) {
        match self.version() {
            Ok(version) => metrics::global().build.set_kubernetes_version(&version),
            Err(error) => log::debug!(error:%; "the API server does not tell its version"),
        }
    }

    fn version(&self) -> Result<KubernetesVersion, ClientError> {
        let response = self.client.send(&Request::get("/version"))?;
        let answer: Value = serde_json::from_slice(&response.body)
            .map_err(|error| ClientError::Decode(format!("the version is no object: {error}")))?;
        let text = |field: &str| answer[field].as_str().unwrap_or_default().to_owned();
        if text("gitVersion").is_empty() {
            return Err(ClientError::Decode("a version without a name".to_owned()));
        }
        Ok(KubernetesVersion {
            major: text("major"),
            minor: text("minor"),
            git_version: text("gitVersion"),
        })
    }

    /// Asks until there is an answer, or none is to be had.
    fn check_rights(&self, stop: &Stop) {
        let mut backoff = Backoff::new(PAUSES);
        loop {
            match self.missing(stop) {
                Ok(missing) if missing.is_empty() => {
                    log::debug!("the API server grants every right that is needed");
                    return;
                }
                Ok(missing) => {
                    self.tell(missing);
                    return;
                }
                Err(ClientError::Stopped) => return,
                Err(error) if is_final(&error) => {
                    log::debug!(error:%; "the API server does not say what we may do");
                    return;
                }
                Err(error) => {
                    log::debug!(error:%; "rights are checked later");
                    if stop.wait_timeout(backoff.step(Instant::now(), fastrand::f64())) {
                        return;
                    }
                }
            }
        }
    }

    fn missing(&self, stop: &Stop) -> Result<Vec<(&Grant, &Right, &'static str)>, ClientError> {
        let mut missing = Vec::new();
        for grant in &self.options.grants {
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
        let answer = self.create(
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
        let allowed = answer.pointer("/status/allowed").and_then(Value::as_bool);
        allowed.ok_or_else(|| ClientError::Decode("a review without a verdict".to_owned()))
    }

    /// Who the API server takes us for, if it says so (Kubernetes 1.28 and newer).
    fn username(&self) -> Option<String> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let answer = self.create(SELF_REVIEWS, &review).ok()?;
        let name = answer.pointer("/status/userInfo/username")?.as_str()?;
        (!name.is_empty()).then(|| name.to_owned())
    }

    fn create(&self, path: &str, object: &Value) -> Result<Value, ClientError> {
        let request = Request::post(path).body("application/json", object.to_string());
        let response = self.client.send(&request)?;
        serde_json::from_slice(&response.body)
            .map_err(|error| ClientError::Decode(format!("the answer is no object: {error}")))
    }

    fn tell(&self, missing: Vec<(&Grant, &Right, &'static str)>) {
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
            self.options.command,
        );
    }
}

/// True if asking again would give the same: a cluster where not everyone may ask, or an API server
/// that is not asked this at all.
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
