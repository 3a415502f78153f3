//! Nodes: what the API server always sends of them.

use serde_json::{Value, json};

use super::{map_of, set_default};

/// Sets the members of a status that are no pointers in the API server's own types.
///
/// DIFFERS: a new node is not tainted `not-ready`, since nobody here would take that off.
pub(super) fn set_defaults(node: &mut Value) {
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
