//! Which crate may depend on which: never on a higher layer.

use crate::workspace::Package;

/// Each crate with the crates it may use (`docs/architecture.md`).
const LAYERS: &[(&str, &[&str])] = &[
    ("tare-abi", &[]),
    ("tare-account", &[]),
    ("tare-policy", &[]),
    ("tare-stats", &[]),
    ("tare-simdisk", &["tare-policy"]),
    ("tare-simsched", &["tare-stats"]),
    ("tare-frames", &[]),
    (
        "tare-forward",
        &["tare-devices", "tare-fragments", "tare-tcp"],
    ),
    (
        "tare-control",
        &["tare-abi", "tare-account", "tare-frames", "tare-policy"],
    ),
    ("tare-confine", &["tare-control"]),
    ("tare-profile", &[]),
    ("tare-program", &[]),
    ("tare-site", &[]),
    ("tare-qemu", &["tare-abi"]),
    (
        "tare-tailor",
        &[
            "tare-abi",
            "tare-init",
            "tare-launch",
            "tare-profile",
            "tare-qemu",
            "tare-rootfs",
            "tare-stats",
        ],
    ),
    (
        "tare-daemon",
        &[
            "tare-confine",
            "tare-control",
            "tare-devices",
            "tare-policy",
        ],
    ),
    ("tare-passt", &["tare-control", "tare-daemon"]),
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
    ("tare-boot", &["tare-abi", "tare-control"]),
    ("tare-init", &["tare-abi"]),
    (
        "tare-rootfs",
        &["tare-confine", "tare-init", "tare-program"],
    ),
    ("tare-scaffold", &["tare-toolchain"]),
    ("tare-toolchain", &[]),
    ("tare-devices", &["tare-abi", "tare-policy"]),
    (
        "tare-monitor",
        &[
            "tare-abi",
            "tare-boot",
            "tare-control",
            "tare-daemon",
            "tare-devices",
            "tare-forward",
            "tare-frames",
            "tare-hv",
            "tare-passt",
            "tare-policy",
            "tare-tcp",
        ],
    ),
    (
        "tare-vhost",
        &["tare-control", "tare-daemon", "tare-devices", "tare-policy"],
    ),
    ("tare-platform", &["tare-pin", "tare-qemu", "tare-rootfs"]),
    (
        "tare-load",
        &["tare-control", "tare-io", "tare-net", "tare-tcp"],
    ),
    (
        "tare-machines",
        &[
            "tare-account",
            "tare-control",
            "tare-launch",
            "tare-load",
            "tare-platform",
            "tare-probe",
            "tare-profile",
            "tare-qemu",
            "tare-rootfs",
            "tare-stats",
            "tare-tailor",
        ],
    ),
    (
        "tare-lab",
        &[
            "tare-account",
            "tare-control",
            "tare-load",
            "tare-machines",
            "tare-stats",
            "tare-tailor",
        ],
    ),
    (
        "tare-experiments",
        &[
            "tare-account",
            "tare-control",
            "tare-lab",
            "tare-load",
            "tare-machines",
            "tare-policy",
            "tare-probe",
            "tare-qemu",
            "tare-rootfs",
            "tare-simdisk",
            "tare-stats",
            "tare-tailor",
            "tare-tcp",
        ],
    ),
    (
        "tare-platforms-study",
        &[
            "tare-control",
            "tare-hv",
            "tare-lab",
            "tare-platform",
            "tare-policy",
            "tare-probe",
            "tare-simsched",
            "tare-stats",
        ],
    ),
    (
        "tare-launch",
        &[
            "tare-abi",
            "tare-boot",
            "tare-control",
            "tare-daemon",
            "tare-devices",
            "tare-frames",
            "tare-hv",
            "tare-init",
            "tare-passt",
            "tare-policy",
            "tare-program",
            "tare-qemu",
            "tare-rootfs",
            "tare-site",
        ],
    ),
    (
        "tare",
        &[
            "tare-abi",
            "tare-account",
            "tare-advise",
            "tare-control",
            "tare-daemon",
            "tare-devices",
            "tare-experiments",
            "tare-hv",
            "tare-lab",
            "tare-launch",
            "tare-platforms-study",
            "tare-init",
            "tare-pin",
            "tare-policy",
            "tare-probe",
            "tare-profile",
            "tare-program",
            "tare-qemu",
            "tare-rootfs",
            "tare-scaffold",
            "tare-tailor",
            "tare-stats",
            "tare-vhost",
            "tare-why",
        ],
    ),
    ("tare-hal", &["tare-abi"]),
    ("tare-io", &[]),
    ("tare-fragments", &[]),
    ("tare-tcp", &[]),
    ("tare-net", &["tare-fragments", "tare-io", "tare-tcp"]),
    (
        "tare-libos",
        &[
            "tare-abi",
            "tare-hal",
            "tare-io",
            "tare-net",
            "tare-policy",
            "tare-tcp",
        ],
    ),
    (
        "tare-linux",
        &["tare-abi", "tare-hal", "tare-libos", "tare-program"],
    ),
    ("tare-ext4", &["tare-libos", "tare-linux", "tare-program"]),
    ("tare-web", &["tare-libos"]),
    ("tare-vmtest", &["tare-abi", "tare-qemu"]),
    ("xtask", &["tare-toolchain"]),
];

