//! Settings that make an application faster on its kernel, found by measuring: boot parameters
//! and sysctls, one boot each ([ADR 72](../../../docs/adr/0072-settings-by-measured-effect.md)).
//!
//! ```text
//! settings       what is tried: mapping/settings.toml, with the safety that each gives up
//! schedule       how many boots of what fit into a budget
//! elimination    blocks of boots: screening, test, confirmation; pure, given its trials
//! order          in which order the arms of a block boot
//! pairs          boots of one block against each other
//! search_result  what came of it; report: for people
//! journal        boots that were recorded, so that an interrupted search goes on
//! load           requests to the application
//! bench          one trial: a boot in QEMU under the load
//! ```
//!
//! The unit of randomisation is a boot, not a request. Each block boots every arm once, in a
//! drawn and balanced order, with the default beside them, and arms are compared within their
//! block.
//! Screening only ranks. What it keeps is tested on new boots, so that no estimate is
//! of the boots that it was chosen by; what passes is combined, and the combination is
//! confirmed on others again.
//!
//! Neighbours: `stats` (tests), [`crate::machine`], [`crate::counter`].
//! Limits: one application, one vCPU; effects of settings on each other are seen in the
//! combination only.

pub mod bench;
pub mod elimination;
pub mod journal;
pub mod load;
mod order;
mod pairs;
pub mod report;
pub mod schedule;
pub mod search_result;
pub mod settings;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

/// What a boot is measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Instructions a request, counted in QEMU's translator: less is better.
    Instructions,
    /// Requests a second: more is better.
    Rate,
}

impl Measure {
    /// Its unit, as a report has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Instructions => "instructions a request",
            Self::Rate => "requests a second",
        }
    }

    /// 1 where more is better, else -1.
    const fn sign(self) -> f64 {
        match self {
            Self::Instructions => -1.0,
            Self::Rate => 1.0,
        }
    }
}

/// What came of one boot.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Boot {
    /// The measured value; or why there is none: the guest did not start, or did not answer.
    pub measured: Result<f64, String>,
    /// How long it took, s.
    pub seconds: f64,
}

/// Who boots.
pub trait Trials {
    /// Why no boot can be made at all.
    type Error;

    /// Boots with these settings, by their places in the list of candidates; none of them is
    /// the default.
    fn boot(&mut self, settings: &[usize]) -> Result<Boot, Self::Error>;
}
