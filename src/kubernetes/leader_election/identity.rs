//! The identity of this process in leader election.

use crate::stdx::uuid::random_uuid;

/// Returns `<hostname>_<uuid>`, like kube-controller-manager (kubernetes
/// `cmd/kube-controller-manager/app/controllermanager.go:Run`). The host shows people where the
/// leader runs; the UUID distinguishes two processes of one host, including a restarted one.
pub fn identity() -> String {
    let host = nix::unistd::gethostname().ok();
    let host = host.and_then(|name| name.into_string().ok());
    let host = host.filter(|name| !name.is_empty());
    format!("{}_{}", host.as_deref().unwrap_or("unknown"), random_uuid())
}

#[cfg(test)]
mod tests {
    use super::identity;

    #[test]
    fn two_processes_have_different_identities() {
        let (ours, other) = (identity(), identity());
        assert_ne!(ours, other);
        let (host, uuid) = ours.rsplit_once('_').expect("two parts");
        assert!(!host.is_empty() && uuid.len() == 36, "{ours}");
    }
}
