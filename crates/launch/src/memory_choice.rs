//! `--memory SIZE[,hugepages=auto|off]`.

use std::str::FromStr;

use tare_control::config::HugePages;

use crate::limits::Limits;
use crate::memory_size::{MemorySize, SizeError};

/// MiB that a monitor takes beside its guest's memory, at most.
const MONITOR_MIB: u32 = 8;

/// Guest memory as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryChoice {
    /// How much.
    pub size: MemorySize,
    /// Whether it is in huge pages; `None`: as the host is set.
    pub huge_pages: Option<HugePages>,
}

/// A memory option that cannot be parsed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryChoiceError {
    /// Not a size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// Not a setting.
    #[error("unknown memory setting {0:?}: use hugepages=auto or hugepages=off")]
    Setting(String),
}

impl FromStr for MemoryChoice {
    type Err = MemoryChoiceError;

    fn from_str(text: &str) -> Result<Self, MemoryChoiceError> {
        let (size, setting) = match text.split_once(',') {
            None => (text, None),
            Some((size, setting)) => (size, Some(setting)),
        };
        let huge_pages = match setting {
            None => None,
            Some("hugepages=auto") => Some(HugePages::Auto),
            Some("hugepages=off") => Some(HugePages::Off),
            Some(other) => return Err(MemoryChoiceError::Setting(other.to_owned())),
        };
        Ok(Self {
            size: size.parse()?,
            huge_pages,
        })
    }
}

/// The page size for a machine with these limits. A huge page counts whole against a memory limit,
/// however little of it the guest touches: where that could reach the limit, pages are small.
pub(crate) fn huge_pages(choice: MemoryChoice, limits: &Limits) -> Option<HugePages> {
    let needed = choice.size.mib.saturating_add(MONITOR_MIB);
    let too_tight = limits.memory.is_some_and(|limit| limit.mib < needed);
    match choice.huge_pages {
        Some(HugePages::Auto) if too_tight => Some(HugePages::Off),
        asked => asked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(text: &str) -> MemoryChoice {
        text.parse().unwrap()
    }

    #[test]
    fn memory_is_a_size_and_perhaps_a_choice_of_pages() {
        assert_eq!(choice("64").huge_pages, None);
        assert_eq!(choice("1G").size, MemorySize { mib: 1024 });
        let auto = choice("512M,hugepages=auto");
        assert_eq!(auto.size, MemorySize { mib: 512 });
        assert_eq!(auto.huge_pages, Some(HugePages::Auto));
        assert_eq!(choice("64,hugepages=off").huge_pages, Some(HugePages::Off));
    }

    #[test]
    fn other_words_for_memory_are_refused() {
        let error = |text: &str| text.parse::<MemoryChoice>().unwrap_err();
        for setting in ["", "hugepages", "hugepages=on", "hugepages=auto,x"] {
            assert_eq!(
                error(&format!("64,{setting}")),
                MemoryChoiceError::Setting(setting.to_owned())
            );
        }
        for text in ["", "hugepages=auto", ",hugepages=auto"] {
            assert_eq!(
                error(text),
                MemoryChoiceError::Size(SizeError::Form),
                "{text}"
            );
        }
    }

    #[test]
    fn a_tight_limit_keeps_pages_small() {
        let auto = choice("64,hugepages=auto");
        let limited = |text: &str| Limits {
            memory: Some(text.parse().unwrap()),
            ..Limits::default()
        };
        let unlimited = Limits::default();
        assert_eq!(huge_pages(auto, &unlimited), Some(HugePages::Auto));
        assert_eq!(huge_pages(auto, &limited("72")), Some(HugePages::Auto));
        assert_eq!(huge_pages(auto, &limited("71")), Some(HugePages::Off));
        assert_eq!(huge_pages(choice("64"), &limited("32")), None);
    }
}
