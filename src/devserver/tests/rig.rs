//! A server on a free port and a client without any of the project's own client code.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::stdx::stop::Stop;
use crate::{DevServer, DevServerOptions, KubeletOptions};

/// A limit that only a hang meets.
pub(super) const LONG: Duration = Duration::from_mins(10);

/// Two nodes on which pods start and end at once.
pub(super) fn quick_kubelet() -> KubeletOptions {
    KubeletOptions {
        n_nodes: 2,
        ready_after: Duration::from_millis(20),
        terminate_after: Duration::from_millis(20),
        schedules: true,
    }
}

pub(super) struct Rig {
    pub(super) server: DevServer,
    agent: ureq::Agent,
    /// INVARIANT: given only if a server thread panics.
    stop: Stop,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(&DevServerOptions::default())
    }

    pub(super) fn with(options: &DevServerOptions) -> Self {
        let stop = Stop::new();
        let server = DevServer::start(options, &stop).expect("a free port");
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(LONG));
        Self {
            server,
            agent: config.build().new_agent(),
            stop,
        }
    }

    /// Sends a request with a body of this media type; an empty text sends no body.
    pub(super) fn send_as(
        &self,
        content_type: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> (u16, Value) {
        let (code, text) = self.send_text(content_type, method, path, body);
        let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        (code, value)
    }

    /// The warnings in the response to a JSON object.
    pub(super) fn warnings(&self, method: &str, path: &str, object: &Value) -> Vec<String> {
        let request = http::Request::builder()
            .method(method)
            .uri(self.server.url() + path)
            .header("content-type", "application/json")
            .body(object.to_string());
        let response = self.agent.run(request.expect("a request"));
        let response = response.expect("the server responds");
        let warnings = response.headers().get_all("warning").iter();
        warnings
            .map(|warning| warning.to_str().expect("a text").to_owned())
            .collect()
    }

    pub(super) fn send_text(
        &self,
        content_type: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> (u16, String) {
        let request = http::Request::builder()
            .method(method)
            .uri(self.server.url() + path)
            .header("content-type", content_type)
            .body(body.to_owned())
            .expect("a good request");
        let request = self.agent.configure_request(request);
        let request = request.allow_non_standard_methods(true).build();
        let response = self.agent.run(request);
        let mut response = response.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let code = response.status().as_u16();
        let text = response
            .body_mut()
            .with_config()
            .limit(1 << 30)
            .read_to_string();
        (code, text.expect("a whole response"))
    }

    pub(super) fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        self.send_as("application/json", method, path, &body.to_string())
    }

    pub(super) fn get(&self, path: &str) -> (u16, Value) {
        self.send_as("application/json", "GET", path, "")
    }

    /// The response to a client with this `Accept` header.
    #[track_caller]
    pub(super) fn get_as(&self, accept: &str, path: &str) -> Value {
        let url = self.server.url() + path;
        let response = self.agent.get(url).header("accept", accept).call();
        let mut response = response.expect("a response");
        let text = response
            .body_mut()
            .read_to_string()
            .expect("a whole response");
        serde_json::from_str(&text).expect("JSON")
    }

    /// The table that kubectl prints.
    #[track_caller]
    pub(super) fn table(&self, path: &str) -> Value {
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        let table = self.get_as(accept, path);
        assert_eq!(table["kind"], json!("Table"));
        table
    }

    #[track_caller]
    pub(super) fn ok(&self, method: &str, path: &str, body: &Value) -> Value {
        let (code, response) = self.send(method, path, body);
        assert!(code < 300, "{method} {path}: {code} {response}");
        response
    }

    /// Sends a strategic merge patch.
    pub(super) fn patch(&self, path: &str, body: &Value) -> (u16, Value) {
        let content_type = "application/strategic-merge-patch+json";
        self.send_as(content_type, "PATCH", path, &body.to_string())
    }

    pub(super) fn delete(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send("DELETE", path, body)
    }

    /// Waits until `is_collected` holds.
    #[track_caller]
    pub(super) fn collected(&self, is_collected: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !is_collected(self) {
            assert!(began.elapsed() < LONG, "not collected");
            self.stop.wait_timeout(Duration::from_millis(5));
        }
    }

    #[track_caller]
    pub(super) fn create_pod(&self, name: &str) -> Value {
        self.ok("POST", PODS, &pod(name))
    }

    /// A pod on a node, so its deletion has a grace period.
    #[track_caller]
    pub(super) fn create_scheduled_pod(&self, name: &str) -> Value {
        let mut pod = pod(name);
        pod["spec"]["nodeName"] = json!("node-a");
        self.ok("POST", PODS, &pod)
    }

    #[track_caller]
    pub(super) fn create_replica_set(&self, name: &str, replicas: i64) -> Value {
        self.ok("POST", REPLICA_SETS, &replica_set(name, replicas))
    }

    #[track_caller]
    pub(super) fn watch(&self, path: &str, query: &str) -> Frames {
        self.watch_as("application/json", path, query)
    }

    #[track_caller]
    pub(super) fn watch_as(&self, accept: &str, path: &str, query: &str) -> Frames {
        let url = format!("{}{path}?watch=1&{query}", self.server.url());
        let response = self.agent.get(url).header("accept", accept).call();
        let response = response.expect("a watch");
        assert_eq!(response.status(), 200);
        let reader = response
            .into_body()
            .into_with_config()
            .limit(1 << 30)
            .reader();
        Frames(BufReader::new(Box::new(reader)))
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.server.stop();
        if !std::thread::panicking() {
            assert_eq!(self.stop.cause(), None);
        }
    }
}