/// What every host crate needs of Linux; it depends on no other crate of the project.
const HOST: &str = "tare-host";
/// Crates below the host's: they run in guests or know no operating system.
const NOT_HOST: &[&str] = &[
    HOST,
    "tare-abi",
    "tare-policy",
    "tare-program",
    "tare-site",
    "tare-hal",
    "tare-io",
    "tare-net",
    "tare-libos",
    "tare-linux",
    "tare-ext4",
    "tare-web",
];

/// Dependencies of a crate that its layer forbids. Test dependencies may point upward.
pub(crate) fn violations(package: &Package) -> Vec<String> {
    let allowed = allowed(package);
    package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind.as_deref() != Some("dev"))
        .filter(|dependency| dependency.name.starts_with("tare"))
        .filter(|dependency| !allowed.contains(&dependency.name.as_str()))
        .filter(|dependency| !(dependency.name == HOST && is_host(package)))
        .map(|dependency| format!("{} may not use {}", package.name, dependency.name))
        .collect()
}

fn is_host(package: &Package) -> bool {
    !package.is_guest() && !NOT_HOST.contains(&package.name.as_str())
}

fn allowed(package: &Package) -> &'static [&'static str] {
    if package.is_guest() {
        return &[
            "tare-ext4",
            "tare-libos",
            "tare-linux",
            "tare-site",
            "tare-web",
        ];
    }
    LAYERS
        .iter()
        .find(|(name, _)| *name == package.name)
        .map_or(&[], |(_, allowed)| allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::testing::package;

    #[test]
    fn a_dependency_on_a_higher_layer_is_refused() {
        let found = violations(&package("tare-abi", &[("tare-monitor", None)]));
        assert_eq!(found, ["tare-abi may not use tare-monitor"]);
    }

    #[test]
    fn tests_may_use_higher_layers_and_foreign_crates_are_free() {
        let dependencies = [("tare-monitor", Some("dev")), ("serde", None)];
        assert!(violations(&package("tare-abi", &dependencies)).is_empty());
    }

    #[test]
    fn an_application_uses_the_library_os_only() {
        let libos = package("tare-guest-web", &[("tare-libos", None)]);
        assert!(violations(&libos).is_empty());
        let hal = package("tare-guest-web", &[("tare-hal", None)]);
        assert_eq!(violations(&hal).len(), 1);
    }

    #[test]
    fn an_unlisted_crate_may_use_nothing_of_ours() {
        assert_eq!(
            violations(&package("tare-new", &[("tare-abi", None)])).len(),
            1
        );
    }

    /// Follows the table: were there a way back to a crate, layers would not exist.
    #[test]
    fn no_crate_reaches_itself() {
        for (name, _) in LAYERS {
            let mut seen = Vec::new();
            let mut next: Vec<&str> = direct(name).to_vec();
            while let Some(below) = next.pop() {
                assert_ne!(below, *name, "{name} reaches itself");
                if !seen.contains(&below) {
                    seen.push(below);
                    next.extend(direct(below));
                }
            }
        }
    }

    fn direct(name: &str) -> &'static [&'static str] {
        let found = LAYERS.iter().find(|(have, _)| *have == name);
        found.map_or(&[], |(_, allowed)| allowed)
    }
}
