//! Workloads of the API group `scheduling.k8s.io`. From Kubernetes 1.38 on, upstream's ReplicaSet
//! controller creates a PodGroup for a ReplicaSet whose Deployment owns a Workload (KEP-6276). This
//! daemon does not, and reports the Workloads that ask for gang scheduling.

use parking_lot::Mutex;
use serde_json::Value;

use crate::api::{Status, Uid};
use crate::client::{Client, ClientError, Request};

const GROUP: &str = "/apis/scheduling.k8s.io";

/// Versions of the group that are looked at.
const VERSIONS_MAX: usize = 8;

/// Where the API server serves Workloads, if it does. The thread `self-check` looks for them, and
/// the workers read the result.
#[derive(Debug, Default)]
pub struct Workloads(Mutex<Option<String>>);

impl Workloads {
    /// The path of the group's version that has Workloads; `None` if they are not served.
    pub fn served(&self) -> Option<String> {
        self.0.lock().clone()
    }

    /// Looks for Workloads in the API server's discovery. Blocks for a request, and one more for
    /// each version of the group.
    pub fn discover(&self, client: &Client) -> Result<(), ClientError> {
        let mut served = None;
        let group = get(client, GROUP)?;
        let names = items(&group["versions"]).filter_map(|it| it["version"].as_str());
        // They become paths and requests, so not just anything is believed.
        let names = names.filter(|it| it.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        for name in names.take(VERSIONS_MAX) {
            let path = format!("{GROUP}/{name}");
            let resources = get(client, &path)?;
            if items(&resources["resources"]).any(|it| it["name"] == "workloads") {
                served = Some(path);
                break;
            }
        }
        *self.0.lock() = served;
        Ok(())
    }
}

/// The object at `path`; null if the API server has none.
fn get(client: &Client, path: &str) -> Result<Value, ClientError> {
    match client.send_unless_stopped(&Request::get(path)) {
        Ok(response) => Ok(serde_json::from_slice(&response.body)?),
        Err(error) if error.status().is_some_and(Status::is_not_found) => Ok(Value::Null),
        Err(error) => Err(error),
    }
}

/// The name of this Workload if `owner` owns it and if it asks for gang scheduling.
pub(super) fn gang_of(workload: &str, owner: &Uid) -> Result<Option<String>, serde_json::Error> {
    let (it, owner): (Value, _) = (serde_json::from_str(workload)?, owner.to_string());
    let is_its = items(&it["metadata"]["ownerReferences"]).any(|it| it["uid"] == owner);
    let mut groups = items(&it["spec"]["podGroupTemplates"]);
    let is_gang = groups.any(|it| !it["schedulingPolicy"]["gang"].is_null());
    let name = it["metadata"]["name"].as_str();
    Ok(name.filter(|_| is_its && is_gang).map(str::to_owned))
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::gang_of;

    #[test]
    fn only_an_owned_workload_with_a_gang_counts() {
        let workload = |name, uid, policy| {
            json!({
                "metadata": {"name": name, "ownerReferences": [{"uid": uid}]},
                "spec": {"podGroupTemplates": [{"name": "pods", "schedulingPolicy": policy}]},
            })
        };
        let (gang, basic) = (json!({"gang": {"minCount": 3}}), json!({"basic": {}}));
        let found = |workload: Value| gang_of(&workload.to_string(), &"1".into()).expect("JSON");
        assert_eq!(found(json!({"metadata": {"name": "a"}, "spec": {}})), None);
        assert_eq!(found(json!({"metadata": {"name": "a"}})), None);
        assert_eq!(found(workload("a", "2", gang.clone())), None);
        assert_eq!(found(workload("b", "1", basic)), None);
        assert_eq!(found(workload("c", "1", gang)).as_deref(), Some("c"));
    }
}
