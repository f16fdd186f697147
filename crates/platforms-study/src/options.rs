//! Options of `tare weigh platforms` besides its extent.

use std::path::PathBuf;
use std::time::Duration;

use tare_platform::Platform;
use tare_platform::container_engine::ContainerEngine;

/// Options of the platforms' experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlatformOptions {
    /// Workloads by name or file; all that the form has when empty.
    pub workloads: Vec<String>,
    /// Platforms; all when empty.
    pub platforms: Vec<Platform>,
    /// CPUs; doubling from one to all when empty.
    pub sizes: Vec<u32>,
    /// What starts containers on the host.
    pub container_engine: ContainerEngine,
    /// A run record to be continued.
    pub resume: Option<PathBuf>,
    /// Which part of how many: index from 1, count.
    pub shard: Option<(u32, u32)>,
    /// Run records of several hosts, to be read instead of measuring.
    pub merge: Vec<PathBuf>,
    /// Seed of the order.
    pub seed: Option<u64>,
    /// Time to spend on runs.
    pub budget: Option<Duration>,
}

impl PlatformOptions {
    /// The platforms that are wanted, in their usual order.
    pub(crate) fn wanted(&self) -> Vec<Platform> {
        let chosen =
            |platform: &Platform| self.platforms.is_empty() || self.platforms.contains(platform);
        Platform::ALL.into_iter().filter(chosen).collect()
    }
}

/// Reads `2/8`.
pub fn parse_shard(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once('/');
    let parsed = parts.and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    match parsed {
        Some((index, count)) if (1..=count).contains(&index) => Ok((index, count)),
        _ => Err("a part is written I/N, with I from 1 to N".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_platforms_are_wanted_where_none_is_named() {
        let mut options = PlatformOptions::default();
        assert_eq!(options.wanted(), Platform::ALL);
        options.platforms = vec![Platform::Vm, Platform::Bare, Platform::Vm];
        assert_eq!(options.wanted(), [Platform::Bare, Platform::Vm]);
    }

    #[test]
    fn parts_count_from_one() {
        assert_eq!(parse_shard("2/8"), Ok((2, 8)));
        for wrong in ["0/8", "9/8", "1", "a/b", "1/0"] {
            assert!(parse_shard(wrong).is_err(), "{wrong}");
        }
    }
}
