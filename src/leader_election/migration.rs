//! The leader migration configuration: two programs share the controllers of a third, each
//! controller under a Lease that both programs know (controller-manager `pkg/leadermigration`). The
//! main thread reads it at startup.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::stdx::bounded_file;

/// The component name of this program in a migration configuration.
pub const COMPONENT: &str = "replicaset-controller";

/// Any component may run the controller.
const ANY_COMPONENT: &str = "*";

/// API group of the configuration; all its versions have the same fields.
const GROUP: &str = "controllermanager.config.k8s.io";

/// `LeaderMigrationConfiguration` of `controllermanager.config.k8s.io`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LeaderMigrationConfiguration {
    api_version: String,
    kind: String,
    /// Name of the shared lease.
    #[serde(default)]
    pub leader_name: String,
    /// Only `leases` is valid.
    #[serde(default)]
    resource_lock: Option<String>,
    /// The controllers that run under the shared lease.
    #[serde(default)]
    pub controller_leaders: Vec<ControllerLeader>,
}

/// A controller that runs under the shared lease.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ControllerLeader {
    /// Name of the controller, such as `replicaset-controller`.
    #[serde(default)]
    pub name: String,
    /// The component that may run the controller, or `*`.
    #[serde(default)]
    pub component: String,
}

/// Why the daemon cannot use a migration configuration.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// The file cannot be read.
    #[error("cannot read the leader migration configuration {0}: {1}")]
    Read(String, std::io::Error),
    /// The file is not a valid migration configuration.
    #[error("the leader migration configuration {0} is not valid: {1}")]
    Invalid(String, String),
    /// The configuration gives the controller to another component.
    #[error(
        "the leader migration configuration gives {controller} to {component}, so there is nothing \
         to run here; give it to \"*\" or to \"replicaset-controller\""
    )]
    Unowned {
        /// The controller.
        controller: String,
        /// The component that owns the controller.
        component: String,
    },
    /// The controllers would need two leases, and one daemon holds one.
    #[error(
        "the leader migration configuration has {migrated} under its lease but not {other}, and \
         one daemon holds one lease: name both, or run a daemon for each (--controllers)"
    )]
    Split {
        /// A controller that the configuration names.
        migrated: String,
        /// A controller that it does not name.
        other: String,
    },
}

impl LeaderMigrationConfiguration {
    /// Reads a file.
    ///
    /// # Errors
    /// [`MigrationError::Read`], [`MigrationError::Invalid`].
    pub fn read(path: &Path) -> Result<Self, MigrationError> {
        let name = path.display().to_string();
        match bounded_file::read_text(path) {
            Ok(text) => Self::parse(&text).map_err(|why| MigrationError::Invalid(name, why)),
            Err(error) => Err(MigrationError::Read(name, error)),
        }
    }

    /// Parses YAML and reports all problems at once.
    ///
    /// # Errors
    /// The problems.
    pub fn parse(text: &str) -> Result<Self, String> {
        let read: Self = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        let mut problems = Vec::new();
        let group = read.api_version.split('/').next().unwrap_or_default();
        if group != GROUP || read.kind != "LeaderMigrationConfiguration" {
            problems.push(format!(
                "{} {} is not a LeaderMigrationConfiguration of {GROUP}",
                read.api_version, read.kind
            ));
        }
        if read.leader_name.is_empty() {
            problems.push("leaderName must be set".to_owned());
        }
        if read
            .resource_lock
            .as_deref()
            .is_some_and(|lock| lock != "leases")
        {
            problems.push("resourceLock must be \"leases\"".to_owned());
        }
        for (index, leader) in read.controller_leaders.iter().enumerate() {
            for (field, value) in [("name", &leader.name), ("component", &leader.component)] {
                if value.is_empty() {
                    problems.push(format!("controllerLeaders[{index}].{field} must be set"));
                }
            }
        }
        if problems.is_empty() {
            Ok(read)
        } else {
            Err(problems.join("; "))
        }
    }

