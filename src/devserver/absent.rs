//! Errors for what this server does not have. They say why, and what it has instead, for kubectl
//! shows their text.
//!
//! DIFFERS: kube-apiserver answers an unknown group with a text page, and an unknown resource with
//! "the server could not find the requested resource".

use crate::discovery;
use crate::exchange::Target;
use crate::resource::Resource;
use crate::status_error::StatusError;

/// The error for a resource that is not among `all`.
pub(crate) fn resource(target: &Target, all: &[Resource]) -> StatusError {
    let Target { group, version, .. } = target;
    let is_of_group = |resource: &&Resource| resource.group() == group;
    let of_group: Vec<&Resource> = all.iter().filter(is_of_group).collect();
    if of_group.is_empty() {
        return self::group(group, all);
    }
    let of_version = of_group.iter().filter(|known| known.version() == version);
    let known: Vec<&str> = of_version.map(|known| known.plural()).collect();
    let group_version = match group.as_str() {
        "" => version.clone(),
        group => format!("{group}/{version}"),
    };
    if known.is_empty() {
        let version = of_group[0].api_version();
        return StatusError::absent(format!(
            "the dev server does not serve {group_version}, but {version}"
        ));
    }
    StatusError::absent(format!(
        "the dev server has no {} in {group_version}; it has {}",
        target.resource,
        known.join(", ")
    ))
}

/// The error for a group without resources.
pub(crate) fn group(name: &str, all: &[Resource]) -> StatusError {
    let groups = discovery::groups(all).join(", ");
    StatusError::absent(format!(
        "the dev server has no group {name}; it has the core group, {groups}, and those of the \
         CustomResourceDefinitions that it is given"
    ))
}

/// The error for a path of the API that names no resource.
pub(crate) fn path(path: &str, all: &[Resource]) -> StatusError {
    let mut segments = path.trim_matches('/').split('/');
    match (segments.next(), segments.next()) {
        (Some("apis"), Some(name)) if !discovery::groups(all).contains(&name) => group(name, all),
        _ => StatusError::absent(format!("the dev server has nothing at {path}")),
    }
}

/// The error for a subresource that `resource` does not have.
pub(crate) fn subresource(resource: Resource, name: &str) -> StatusError {
    let lack = match (resource, name) {
        (Resource::Pods, "log") => "there are no logs",
        (Resource::Pods, "exec") => "no command can run in one",
        (Resource::Pods, "attach") => "there is nothing to attach to",
        (Resource::Pods, "portforward" | "proxy") => "no port is open",
        _ => {
            let plural = resource.plural();
            return StatusError::absent(match resource.subresources() {
                [] => format!("the dev server has no subresources of {plural}"),
                known => format!(
                    "the dev server has no {plural}/{name}; the subresources of {plural} are {}",
                    known.join(", ")
                ),
            });
        }
    };
    StatusError::not_simulated(format!(
        "the dev server simulates pods, without containers: {lack}"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::to_value;

    use super::{Resource, StatusError, Target, path, resource, subresource};

    #[track_caller]
    fn check(error: &StatusError, expected: &str) {
        let status = to_value(error).expect("a status");
        let message = status["message"].as_str().unwrap_or_default();
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn errors_say_what_there_is_instead() {
        let all: Vec<Resource> = Resource::KNOWN.to_vec();
        let of = |path: &str| resource(&Target::parse(path).expect("a resource"), &all);
        check(
            &of("/apis/example.com/v1/widgets"),
            "no group example.com; it has the core group, apps, coordination.k8s.io, ",
        );
        check(&of("/apis/apps/v2/replicasets"), "apps/v2, but apps/v1");
        check(
            &of("/apis/apps/v1/foos"),
            "no foos in apps/v1; it has replicasets",
        );
        check(&path("/apis/example.com", &all), "no group example.com; ");
        check(&path("/api/v1/a/b/c/d/e", &all), "nothing at /api/v1/a/b");
        check(
            &subresource(Resource::Nodes, "proxy"),
            "no nodes/proxy; the subresources of nodes are status",
        );
        check(&subresource(Resource::Pods, "log"), "there are no logs");
    }
}
