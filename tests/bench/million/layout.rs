//! Which objects there are: everything about each follows from its number.

use crate::sample::Texts;

/// Pods of each current ReplicaSet.
pub(crate) const REPLICAS: usize = 20;

/// The pod template hashes of each Deployment's two ReplicaSets.
pub(crate) const CURRENT: &str = "5d59d67564";
pub(crate) const OLD: &str = "6f7b8c9d4e";

const NAMESPACES: usize = 500;
const NODES: usize = 5000;

/// Pods that are missing at the start, at most: one of each of as many ReplicaSets.
const MISSING_MAX: usize = 100;

/// The alphabet of generated names.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// This many Deployments, each with a current ReplicaSet and an old one at zero. The old ones
/// follow the current ones in the numbering.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) n_current: usize,
}

impl Layout {
    pub(crate) fn n_sets(self) -> usize {
        2 * self.n_current
    }

    /// The number of pods, with those that are missing.
    pub(crate) fn n_pods(self) -> usize {
        REPLICAS * self.n_current
    }

    pub(crate) fn namespaces(self) -> impl Iterator<Item = String> {
        (0..NAMESPACES.min(self.n_current)).map(namespace)
    }

    pub(crate) fn is_old(self, set: usize) -> bool {
        set >= self.n_current
    }

    /// True if the daemon has to create this pod.
    pub(crate) fn is_missing(self, pod: usize) -> bool {
        let every = (self.n_current / MISSING_MAX).max(1);
        self.n_current > 1
            && pod % REPLICAS == REPLICAS - 1
            && (pod / REPLICAS).is_multiple_of(every)
    }

    pub(crate) fn n_missing(self) -> usize {
        (0..self.n_pods())
            .filter(|pod| self.is_missing(*pod))
            .count()
    }

    pub(crate) fn set(self, set: usize, version: u64) -> Texts {
        let deployment = set % self.n_current;
        [
            namespace(deployment),
            format!("web-{deployment:05}"),
            uid(1 + usize::from(self.is_old(set)), deployment),
            uid(3, deployment),
            version.to_string(),
            String::new(),
            String::new(),
        ]
    }

    /// The name of a ReplicaSet.
    pub(crate) fn set_name(self, set: usize) -> String {
        let hash = if self.is_old(set) { OLD } else { CURRENT };
        format!("web-{:05}-{hash}", set % self.n_current)
    }

    /// The number of the ReplicaSet whose name this one begins with.
    pub(crate) fn set_named(self, name: &str) -> Option<usize> {
        let (deployment, hash) = name.strip_prefix("web-")?.split_once('-')?;
        let deployment: usize = deployment.parse().ok()?;
        let is_old = hash.starts_with(OLD);
        (deployment < self.n_current).then_some(deployment + usize::from(is_old) * self.n_current)
    }

    pub(crate) fn set_path(self, set: usize) -> String {
        let namespace = namespace(set % self.n_current);
        let name = self.set_name(set);
        format!("/apis/apps/v1/namespaces/{namespace}/replicasets/{name}")
    }
}

pub(crate) fn path_of_pod(pod: usize) -> String {
    let [namespace, deployment, _, _, _, suffix, _] = texts_of_pod(pod, 0);
    format!("/api/v1/namespaces/{namespace}/pods/{deployment}-{CURRENT}-{suffix}")
}

pub(crate) fn texts_of_pod(pod: usize, version: u64) -> Texts {
    let set = pod / REPLICAS;
    let digit = |place| char::from(ALPHABET[pod / 27_usize.pow(place) % 27]);
    [
        namespace(set),
        format!("web-{set:05}"),
        uid(4, pod),
        uid(1, set),
        version.to_string(),
        (0..5).rev().map(digit).collect(),
        format!("node-{:04}", pod % NODES),
    ]
}

fn namespace(deployment: usize) -> String {
    format!("team-{:03}", deployment % NAMESPACES)
}

fn uid(kind: usize, number: usize) -> String {
    format!("{kind:08x}-5b1c-4e2d-8f3a-{number:012x}")
}
