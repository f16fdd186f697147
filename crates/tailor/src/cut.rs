//! Cuts: features that a tailored kernel can lack, each selected separately.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::source::Series;

/// A feature that the application could use and that the kernel is built without (Kernel
/// Tailoring).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize, serde::Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Cut {
    /// The root file system has only the files of the profile.
    Packages,
    /// Support for one CPU only: no locks between CPUs.
    Smp,
    /// No loadable modules.
    Modules,
    /// No Linux security modules.
    Lsm,
    /// No audit.
    Audit,
    /// No preemption in the kernel.
    Preemption,
    /// A hundred ticks a second instead of 250.
    Tick,
    /// No I/O scheduler: requests go to the disk in the order of their arrival.
    IoScheduler,
    /// No users, groups and capabilities: every process has root's rights.
    Dac,
    /// No mitigations of processor flaws.
    Mitigations,
    /// No hardening of the kernel against its own bugs.
    Hardening,
    /// Source patch: no checks for read-only and noexec mounts.
    ReadOnlyNoexec,
    /// Source patch: no permission checks when a path is looked up.
    LookupPermission,
    /// Source patch: no permission checks on files.
    InodePermission,
    /// Compiler flag: code for this host's processor.
    Native,
    /// Compiler flag: -O3.
    O3,
    /// Clang, and optimization over all files as they are linked (ThinLTO).
    ThinLto,
    /// Optimized by counts of what the application has executed (PGO).
    Pgo,
}

/// What a cut is, for reports.
struct Facts {
    name: &'static str,
    about: &'static str,
    gives_up: Option<&'static str>,
    kind: CutGroup,
}

/// How a cut is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CutGroup {
    /// By default: the application loses nothing that it uses.
    Default,
    /// By `--trusting`: it gives up safety.
    Trusting,
    /// By `--cut NAME`: the kernel may become slower, or not run on other processors.
    Named,
}

impl Cut {
    /// All cuts, in the order of a report.
    pub const ALL: [Self; 18] = [
        Self::Packages,
        Self::Smp,
        Self::Modules,
        Self::Lsm,
        Self::Audit,
        Self::Preemption,
        Self::Tick,
        Self::IoScheduler,
        Self::Dac,
        Self::Mitigations,
        Self::Hardening,
        Self::ReadOnlyNoexec,
        Self::LookupPermission,
        Self::InodePermission,
        Self::Native,
        Self::O3,
        Self::ThinLto,
        Self::Pgo,
    ];

    /// Cuts that are taken unless the user keeps them: none gives up safety that
    /// Debian's kernel has as it starts.
    pub fn by_default() -> BTreeSet<Self> {
        Self::of_kind(CutGroup::Default)
    }

    /// Cuts that give up safety, for a guest that runs nothing but what is
    /// trusted.
    pub fn trusting() -> BTreeSet<Self> {
        Self::of_kind(CutGroup::Trusting)
    }

    /// Cuts of a kernel made by `--trusting`: those and what is cut by default.
    pub fn all_trusting() -> BTreeSet<Self> {
        &Self::by_default() | &Self::trusting()
    }

    fn of_kind(kind: CutGroup) -> BTreeSet<Self> {
        let all = Self::ALL.into_iter();
        all.filter(|cut| cut.facts().kind == kind).collect()
    }