    /// The name of the lease for `controllers`; `None` if the configuration names none of them, so
    /// that the daemon's own lease applies.
    ///
    /// # Errors
    /// [`MigrationError::Unowned`] or [`MigrationError::Split`].
    pub fn lease_for(&self, controllers: &[&str]) -> Result<Option<&str>, MigrationError> {
        let leaders = self.controller_leaders.iter();
        // As upstream, the last of two entries for one controller counts.
        let leaders: BTreeMap<&str, &str> = leaders
            .map(|leader| (&*leader.name, &*leader.component))
            .collect();
        let (migrated, others): (Vec<&str>, Vec<&str>) = controllers
            .iter()
            .partition(|name| leaders.contains_key(**name));
        for controller in &migrated {
            let component = leaders[controller];
            if component != ANY_COMPONENT && component != COMPONENT {
                return Err(MigrationError::Unowned {
                    controller: (*controller).to_owned(),
                    component: component.to_owned(),
                });
            }
        }
        match (migrated.first(), others.first()) {
            (None, _) => Ok(None),
            (Some(_), None) => Ok(Some(&self.leader_name)),
            (Some(migrated), Some(other)) => Err(MigrationError::Split {
                migrated: (*migrated).to_owned(),
                other: (*other).to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LeaderMigrationConfiguration;

    const RS: &str = "replicaset-controller";
    const RC: &str = "replicationcontroller-controller";

    fn configuration(leaders: &str) -> LeaderMigrationConfiguration {
        let text = format!(
            "apiVersion: controllermanager.config.k8s.io/v1\n\
             kind: LeaderMigrationConfiguration\n\
             leaderName: shared\n\
             controllerLeaders:\n{leaders}"
        );
        LeaderMigrationConfiguration::parse(&text).expect("a configuration")
    }

    fn leader(name: &str, component: &str) -> String {
        format!("- {{name: {name}, component: \"{component}\"}}\n")
    }

    #[test]
    fn a_controller_that_is_named_runs_under_the_shared_lease() {
        for component in ["*", "replicaset-controller"] {
            let both = configuration(&[leader(RS, component), leader(RC, component)].concat());
            assert_eq!(both.lease_for(&[RS, RC]).expect("ours"), Some("shared"));
            assert_eq!(both.lease_for(&[RS]).expect("ours"), Some("shared"));
            let one = configuration(&leader(RS, component));
            assert_eq!(one.lease_for(&[RC]).expect("not named"), None);
            let error = one.lease_for(&[RS, RC]).expect_err("two leases");
            assert!(
                error.to_string().contains("one daemon holds one lease"),
                "{error}"
            );
        }
        let theirs = configuration(&leader(RS, "kube-controller-manager"));
        let error = theirs.lease_for(&[RS]).expect_err("theirs");
        assert!(
            error
                .to_string()
                .contains("gives replicaset-controller to kube-"),
            "{error}"
        );
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let text = "apiVersion: v1\nkind: Pod\nresourceLock: endpoints\n\
                    controllerLeaders: [{name: a}]\n";
        let error = LeaderMigrationConfiguration::parse(text).expect_err("wrong");
        for part in [
            "v1 Pod",
            "leaderName",
            "resourceLock",
            "controllerLeaders[0].component",
        ] {
            assert!(error.contains(part), "{part} in {error}");
        }
        let rest = "leaderName: shared\ncontrollerLeaders: []\n";
        for kind in [
            "apiVersion: apps/v1\nkind: LeaderMigrationConfiguration\n",
            "apiVersion: controllermanager.config.k8s.io/v1\nkind: Configuration\n",
        ] {
            let text = format!("{kind}{rest}");
            LeaderMigrationConfiguration::parse(&text).expect_err("another kind or group");
        }
        for text in ["", "kind: [", "apiVersion: a/v1\nkind: b\nfoo: bar\n"] {
            LeaderMigrationConfiguration::parse(text).expect_err(text);
        }
    }
}
