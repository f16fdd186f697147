//! Lists of CPUs as users and the kernel write them: `0-3,8`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tare_host::cpu_list::{self, RangeError};
use tare_policy::placement::CpuMask;

/// A set of CPUs that reads and writes as a list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuList(pub CpuMask);

/// Why a text is not a list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuListError {
    /// A part that is neither a number nor a range.
    #[error("{0:?} is not a list of CPUs (such as 0, 2-3, or 0,2-3)")]
    Part(String),
    /// A range whose end comes before its beginning.
    #[error("the range {0} is reversed")]
    Backwards(String),
    /// A number beyond what is supported.
    #[error("CPU {0} is beyond the {limit} CPUs that can be placed on", limit = CpuMask::BITS)]
    Beyond(u64),
    /// Nothing.
    #[error("the list of CPUs is empty")]
    Empty,
}

impl CpuList {
    /// The list of what the kernel wrote; empty for an empty text.
    pub fn from_kernel(text: &str) -> Option<Self> {
        match text.trim() {
            "" => Some(Self(CpuMask::EMPTY)),
            text => text.parse().ok(),
        }
    }

    /// Its CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter()
    }
}

impl FromStr for CpuList {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, CpuListError> {
        if text.trim().is_empty() {
            return Err(CpuListError::Empty);
        }
        let mut mask = CpuMask::EMPTY;
        for part in text.split(',') {
            let (first, last) = range(part.trim())?;
            (first..=last).for_each(|cpu| mask.insert(cpu));
        }
        Ok(Self(mask))
    }
}

fn range(part: &str) -> Result<(u16, u16), CpuListError> {
    let (first, last) = cpu_list::range(part).map_err(|error| match error {
        RangeError::Form => CpuListError::Part(part.to_owned()),
        RangeError::Backwards => CpuListError::Backwards(part.to_owned()),
    })?;
    let cpu = |number: u64| match u16::try_from(number) {
        Ok(cpu) if usize::from(cpu) < CpuMask::BITS => Ok(cpu),
        _ => Err(CpuListError::Beyond(number)),
    };
    Ok((cpu(first)?, cpu(last)?))
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if(|next| *next == last + 1).is_some() {
                last += 1;
            }
            if last == first {
                write!(f, "{separator}{first}")?
            } else {
                write!(f, "{separator}{first}-{last}")?
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuList({self})")
    }
}

impl From<CpuList> for String {
    fn from(list: CpuList) -> Self {
        list.to_string()
    }
}

impl TryFrom<String> for CpuList {
    type Error = CpuListError;

    fn try_from(text: String) -> Result<Self, CpuListError> {
        if text.is_empty() {
            Ok(Self(CpuMask::EMPTY))
        } else {
            text.parse()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_invalid_list_is_an_error_with_its_text() {
        let error = |text: &str| text.parse::<CpuList>().unwrap_err();
        assert_eq!(error(""), CpuListError::Empty);
        assert_eq!(error("1,,2"), CpuListError::Part(String::new()));
        assert_eq!(error("x"), CpuListError::Part("x".to_owned()));
        assert_eq!(error("+1"), CpuListError::Part("+1".to_owned()));
        assert_eq!(error("1-"), CpuListError::Part("1-".to_owned()));
        assert_eq!(error("3-1"), CpuListError::Backwards("3-1".to_owned()));
        assert_eq!(error("0-1024"), CpuListError::Beyond(1024));
        assert_eq!(error("99999999999"), CpuListError::Beyond(99_999_999_999));
    }

    #[test]
    fn the_kernel_s_empty_list_is_empty() {
        assert_eq!(CpuList::from_kernel("\n").unwrap().0, CpuMask::EMPTY);
        assert_eq!(CpuList::from_kernel("0-1\n").unwrap().to_string(), "0-1");
        assert_eq!(CpuList::from_kernel("junk"), None);
    }

    proptest! {
        #[test]
        fn a_list_reads_as_it_was_written(cpus in prop::collection::vec(0..1024u16, 1..50)) {
            let list = CpuList(cpus.into_iter().collect());
            prop_assert_eq!(list.to_string().parse::<CpuList>(), Ok(list));
        }

        #[test]
        fn any_text_is_a_list_or_an_error(text in "[0-9,x -]{0,12}") {
            let _ = text.parse::<CpuList>();
        }
    }
}