    /// Its name in commands and reports.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// What is left out, as a clause.
    pub const fn about(self) -> &'static str {
        self.facts().about
    }

    /// The safety that it gives up; `None` for a cut that costs none.
    pub const fn gives_up(self) -> Option<&'static str> {
        self.facts().gives_up
    }

    /// The patch of a cut in the source of a series.
    pub const fn patch(self, series: Series) -> Option<&'static str> {
        match (self, series) {
            (Self::ReadOnlyNoexec, _) => Some(include_str!("../patches/read-only-noexec.patch")),
            (Self::LookupPermission, Series::V6_1) => {
                Some(include_str!("../patches/lookup-permission.patch"))
            }
            (Self::LookupPermission, Series::V6_12) => {
                Some(include_str!("../patches/6.12/lookup-permission.patch"))
            }
            (Self::InodePermission, Series::V6_1) => {
                Some(include_str!("../patches/inode-permission.patch"))
            }
            (Self::InodePermission, Series::V6_12) => {
                Some(include_str!("../patches/6.12/inode-permission.patch"))
            }
            _ => None,
        }
    }

    /// Whether it changes the source, of every series.
    pub const fn is_of_source(self) -> bool {
        self.patch(Series::V6_1).is_some()
    }

    /// The compiler's flag of a cut.
    pub const fn flag(self) -> Option<&'static str> {
        match self {
            Self::Native => Some("-march=native"),
            Self::O3 => Some("-O3"),
            _ => None,
        }
    }

    const fn facts(self) -> Facts {
        let (kind, name, about, gives_up) = match self {
            Self::Packages => (
                CutGroup::Default,
                "packages",
                "the root file system has only files that the profile lists",
                None,
            ),
            Self::Smp => (
                CutGroup::Default,
                "smp",
                "no locks between CPUs if the machine has one CPU",
                None,
            ),
            Self::Modules => (
                CutGroup::Default,
                "modules",
                "no loadable modules: required drivers are built in",
                None,
            ),
            Self::Lsm => (
                CutGroup::Default,
                "lsm",
                "no security modules: they have no policy unless a program loads one",
                None,
            ),
            Self::Audit => (
                CutGroup::Default,
                "audit",
                "no audit subsystem: it is off unless a daemon turns it on",
                None,
            ),
            Self::Preemption => (
                CutGroup::Default,
                "preemption",
                "no preemption in the kernel",
                None,
            ),
            Self::Tick => (
                CutGroup::Default,
                "tick",
                "100 timer ticks a second instead of 250",
                None,
            ),
            Self::IoScheduler => (
                CutGroup::Default,
                "io-scheduler",
                "no I/O scheduler: requests go to the disk in arrival order",
                None,
            ),
            Self::Dac => (
                CutGroup::Trusting,
                "dac",
                "no users, groups and capabilities",
                Some(
                    "user IDs, file modes and capabilities are not checked: code in the guest can do everything",
                ),
            ),
            Self::Mitigations => (
                CutGroup::Trusting,
                "mitigations",
                "no mitigations of processor flaws",
                Some(
                    "a process in the guest may read memory of other processes and of the kernel through processor flaws",
                ),
            ),
            Self::Hardening => (
                CutGroup::Trusting,
                "hardening",
                "no hardening of the kernel against its own bugs",
                Some(
                    "a kernel bug is easier to exploit: fixed addresses, no stack protector, no checks of user copies",
                ),
            ),
            Self::ReadOnlyNoexec => (
                CutGroup::Trusting,
                "read-only-noexec",
                "source patch: no checks for read-only and noexec mounts on open and exec",
                Some("programs on noexec mounts can be executed"),
            ),
            Self::LookupPermission => (
                CutGroup::Trusting,
                "lookup-permission",
                "source patch: no permission checks when a path is looked up",
                Some("directories closed by mode, owner or access list are open to every process"),
            ),
            Self::InodePermission => (
                CutGroup::Trusting,
                "inode-permission",
                "source patch: no checks of file modes, owners and access lists",
                Some("every process of the guest may read and write every file"),
            ),
            Self::Native => (
                CutGroup::Named,
                "native",
                "compiler flag -march=native",
                None,
            ),
            Self::O3 => (CutGroup::Named, "o3", "compiler flag -O3", None),
            Self::ThinLto => (
                CutGroup::Named,
                "thin-lto",
                "compiled by clang, optimized over all files (ThinLTO)",
                None,
            ),
            Self::Pgo => (
                CutGroup::Named,
                "pgo",
                "optimized by what the application executes (PGO): a second, instrumented kernel counts it",
                None,
            ),
        };
        Facts {
            name,
            about,
            gives_up,
            kind,
        }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no cut.
#[derive(Clone, Debug, thiserror::Error)]
#[error("unknown cut `{word}`; available: {}", Cut::ALL.map(Cut::name).join(", "))]
pub struct UnknownCut {
    word: String,
}

impl FromStr for Cut {
    type Err = UnknownCut;

    fn from_str(word: &str) -> Result<Self, UnknownCut> {
        Self::ALL
            .into_iter()
            .find(|cut| cut.name() == word)
            .ok_or_else(|| UnknownCut {
                word: word.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_default_gives_up_safety_and_all_trusting_cuts_say_what() {
        assert!(Cut::by_default().iter().all(|cut| cut.gives_up().is_none()));
        assert!(Cut::trusting().iter().all(|cut| cut.gives_up().is_some()));
        let of_source = Cut::ALL.into_iter().filter(|cut| cut.is_of_source());
        for series in Series::ALL {
            let patched = Cut::ALL.iter().filter(|cut| cut.patch(series).is_some());
            assert_eq!(patched.count(), 3, "{series:?}");
        }
        assert!(of_source.clone().count() == 3);
        assert!(
            of_source
                .into_iter()
                .all(|cut| Cut::trusting().contains(&cut))
        );
    }

    #[test]
    fn a_cut_is_found_by_its_name_and_others_are_listed() {
        for cut in Cut::ALL {
            assert_eq!(cut.name().parse::<Cut>().unwrap(), cut);
            let json = serde_json::to_value(cut).unwrap();
            assert_eq!(json, cut.name());
        }
        let error = "acl".parse::<Cut>().unwrap_err().to_string();
        assert!(
            error.contains("`acl`") && error.contains("io-scheduler"),
            "{error}"
        );
    }
}
