//! The identity of this process in leader election.

/// Returns `<hostname>_<uuid>`, like kube-controller-manager (kubernetes
/// `cmd/kube-controller-manager/app/controllermanager.go:Run`). The host shows people where the
/// leader runs; the UUID distinguishes two processes of one host, including a restarted one.
pub fn identity() -> String {
    let host = nix::unistd::gethostname().ok();
    let host = host.and_then(|name| name.into_string().ok());
    let host = host.filter(|name| !name.is_empty());
    format!(
        "{}_{}",
        host.as_deref().unwrap_or("unknown"),
        random_uuid(fastrand::u128(..))
    )
}

/// Formats `random` as a version 4 UUID.
fn random_uuid(random: u128) -> String {
    let versioned = random & !(0xf << 76) | 4 << 76;
    let bits = versioned & !(0b11 << 62) | 0b10 << 62;
    let hex = format!("{bits:032x}");
    let (a, b, c) = (&hex[..8], &hex[8..12], &hex[12..16]);
    format!("{a}-{b}-{c}-{}-{}", &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::{identity, random_uuid};

    #[test]
    fn two_processes_have_different_identities() {
        let (ours, other) = (identity(), identity());
        assert_ne!(ours, other);
        let (host, uuid) = ours.rsplit_once('_').expect("two parts");
        assert!(!host.is_empty() && uuid.len() == 36, "{ours}");
        assert_eq!(random_uuid(0), "00000000-0000-4000-8000-000000000000");
    }
}