/// The frames of a watch.
pub(super) struct Frames(BufReader<Box<dyn std::io::Read + Send>>);

impl Frames {
    /// The next frame; `None` after the watch's normal end.
    #[track_caller]
    pub(super) fn next(&mut self) -> Option<Value> {
        self.try_next().expect("a watch that is not cut")
    }

    pub(super) fn try_next(&mut self) -> std::io::Result<Option<Value>> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&line).expect("a frame per line")))
    }

    /// The next frame as `ADDED name version`.
    #[track_caller]
    pub(super) fn brief(&mut self) -> String {
        let Some(frame) = self.next() else {
            return "end".to_owned();
        };
        let metadata = &frame["object"]["metadata"];
        let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let (kind, name) = (word(&frame["type"]), word(&metadata["name"]));
        format!("{kind} {name} {}", word(&metadata["resourceVersion"]))
    }
}

pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(super) const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

pub(super) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "example.invalid/c:1"}]},
    })
}

pub(super) fn replica_set(name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "example.invalid/c:1"}]},
            },
        },
    })
}

pub(super) fn owner(name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// The UID of an object in a response.
pub(super) fn uid(object: &Value) -> String {
    object["metadata"]["uid"]
        .as_str()
        .expect("a uid")
        .to_owned()
}

/// The resource version of an object or list in a response.
pub(super) fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|text| text.parse().ok()).expect("a version")
}

/// The names of a list's objects.
pub(super) fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("a list");
    let name = |item: &'static str, value: &Value| value["metadata"][item].is_string();
    assert!(items.iter().all(|value| name("name", value)));
    items
        .iter()
        .filter_map(|value| value["metadata"]["name"].as_str())
        .collect()
}

/// Checks an error's code, reason and message.
#[track_caller]
pub(super) fn check_error(response: &(u16, Value), code: u16, reason: &str, message: &str) {
    let (found, status) = response;
    assert_eq!(
        (*found, &status["reason"], &status["message"]),
        (code, &json!(reason), &json!(message)),
    );
    assert_eq!(status["kind"], json!("Status"));
    assert_eq!(status["code"], json!(code));
}
