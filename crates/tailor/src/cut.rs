//! Cuts that are taken or left one at a time.

use std::{fmt, str::FromStr};

/// A cut of the fourth talk that is more than "nobody asked for it".
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize, serde::Serialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// One CPU: no locks between several.
    Smp,
    /// No users, groups and capabilities: everybody is root.
    Dac,
    /// No mitigations of processor flaws.
    Mitigations,
    /// No hardening of the kernel against its own bugs.
    Hardening,
}

impl Cut {
    /// All cuts, in the order of a report.
    pub const ALL: [Self; 4] = [Self::Smp, Self::Dac, Self::Mitigations, Self::Hardening];

    /// Its name in commands and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Smp => "smp",
            Self::Dac => "dac",
            Self::Mitigations => "mitigations",
            Self::Hardening => "hardening",
        }
    }

    /// The safety that it gives up; `None` for a cut that costs none.
    pub const fn gives_up(self) -> Option<&'static str> {
        match self {
            Self::Smp => None,
            Self::Dac => Some(
                "user IDs, file modes and capabilities are not checked: whoever runs code in the guest owns all of it",
            ),
            Self::Mitigations => Some(
                "a process in the guest may read the memory of others and of the kernel through flaws of the processor",
            ),
            Self::Hardening => Some(
                "a bug in the kernel is easier to turn into its takeover: fixed addresses, no stack protector, no checks of copies",
            ),
        }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no cut.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no cut: there are smp, dac, mitigations, hardening")]
pub struct UnknownCut(String);

impl FromStr for Cut {
    type Err = UnknownCut;

    fn from_str(word: &str) -> Result<Self, UnknownCut> {
        Self::ALL
            .into_iter()
            .find(|cut| cut.name() == word)
            .ok_or_else(|| UnknownCut(word.to_owned()))
    }
}
