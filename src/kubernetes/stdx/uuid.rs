//! Random UUIDs.

/// A random version 4 UUID.
pub fn random_uuid() -> String {
    of(fastrand::u128(..))
}

/// Formats `random` as a version 4 UUID.
fn of(random: u128) -> String {
    let versioned = random & !(0xf << 76) | 4 << 76;
    let bits = versioned & !(0b11 << 62) | 0b10 << 62;
    let hex = format!("{bits:032x}");
    let (a, b, c) = (&hex[..8], &hex[8..12], &hex[12..16]);
    format!("{a}-{b}-{c}-{}-{}", &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::{of, random_uuid};

    #[test]
    fn uuids_have_version_and_variant() {
        assert_eq!(of(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(of(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_ne!(random_uuid(), random_uuid());
    }
}
