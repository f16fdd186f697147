//! Where a run happens: on which platform, how bound to CPUs, with how many.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What lies between the application and the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Platform {
    /// A chroot and nothing else.
    Bare,
    /// runc.
    Container,
    /// A virtual machine.
    Vm,
    /// crun in a virtual machine.
    VmContainer,
    /// A program alone in a virtual machine, on Tare's library OS.
    Appliance,
}

impl Platform {
    /// All of them, the baseline first.
    pub const ALL: [Self; 5] = [
        Self::Bare,
        Self::Container,
        Self::Vm,
        Self::VmContainer,
        Self::Appliance,
    ];

    /// The name in figures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Container => "container",
            Self::Vm => "vm",
            Self::VmContainer => "vm-container",
            Self::Appliance => "appliance",
        }
    }

    /// Whether its runs share a Linux guest, which is booted once.
    pub const fn has_linux_guest(self) -> bool {
        matches!(self, Self::Vm | Self::VmContainer)
    }
}

/// An unknown platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown platform (known: bare, container, vm, vm-container, appliance)")]
pub struct UnknownPlatform;

impl FromStr for Platform {
    type Err = UnknownPlatform;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.into_iter();
        all.find(|platform| platform.name() == text)
            .ok_or(UnknownPlatform)
    }
}

/// Who chooses CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The host's scheduler, among all CPUs.
    Vanilla,
    /// We do, beforehand.
    Pinned,
}

impl Mode {
    /// The name in figures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vanilla => "vanilla",
            Self::Pinned => "pinned",
        }
    }
}

/// What keeps a run to its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Nothing: it has all CPUs.
    None,
    /// A set of CPUs.
    Cpuset,
    /// CFS bandwidth: time on any CPU.
    Quota,
    /// Number of the machine's virtual CPUs.
    Vcpus,
}

/// Where a run happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// What lies in between.
    pub platform: Platform,
    /// Who chooses CPUs.
    pub mode: Mode,
    /// CPUs.
    pub size: u32,
    /// What keeps it to them.
    pub limit: Limit,
}

impl Place {
    /// The place of this platform and size on a host with this number of CPUs. A vanilla
    /// container that is smaller than the host is kept small by quota, as in
    /// CPU-Pinning 2020: a set of CPUs would be pinning.
    pub const fn new(platform: Platform, mode: Mode, size: u32, host_cpus: u32) -> Self {
        let whole = size >= host_cpus;
        let limit = match (platform, mode) {
            (Platform::Vm | Platform::VmContainer | Platform::Appliance, _) => Limit::Vcpus,
            (Platform::Container, Mode::Vanilla) if !whole => Limit::Quota,
            (_, Mode::Vanilla) if whole => Limit::None,
            _ => Limit::Cpuset,
        };
        Self {
            platform,
            mode,
            size,
            limit,
        }
    }

    /// The size as figures name it: `2`, or `1q` by quota.
    pub fn size_name(&self) -> String {
        match self.limit {
            Limit::Quota => format!("{}q", self.size),
            _ => self.size.to_string(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (platform, mode) = (self.platform.name(), self.mode.name());
        write!(f, "{platform}.{mode}.{}", self.size_name())
    }
}

/// Sizes that double from one CPU to all, all always among them.
pub fn doubling(host_cpus: u32) -> Vec<u32> {
    let mut sizes: Vec<u32> = std::iter::successors(Some(1), |size| Some(size * 2))
        .take_while(|size| *size < host_cpus)
        .collect();
    sizes.push(host_cpus.max(1));
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_double_up_to_the_host() {
        assert_eq!(doubling(1), [1]);
        assert_eq!(doubling(2), [1, 2]);
        assert_eq!(doubling(6), [1, 2, 4, 6]);
    }

    #[test]
    fn a_platform_is_known_by_its_name() {
        for platform in Platform::ALL {
            assert_eq!(platform.name().parse(), Ok(platform));
        }
        assert_eq!("VM".parse::<Platform>(), Err(UnknownPlatform));
        let said = UnknownPlatform.to_string();
        let named = Platform::ALL.iter().all(|p| said.contains(p.name()));
        assert!(named, "{said}");
    }

    #[test]
    fn a_size_by_quota_is_marked() {
        let small = Place::new(Platform::Container, Mode::Vanilla, 1, 2);
        assert_eq!(small.to_string(), "container.vanilla.1q");
        let pinned = Place::new(Platform::Container, Mode::Pinned, 1, 2);
        assert_eq!(
            (pinned.limit, pinned.to_string()),
            (Limit::Cpuset, "container.pinned.1".into())
        );
        let whole = Place::new(Platform::Container, Mode::Vanilla, 2, 2);
        assert_eq!(whole.limit, Limit::None);
        let vm = Place::new(Platform::VmContainer, Mode::Vanilla, 1, 2);
        assert_eq!(vm.limit, Limit::Vcpus);
        let appliance = Place::new(Platform::Appliance, Mode::Pinned, 1, 2);
        assert_eq!(
            (appliance.limit, appliance.to_string()),
            (Limit::Vcpus, "appliance.pinned.1".into())
        );
        let bare = Place::new(Platform::Bare, Mode::Vanilla, 1, 2);
        assert_eq!(bare.limit, Limit::Cpuset);
    }
}
