//! How a halted vCPU waits on the host, as people write it: `never`, `kernel`,
//! `poll=NS`, `budget=PCT`, `dedicated`.
//!
//! KVM may poll for a while before it schedules the vCPU's thread out: a wake-up
//! within that time is fast, and costs the CPU that polled
//! (`Documentation/virt/kvm/halt-polling.rst`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest poll, ns: beyond a second it is not a poll any more.
pub(crate) const LONGEST_POLL_NS: u32 = 1_000_000_000;

/// How a halted vCPU waits. Serialised as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HaltPolicy {
    /// Scheduled out at once.
    Never,
    /// As the kernel's parameters say.
    Kernel,
    /// Polls for up to this many ns.
    Poll(u32),
    /// Polls for as long as saves the most within this share of a CPU.
    Budget(CpuShare),
    /// Halts by itself, on a CPU that it has alone.
    Dedicated,
}

impl Default for HaltPolicy {
    fn default() -> Self {
        Self::Budget(CpuShare::DEFAULT)
    }
}

/// A share of one CPU, above none and below all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CpuShare {
    /// In units of 0.01 %, 1 to 9,999.
    per_myriad: u16,
}

impl CpuShare {
    /// 1 %.
    pub const DEFAULT: Self = Self { per_myriad: 100 };

    /// In units of 0.01 %; `None` for nothing and for a whole CPU.
    pub(crate) const fn from_per_myriad(per_myriad: u16) -> Option<Self> {
        match per_myriad {
            1..10_000 => Some(Self { per_myriad }),
            _ => None,
        }
    }

    /// In units of 0.01 %.
    pub const fn per_myriad(self) -> u16 {
        self.per_myriad
    }
}

/// A way to wait that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HaltPolicyError {
    /// None of the five.
    #[error("invalid halt policy: use never, kernel, poll=NS, budget=PCT or dedicated")]
    Form,
    /// Not a number of ns within the range.
    #[error("invalid poll time: use 0 to {LONGEST_POLL_NS} ns")]
    Length,
    /// Not a share.
    #[error(
        "a budget is a share of a CPU in percent, 0.01 to 99.99: \
         use never for none, poll=NS to poll whatever it costs"
    )]
    Share,
}

impl FromStr for HaltPolicy {
    type Err = HaltPolicyError;

    fn from_str(text: &str) -> Result<Self, HaltPolicyError> {
        match text.split_once('=') {
            None if text == "never" => Ok(Self::Never),
            None if text == "kernel" => Ok(Self::Kernel),
            None if text == "dedicated" => Ok(Self::Dedicated),
            Some(("poll", ns)) => match ns.parse() {
                Ok(ns) if ns <= LONGEST_POLL_NS => Ok(Self::Poll(ns)),
                _ => Err(HaltPolicyError::Length),
            },
            Some(("budget", percent)) => Ok(Self::Budget(percent.parse()?)),
            _ => Err(HaltPolicyError::Form),
        }
    }
}

impl FromStr for CpuShare {
    type Err = HaltPolicyError;

    /// Reads percent with up to two decimals.
    fn from_str(text: &str) -> Result<Self, HaltPolicyError> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(decimals) || whole.len() > 4 || decimals.len() > 2 {
            return Err(HaltPolicyError::Share);
        }
        let hundredths = format!("{whole}{decimals:0<2}").parse::<u32>();
        hundredths
            .ok()
            .and_then(|share| u16::try_from(share).ok())
            .and_then(Self::from_per_myriad)
            .ok_or(HaltPolicyError::Share)
    }
}

impl fmt::Display for CpuShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, hundredths) = (self.per_myriad / 100, self.per_myriad % 100);
        match hundredths {
            0 => write!(f, "{whole}"),
            _ if hundredths % 10 == 0 => write!(f, "{whole}.{}", hundredths / 10),
            _ => write!(f, "{whole}.{hundredths:02}"),
        }
    }
}

impl fmt::Display for HaltPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("never"),
            Self::Kernel => f.write_str("kernel"),
            Self::Poll(ns) => write!(f, "poll={ns}"),
            Self::Budget(share) => write!(f, "budget={share}"),
            Self::Dedicated => f.write_str("dedicated"),
        }
    }
}

impl Serialize for HaltPolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HaltPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<HaltPolicy, HaltPolicyError> {
        text.parse()
    }

    #[test]
    fn every_way_to_wait_is_read_as_it_is_written() {
        for text in [
            "never",
            "kernel",
            "poll=200000",
            "budget=1",
            "budget=0.5",
            "budget=0.01",
            "budget=99.99",
            "dedicated",
        ] {
            let policy = parse(text).unwrap();
            assert_eq!(policy.to_string(), text);
            let json = serde_json::to_string(&policy).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<HaltPolicy>(&json).unwrap(), policy);
        }
        assert_eq!(HaltPolicy::default().to_string(), "budget=1");
    }

    #[test]
    fn a_budget_of_nothing_of_everything_and_of_text_is_refused() {
        for text in [
            "0",
            "0.00",
            "100",
            "1000",
            "-1",
            "",
            "1%",
            "half",
            "1.",
            ".5",
            "1.005",
            "1e1",
            "+1",
            "99999999999",
        ] {
            assert_eq!(
                parse(&format!("budget={text}")),
                Err(HaltPolicyError::Share),
                "{text}"
            );
        }
    }

    #[test]
    fn other_words_and_lengths_are_refused() {
        for text in [
            "",
            "poll",
            "always",
            "never=1",
            "budget",
            "dedicated=1",
            " never",
        ] {
            assert_eq!(parse(text), Err(HaltPolicyError::Form), "{text}");
        }
        for text in ["poll=", "poll=-1", "poll=1us", "poll=1000000001"] {
            assert_eq!(parse(text), Err(HaltPolicyError::Length), "{text}");
        }
    }
}
