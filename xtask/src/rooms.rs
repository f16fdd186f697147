//! Who may name whom: lower rooms never name higher ones.

use crate::workspace::Package;

/// Each room with the rooms it may use (`docs/architecture.md`).
const ROOMS: &[(&str, &[&str])] = &[
    ("tare-abi", &[]),
    ("tare-account", &[]),
    ("tare-policy", &[]),
    ("tare-stats", &[]),
    ("tare-control", &["tare-abi", "tare-policy"]),
    ("tare-profile", &[]),
    (
        "tare-tailor",
        &[
            "tare-abi",
            "tare-init",
            "tare-profile",
            "tare-rootfs",
            "tare-stats",
        ],
    ),
    (
        "tare-daemon",
        &["tare-control", "tare-devices", "tare-policy"],
    ),
    ("tare-hv", &["tare-abi"]),
    (
        "tare-probe",
        &[
            "tare-account",
            "tare-control",
            "tare-hv",
            "tare-init",
            "tare-profile",
            "tare-stats",
        ],
    ),
    ("tare-why", &["tare-account"]),
    ("tare-pin", &["tare-policy", "tare-probe"]),
    ("tare-advise", &["tare-policy"]),
    ("tare-boot", &["tare-abi"]),
    ("tare-init", &["tare-abi"]),
    ("tare-rootfs", &["tare-init"]),
    ("tare-devices", &["tare-abi", "tare-policy"]),
    (
        "tare-monitor",
        &[
            "tare-abi",
            "tare-boot",
            "tare-control",
            "tare-daemon",
            "tare-devices",
            "tare-hv",
            "tare-policy",
        ],
    ),
    (
        "tare-vhost",
        &["tare-control", "tare-daemon", "tare-devices", "tare-policy"],
    ),
    ("tare-platform", &["tare-pin", "tare-rootfs"]),
    (
        "tare-lab",
        &[
            "tare-account",
            "tare-control",
            "tare-platform",
            "tare-policy",
            "tare-probe",
            "tare-profile",
            "tare-rootfs",
            "tare-stats",
            "tare-tailor",
        ],
    ),
    (
        "tare",
        &[
            "tare-abi",
            "tare-account",
            "tare-advise",
            "tare-boot",
            "tare-control",
            "tare-daemon",
            "tare-devices",
            "tare-hv",
            "tare-lab",
            "tare-init",
            "tare-pin",
            "tare-policy",
            "tare-probe",
            "tare-profile",
            "tare-rootfs",
            "tare-tailor",
            "tare-stats",
            "tare-vhost",
            "tare-why",
        ],
    ),
    ("tare-hal", &["tare-abi"]),
    ("tare-libos", &["tare-abi", "tare-hal", "tare-policy"]),
    ("tare-vmtest", &["tare-abi"]),
    ("xtask", &[]),
];

/// Dependencies of a room that its place in the house forbids. Test
/// dependencies may look up.
pub fn violations(package: &Package) -> Vec<String> {
    let allowed = allowed(package);
    package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind.as_deref() != Some("dev"))
        .filter(|dependency| dependency.name.starts_with("tare"))
        .filter(|dependency| !allowed.contains(&dependency.name.as_str()))
        .map(|dependency| format!("{} may not use {}", package.name, dependency.name))
        .collect()
}

fn allowed(package: &Package) -> &'static [&'static str] {
    if package.is_guest() {
        return &["tare-libos"];
    }
    ROOMS
        .iter()
        .find(|(name, _)| *name == package.name)
        .map_or(&[], |(_, allowed)| *allowed)
}
