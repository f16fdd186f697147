//! Cuts that are taken or left one at a time.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A cut (Kernel Tailoring) of something that the application could use.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize, serde::Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Cut {
    /// Only the files of the profile in the root file system.
    Packages,
    /// One CPU: no locks between several.
    Smp,
    /// No loadable modules.
    Modules,
    /// No Linux security modules.
    Lsm,
    /// No audit.
    Audit,
    /// The kernel is not left before it is done.
    Preemption,
    /// A hundred ticks a second instead of 250.
    Tick,
    /// Requests go to the disk as they come.
    IoScheduler,
    /// No users, groups and capabilities: everybody is root.
    Dac,
    /// No mitigations of processor flaws.
    Mitigations,
    /// No hardening of the kernel against its own bugs.
    Hardening,
    /// Source: no looking for read-only and noexec mounts.
    ReadOnlyNoexec,
    /// Source: no permission to search directories.
    LookupPermission,
    /// Source: no permissions of files.
    InodePermission,
    /// Compiler: code for the processor of this computer.
    Native,
    /// Compiler: -O3.
    O3,
}

/// What a cut is, for reports.
struct Facts {
    name: &'static str,
    about: &'static str,
    gives_up: Option<&'static str>,
    kind: CutGroup,
}

/// Who asks for a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CutGroup {
    /// Nobody has to: it costs nothing that anybody asked for.
    Default,
    /// `--trusting`: it gives up safety.
    Trusting,
    /// `--cut` by name: it may as well be slower, or not run elsewhere.
    Named,
}

impl Cut {
    /// All cuts, in the order of a report.
    pub const ALL: [Self; 16] = [
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

    /// The patch of a cut in the source.
    pub const fn patch(self) -> Option<&'static str> {
        match self {
            Self::ReadOnlyNoexec => Some(include_str!("../patches/read-only-noexec.patch")),
            Self::LookupPermission => Some(include_str!("../patches/lookup-permission.patch")),
            Self::InodePermission => Some(include_str!("../patches/inode-permission.patch")),
            _ => None,
        }
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
                "only files that the profile saw are in the root file system",
                None,
            ),
            Self::Smp => (
                CutGroup::Default,
                "smp",
                "no locks between CPUs on a machine with one",
                None,
            ),
            Self::Modules => (
                CutGroup::Default,
                "modules",
                "no loadable modules: what is needed is built in",
                None,
            ),
            Self::Lsm => (
                CutGroup::Default,
                "lsm",
                "no security modules: none has a policy unless a program loads one",
                None,
            ),
            Self::Audit => (
                CutGroup::Default,
                "audit",
                "no audit: it is off unless a daemon turns it on",
                None,
            ),
            Self::Preemption => (
                CutGroup::Default,
                "preemption",
                "no points at which the kernel lets others go first",
                None,
            ),
            Self::Tick => (
                CutGroup::Default,
                "tick",
                "100 ticks a second for 250",
                None,
            ),
            Self::IoScheduler => (
                CutGroup::Default,
                "io-scheduler",
                "requests go to the disk in the order they come",
                None,
            ),
            Self::Dac => (
                CutGroup::Trusting,
                "dac",
                "no users, groups and capabilities",
                Some(
                    "user IDs, file modes and capabilities are not checked: whoever runs code in the guest owns all of it",
                ),
            ),
            Self::Mitigations => (
                CutGroup::Trusting,
                "mitigations",
                "no mitigations of processor flaws",
                Some(
                    "a process in the guest may read the memory of others and of the kernel through flaws of the processor",
                ),
            ),
            Self::Hardening => (
                CutGroup::Trusting,
                "hardening",
                "no hardening of the kernel against its own bugs",
                Some(
                    "a bug in the kernel is easier to turn into its takeover: fixed addresses, no stack protector, no checks of copies",
                ),
            ),
            Self::ReadOnlyNoexec => (
                CutGroup::Trusting,
                "read-only-noexec",
                "source: no looking for read-only and noexec mounts at each open and execution",
                Some("programs on noexec mounts can be executed"),
            ),
            Self::LookupPermission => (
                CutGroup::Trusting,
                "lookup-permission",
                "source: no permission is needed to search a directory",
                Some("directories closed by mode, owner or access list are open to every process"),
            ),
            Self::InodePermission => (
                CutGroup::Trusting,
                "inode-permission",
                "source: modes, owners and access lists of files are not looked at",
                Some("every process of the guest may read and write every file"),
            ),
            Self::Native => (CutGroup::Named, "native", "compiler: -march=native", None),
            Self::O3 => (CutGroup::Named, "o3", "compiler: -O3", None),
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
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn no_default_gives_up_safety_and_all_trusting_cuts_say_what() {
        assert!(Cut::by_default().iter().all(|cut| cut.gives_up().is_none()));
        assert!(Cut::trusting().iter().all(|cut| cut.gives_up().is_some()));
        let of_source = Cut::ALL.into_iter().filter(|cut| cut.patch().is_some());
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
