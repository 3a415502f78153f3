//! Build information: version, commit, and the platform under Go's name.

use std::env::consts::{ARCH, OS};

/// The version in Cargo.toml.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit of this build, if the build environment set it.
pub const COMMIT: Option<&str> = option_env!("REPLICASET_CONTROLLER_COMMIT");

/// The platform, such as `linux/amd64`.
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
    use super::platform_of;

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
