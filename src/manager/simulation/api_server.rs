//! The model of the API servers: one store, as etcd, and two servers whose watch caches follow it
//! at their own pace. Pure: it answers requests at once, and `network` decides when they arrive.
//!
//! It knows what the daemon uses of pods, ReplicaSets, Leases and events, and rejects what the real
//! one rejects. Objects are JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::http::{Answer, Request};
use super::objects::{Change, Kind, NAMESPACE, Object, QUOTA};
use super::objects::{controller_of, labels_match, target};
use super::rejections::{namespace_terminating, not_found, rejection, too_large};

/// How many API servers there are.
pub(super) const N_SERVERS: usize = 2;

/// Time of day at the start.
pub(super) const START: Timestamp = Timestamp::constant(1_767_225_600, 0);

type Objects = BTreeMap<(Kind, String), Arc<Object>>;

/// A state of the store.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    objects: Objects,
    revision: u64,
}

/// One API server's watch cache.
#[derive(Clone, Debug, Default)]
pub(super) struct WatchCache {
    objects: Objects,
    /// How many changes of the log it has seen.
    n_seen: usize,
    pub(super) revision: u64,
}

/// What a watch asks for.
#[derive(Clone, Debug)]
pub(super) struct WatchRequest {
    pub(super) kind: Kind,
    pub(super) resource_version: Option<u64>,
    pub(super) sends_initial_events: bool,
    pub(super) timeout: Duration,
}

/// The store, and the servers' caches of it.
#[derive(Debug, Default)]
pub(super) struct ApiServer {
    objects: Objects,
    pub(super) revision: u64,
    pub(super) log: Vec<Change>,
    /// Watches from before this revision are rejected.
    pub(super) compacted: u64,
    pub(super) caches: [WatchCache; N_SERVERS],
    n_uids: u64,
    /// Maximum number of pods; more are rejected by a ResourceQuota.
    pub(super) quota: Option<usize>,
    /// The daemons may not read quotas, as with the stock role.
    pub(super) hides_quotas: bool,
    /// The namespace is being deleted: nothing can be created in it.
    pub(super) is_terminating: bool,
    /// Updates that changed nothing.
    pub(super) n_idle_updates: u64,
    /// The time of day, for timestamps.
    pub(super) now: String,
    seconds: Option<u64>,
}

impl ApiServer {
    /// Sets the time of day by the time since the start.
    pub(super) fn set_time(&mut self, elapsed: Duration) {
        if self.seconds != Some(elapsed.as_secs()) {
            self.seconds = Some(elapsed.as_secs());
            let at = START + Duration::from_secs(elapsed.as_secs());
            self.now = at.to_string();
        }
    }

    pub(super) fn get(&self, kind: Kind, name: &str) -> Option<&Arc<Object>> {
        self.objects.get(&(kind, name.to_owned()))
    }

    pub(super) fn all(&self, kind: Kind) -> impl Iterator<Item = &Arc<Object>> {
        of_kind(&self.objects, kind)
    }

