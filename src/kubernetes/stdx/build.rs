//! Build information: version, commit, and the platform under Go's name.

use std::env::consts::{ARCH, OS};
use std::sync::LazyLock;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit of this build, if the build environment set it.
pub const COMMIT: Option<&str> = option_env!("REPLICASET_CONTROLLER_COMMIT");

/// The Kubernetes version that this program follows, the default of
/// `tests/control-plane/build.sh`.
pub const KUBERNETES: &str = "1.37";

/// The oldest and the newest minor version of Kubernetes 1 that this program was tested with.
pub const TESTED: [u32; 2] = [34, 37];

/// True if this program was tested with this version of the API server. Providers append a `+` to
/// the minor version.
pub fn is_tested(major: &str, minor: &str) -> bool {
    let [oldest, newest] = TESTED;
    let minor = minor.trim_end_matches('+').parse();
    major == "1" && minor.is_ok_and(|minor| (oldest..=newest).contains(&minor))
}

/// The first seven characters of the commit, if it is known.
pub fn short_commit() -> Option<&'static str> {
    COMMIT?.get(..7)
}

/// `0.1.0 (0cc156e, follows Kubernetes 1.37)`, without the commit if it is unknown.
pub fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| version_of(COMMIT));
    &VERSION
}

fn version_of(commit: Option<&str>) -> String {
    let commit = commit.map_or_else(String::new, |commit| format!("{commit}, "));
    format!("{VERSION} ({commit}follows Kubernetes {KUBERNETES})")
}

pub fn platform() -> String {
    platform_of(OS, ARCH)
}

fn platform_of(os: &str, arch: &str) -> String {
    let os = match os {
        "macos" => "darwin",
        other => other,
    };
    let arch = match arch {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
        "powerpc64" => "ppc64",
        "loongarch64" => "loong64",
        other => other,
    };
    format!("{os}/{arch}")
}

#[cfg(test)]
mod tests {
    use super::{VERSION, is_tested, platform_of, version_of};

    #[test]
    fn versions_outside_of_the_tested_ones_are_known() {
        for (major, minor, expected) in [
            ("1", "33", false),
            ("1", "34", true),
            ("1", "37+", true),
            ("1", "38", false),
            ("2", "34", false),
            ("1", "", false),
        ] {
            assert_eq!(is_tested(major, minor), expected, "{major}.{minor}");
        }
    }

    #[test]
    fn the_version_has_the_commit_if_it_is_known() {
        let version = |text: &str| format!("{VERSION} ({text})");
        let known = version_of(Some("0cc156e"));
        assert_eq!(known, version("0cc156e, follows Kubernetes 1.37"));
        assert_eq!(version_of(None), version("follows Kubernetes 1.37"));
    }

    #[test]
    fn platforms_have_gos_names() {
        for (os, arch, platform) in [
            ("linux", "x86_64", "linux/amd64"),
            ("linux", "aarch64", "linux/arm64"),
            ("macos", "aarch64", "darwin/arm64"),
            ("linux", "riscv64", "linux/riscv64"),
        ] {
            assert_eq!(platform_of(os, arch), platform);
        }
    }
}
