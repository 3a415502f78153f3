//! Nodes: the fields that the API server always sends.

use serde_json::{Value, json};

use crate::objects::{map_of, set_default};

/// Sets the status fields that are not pointers in the API server's types.
///
/// DIFFERS: a new node gets no taint `not-ready`, because no controller here would remove it.
pub(crate) fn set_defaults(node: &mut Value) {
    map_of(node, "spec");
    let status = map_of(node, "status");
    set_default(
        status,
        "daemonEndpoints",
        json!({"kubeletEndpoint": {"Port": 0}}),
    );
    let names = [
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ];
    let info = status.entry("nodeInfo").or_insert_with(|| json!({}));
    if let Some(info) = info.as_object_mut() {
        for name in names {
            set_default(info, name, "");
        }
    }
}