    /// What a server's watch cache has of a kind, and its revision.
    pub(super) fn cached(&self, server: usize, kind: Kind) -> (Vec<Arc<Object>>, u64) {
        let cache = &self.caches[server];
        (
            of_kind(&cache.objects, kind).cloned().collect(),
            cache.revision,
        )
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            objects: self.objects.clone(),
            revision: self.revision,
        }
    }

    /// Returns to an earlier state, as etcd does when it is restored: later versions are lost,
    /// and the next writes get their numbers.
    pub(super) fn restore(&mut self, snapshot: Snapshot) {
        self.objects = snapshot.objects;
        self.revision = snapshot.revision;
        self.compacted = snapshot.revision;
        self.log.clear();
        for cache in &mut self.caches {
            *cache = WatchCache {
                objects: self.objects.clone(),
                n_seen: 0,
                revision: self.revision,
            };
        }
    }

    /// The servers forget older changes.
    pub(super) fn compact(&mut self) {
        self.compacted = self.revision;
    }

    /// Lets a server's cache see the changes up to `revision`; returns them.
    pub(super) fn advance(&mut self, server: usize, revision: u64) -> Vec<Change> {
        let cache = &mut self.caches[server];
        let unseen = &self.log[cache.n_seen..];
        let seen = unseen
            .iter()
            .take_while(|change| change.revision <= revision);
        let seen: Vec<Change> = seen.cloned().collect();
        cache.n_seen += seen.len();
        for change in &seen {
            let key = (change.object.kind, change.object.name.clone());
            if change.is_deletion {
                cache.objects.remove(&key);
            } else {
                cache.objects.insert(key, Arc::clone(&change.object));
            }
            cache.revision = change.revision;
        }
        seen
    }

    pub(super) fn new_uid(&mut self) -> String {
        self.n_uids += 1;
        format!("00000000-0000-4000-8000-{:012}", self.n_uids)
    }

    /// Stores an object under a new version.
    pub(super) fn put(&mut self, kind: Kind, mut value: Value) -> Arc<Object> {
        self.revision += 1;
        value["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let name = value["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let object = Arc::new(Object {
            kind,
            name: name.clone(),
            revision: self.revision,
            value,
        });
        let replaced = self.objects.insert((kind, name), Arc::clone(&object));
        self.log.push(Change {
            revision: self.revision,
            is_deletion: false,
            is_new: replaced.is_none(),
            object: Arc::clone(&object),
        });
        if kind == Kind::Pod {
            self.count_usage();
        }
        object
    }

    /// Creates an object that the API server completes.
    pub(super) fn create(&mut self, kind: Kind, mut value: Value) -> Arc<Object> {
        let metadata = &mut value["metadata"];
        metadata["namespace"] = json!(NAMESPACE);
        metadata["uid"] = json!(self.new_uid());
        metadata["creationTimestamp"] = json!(self.now);
        if kind == Kind::Pod {
            value["status"] = json!({"phase": "Pending"});
        }
        value["apiVersion"] = json!(kind.api_version());
        value["kind"] = json!(kind.name());
        self.put(kind, value)
    }

    /// Changes an object if it exists.
    pub(super) fn change(&mut self, kind: Kind, name: &str, change: impl FnOnce(&mut Value)) {
        if let Some(object) = self.get(kind, name) {
            let mut value = object.value.clone();
            change(&mut value);
            self.put(kind, value);
        }
    }

    /// Removes an object at once.
    pub(super) fn remove(&mut self, kind: Kind, name: &str) -> Option<Arc<Object>> {
        let removed = self.objects.remove(&(kind, name.to_owned()))?;
        self.revision += 1;
        let mut value = removed.value.clone();
        value["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let object = Arc::new(Object {
            kind,
            name: name.to_owned(),
            revision: self.revision,
            value,
        });
        self.log.push(Change {
            revision: self.revision,
            is_deletion: true,
            is_new: false,
            object: Arc::clone(&object),
        });
        if kind == Kind::Pod {
            self.count_usage();
        }
        Some(object)
    }

    /// Answers everything but a watch. `server` is the server that was asked.
    pub(super) fn answer(&mut self, server: usize, request: &Request) -> Answer {
        let Some((kind, name, subresource)) = target(&request.path) else {
            return rejection(
                404,
                "NotFound",
                "the server could not find the requested resource",
            );
        };
        if kind == Kind::Quota && self.hides_quotas {
            let message = "resourcequotas is forbidden: User cannot list resource";
            return rejection(403, "Forbidden", message);
        }
        match (request.method.as_str(), name) {
            ("GET", Some(name)) => match self.get(kind, name) {
                Some(object) => Answer::ok(&object.value),
                None => not_found(kind, name),
            },
            ("GET", None) => self.list(server, kind, request),
            ("POST", None) => self.post(kind, request),
            ("PUT", Some(name)) => self.replace(kind, name, subresource, request),
            ("PATCH", Some(name)) => self.patch(kind, name, request),
            ("DELETE", Some(name)) => self.delete(kind, name, request),
            _ => rejection(
                405,
                "MethodNotAllowed",
                "the server does not allow this method",
            ),
        }
    }

    fn list(&self, server: usize, kind: Kind, request: &Request) -> Answer {
        // A list with a version is served from the watch cache, any other from etcd.
        let wanted = request.query("resourceVersion").unwrap_or_default();
        let cache = &self.caches[server];
        let (objects, revision) = match wanted.parse::<u64>() {
            Ok(wanted) if wanted > cache.revision => return too_large(wanted, cache.revision),
            Ok(_) => (&cache.objects, cache.revision),
            Err(_) => (&self.objects, self.revision),
        };
        let name = request.query("fieldSelector");
        let name =
            name.and_then(|selector| selector.strip_prefix("metadata.name=").map(str::to_owned));
        let labels = request.query("labelSelector").unwrap_or_default();
        let items = of_kind(objects, kind).filter(|object| {
            name.as_ref().is_none_or(|name| *name == object.name)
                && labels_match(&object.value, &labels)
        });
        let items: Vec<&Value> = items.map(|object| &object.value).collect();
        Answer::ok(&json!({
            "apiVersion": kind.api_version(),
            "kind": format!("{}List", kind.name()),
            "metadata": {"resourceVersion": revision.to_string()},
            "items": items,
        }))
    }

    fn post(&mut self, kind: Kind, request: &Request) -> Answer {
        let Ok(value) = serde_json::from_slice::<Value>(&request.body) else {
            return rejection(400, "BadRequest", "the body is not JSON");
        };
        let name = value["metadata"]["name"].as_str().unwrap_or_default();
        if self.get(kind, name).is_some() {
            let message = format!("{} \"{name}\" already exists", kind.resource());
            return rejection(409, "AlreadyExists", &message);
        }
        if self.is_terminating && kind != Kind::Lease {
            return namespace_terminating(kind, name);
        }
        let is_full = self.quota.is_some_and(|it| self.n_active_pods() >= it);
        if kind == Kind::Pod && is_full {
            let message = format!("pods \"{name}\" is forbidden: exceeded quota: {QUOTA}");
            return rejection(403, "Forbidden", &message);
        }
        let mut answer = Answer::ok(&self.create(kind, value).value);
        answer.code = 201;
        answer
    }

    fn replace(
        &mut self,
        kind: Kind,
        name: &str,
        subresource: Option<&str>,
        request: &Request,
    ) -> Answer {
        let Ok(sent) = serde_json::from_slice::<Value>(&request.body) else {
            return rejection(400, "BadRequest", "the body is not JSON");
        };
        let Some(stored) = self.get(kind, name).map(Arc::clone) else {
            return not_found(kind, name);
        };
        let same = |field: &str| sent["metadata"][field] == stored.value["metadata"][field];
        if !same("resourceVersion") || !same("uid") {
            let message = format!(
                "Operation cannot be fulfilled on {} \"{name}\": the object has been modified; \
                 please apply your changes to the latest version and try again",
                kind.resource()
            );
            return rejection(409, "Conflict", &message);
        }
        let mut value = stored.value.clone();
        if subresource == Some("status") {
            value["status"] = sent["status"].clone();
        } else {
            value = sent;
        }
        if value == stored.value {
            self.n_idle_updates += 1;
            return Answer::ok(&value);
        }
        Answer::ok(&self.put(kind, value).value)
    }

    /// The strategic merge patches of an adoption and a release; merge patches of events.
    fn patch(&mut self, kind: Kind, name: &str, request: &Request) -> Answer {
        let Ok(patch) = serde_json::from_slice::<Value>(&request.body) else {
            return rejection(400, "BadRequest", "the body is not JSON");
        };
        let Some(stored) = self.get(kind, name).map(Arc::clone) else {
            return not_found(kind, name);
        };
        let mut value = stored.value.clone();
        if kind == Kind::Event {
            for (field, new) in patch.as_object().into_iter().flatten() {
                value[field] = new.clone();
            }
            return Answer::ok(&self.put(kind, value).value);
        }
        if patch["metadata"]["uid"] != value["metadata"]["uid"] {
            return rejection(422, "Invalid", "metadata.uid: field is immutable");
        }
        let owners = value["metadata"]["ownerReferences"].as_array().cloned();
        let mut owners = owners.unwrap_or_default();
        for owner in patch["metadata"]["ownerReferences"]
            .as_array()
            .into_iter()
            .flatten()
        {
            owners.retain(|known| known["uid"] != owner["uid"]);
            if owner["$patch"] != "delete" {
                owners.push(owner.clone());
            }
        }
        if owners
            .iter()
            .filter(|owner| owner["controller"] == true)
            .count()
            > 1
        {
            let message = "only one reference can have Controller set to true";
            return rejection(422, "Invalid", message);
        }
        value["metadata"]["ownerReferences"] = json!(owners);
        Answer::ok(&self.put(kind, value).value)
    }

    fn delete(&mut self, kind: Kind, name: &str, request: &Request) -> Answer {
        let options: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let Some(stored) = self.get(kind, name).map(Arc::clone) else {
            return not_found(kind, name);
        };
        for field in ["uid", "resourceVersion"] {
            let wanted = &options["preconditions"][field];
            if !wanted.is_null() && *wanted != stored.value["metadata"][field] {
                let message = format!("the {field} in the precondition ({wanted}) does not match");
                return rejection(409, "Conflict", &message);
            }
        }
        Answer::ok(&self.delete_pod(&stored).value)
    }

    /// Deletes a pod: one on a node terminates until its kubelet is done, others vanish at once
    /// unless a finalizer holds them.
    pub(super) fn delete_pod(&mut self, pod: &Arc<Object>) -> Arc<Object> {
        let (metadata, name) = (&pod.value["metadata"], pod.name.clone());
        let is_held = !pod.value["spec"]["nodeName"].is_null()
            || metadata["finalizers"]
                .as_array()
                .is_some_and(|it| !it.is_empty());
        if !is_held {
            self.remove(Kind::Pod, &name);
        } else if metadata["deletionTimestamp"].is_null() {
            let now = self.now.clone();
            self.change(Kind::Pod, &name, |pod| {
                pod["metadata"]["deletionTimestamp"] = json!(now);
                pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
            });
        }
        Arc::clone(pod)
    }

    /// The changes with which a watch begins, and the revision from which it continues; or a
    /// rejection.
    pub(super) fn open_watch(
        &self,
        server: usize,
        watch: &WatchRequest,
    ) -> Result<(Vec<Change>, u64), Answer> {
        let cache = &self.caches[server];
        let from = watch.resource_version.unwrap_or(0);
        if from > cache.revision && watch.sends_initial_events {
            return Err(too_large(from, cache.revision));
        }
        if watch.sends_initial_events || from == 0 {
            let added = |object: &Arc<Object>| Change {
                revision: object.revision,
                is_deletion: false,
                is_new: true,
                object: Arc::clone(object),
            };
            return Ok((
                of_kind(&cache.objects, watch.kind).map(added).collect(),
                cache.revision,
            ));
        }
        if from < self.compacted {
            let message = format!("too old resource version: {from} ({})", self.compacted);
            return Err(rejection(410, "Expired", &message));
        }
        let seen = self.log[..cache.n_seen].iter();
        let missed =
            seen.filter(|change| change.revision > from && change.object.kind == watch.kind);
        Ok((missed.cloned().collect(), cache.revision.max(from)))
    }
}

