//! The writes against a server, and what their errors do to the key.

use std::sync::Arc;
use std::time::Duration;

use devserver::{ApiRequest as Request, Handler, Response};
use serde_json::json;

use crate::api::{ObjectKey, Status};
use crate::client::{Client, ClientConfig, ClientOptions};
use crate::decide::tests::{deployment, replica_set};
use crate::decide::{Claims, Write};
use crate::objects::ReplicaSet;
use crate::simulation::{SETS, call, controller, sets_of};
use crate::stdx::stop::Stop;
use crate::sync::DeploymentController;

/// Calls `test` with a controller of this API server.
fn with_server(api: Arc<dyn Handler>, test: impl FnOnce(&DeploymentController)) {
    let stop = Stop::new();
    let mut server = devserver::serve("127.0.0.1:0", api, &stop).expect("a free port");
    let options = ClientOptions {
        qps: 0.0,
        ..ClientOptions::default()
    };
    let client = Client::new(&ClientConfig::plain(&server.url()), &options, &stop);
    test(&controller(&client));
    server.stop();
}

/// Rejects each request with the status that its path selects.
struct Rejects(fn(&str) -> Status);

impl Handler for Rejects {
    fn handle(&self, request: Request) -> Response {
        Response::status(&(self.0)(&request.path))
    }
}

/// `Retry-After` of an overloaded server: one far too long, and one that is no pause at all.
#[test]
fn a_retry_after_is_bounded_and_zero_is_a_back_off() {
    fn unavailable(seconds: u64) -> Status {
        let status = Status::new(503, "ServiceUnavailable", "later");
        status.or_retry_after(Some(seconds))
    }
    let state_after = |reject: fn(&str) -> Status| {
        let mut state = None;
        with_server(Arc::new(Rejects(reject)), |controller| {
            let d = Arc::new(deployment(&[]));
            controller.0.deployments.replace(vec![d], &[], &"1".into());
            let (queue, key) = (controller.queue(), ObjectKey::new("default", "web"));
            queue.add(key.clone());
            assert_eq!(queue.try_get(), Some(key.clone()));
            controller.process(&key);
            state = Some(queue.state_of(&key));
        });
        state.expect("the test ran")
    };
    let long = state_after(|_| unavailable(86_400));
    assert!(
        long.due_in
            .is_some_and(|due| due <= Duration::from_secs(90)),
        "{long:?}"
    );
    let zero = state_after(|_| unavailable(0));
    assert_eq!((zero.n_failures, zero.is_waiting), (1, false));
}

#[test]
fn the_first_failed_release_is_reported() {
    let reject = |path: &str| {
        if path.ends_with("web-1") {
            Status::new(403, "Forbidden", "no")
        } else {
            Status::new(409, "Conflict", "another version")
        }
    };
    with_server(Arc::new(Rejects(reject)), |controller| {
        let claims = Claims {
            released: vec![replica_set(1, 0, 0).into(), replica_set(2, 0, 0).into()],
            ..Claims::default()
        };
        let failed = controller.0.writer.claim(&deployment(&[]), claims);
        let error = failed.expect_err("both are rejected");
        assert!(!error.is_race(), "{error}");
    });
}

#[test]
fn an_old_revision_that_was_scaled_up_meanwhile_is_not_deleted() {
    let api = devserver::new_api();
    let labels = json!({"app": "web"});
    let object = json!({
        "metadata": {"name": "web-1"},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]},
        }},
    });
    let read = |object: serde_json::Value| {
        let read = ReplicaSet::from_json(object.to_string().as_bytes());
        Write::Delete(Arc::new(read.expect("a ReplicaSet")))
    };
    let stale = read(call(&*api, "POST", SETS, &object));
    let three = json!({"spec": {"replicas": 3}});
    let fresh = read(call(&*api, "PATCH", &format!("{SETS}/web-1"), &three));
    with_server(Arc::clone(&api), |controller| {
        let d = deployment(&[]);
        let rejected = controller.0.writer.execute(&d, &stale);
        assert!(rejected.is_err_and(|error| error.is_race()));
        assert_eq!(sets_of(&*api).len(), 1);
        assert!(controller.0.writer.execute(&d, &fresh).is_ok());
        assert_eq!(sets_of(&*api).len(), 0);
    });
}