impl WatchRequest {
    /// The watch that `request` asks for, if it is one.
    pub(super) fn of(request: &Request) -> Option<Self> {
        if request.method != "GET" || request.query("watch")? != "true" {
            return None;
        }
        let (kind, ..) = target(&request.path)?;
        let seconds = request
            .query("timeoutSeconds")
            .and_then(|it| it.parse().ok());
        Some(Self {
            kind,
            resource_version: request
                .query("resourceVersion")
                .and_then(|it| it.parse().ok()),
            sends_initial_events: request.query("sendInitialEvents").is_some(),
            timeout: Duration::from_secs(seconds.unwrap_or(300)),
        })
    }
}

fn of_kind(objects: &Objects, kind: Kind) -> impl Iterator<Item = &Arc<Object>> {
    let all = objects.range((kind, String::new())..);
    all.take_while(move |((of, _), _)| *of == kind)
        .map(|(_, object)| object)
}

/// The names of pods whose owner is gone.
pub(super) fn orphaned_by_deletion(server: &ApiServer) -> Vec<String> {
    let uid = |rs: &Arc<Object>| {
        rs.value["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let owners: BTreeSet<String> = server.all(Kind::ReplicaSet).map(uid).collect();
    let pods = server.all(Kind::Pod);
    let orphaned =
        pods.filter(|pod| controller_of(&pod.value).is_some_and(|owner| !owners.contains(owner)));
    orphaned.map(|pod| pod.name.clone()).collect()
}
