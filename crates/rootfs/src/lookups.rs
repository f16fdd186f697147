//! A budget for resolving paths: a hostile image can ask for much more work than
//! it has bytes (2,048 components of one path, 40 links of 4,095 bytes each).

use crate::tree::NameError;

/// Cost of one look-up besides comparing names.
const LOOKUP_COST: u64 = 16;

/// What is left for look-ups, in compared bytes.
#[derive(Debug)]
pub(crate) struct Lookups {
    left: u64,
}

impl Lookups {
    pub(crate) fn new(bytes: u64) -> Self {
        Self { left: bytes }
    }

    pub(crate) fn unlimited() -> Self {
        Self { left: u64::MAX }
    }

    /// Accounts for one look-up of a name of this length.
    pub(crate) fn charge(&mut self, name_bytes: usize) -> Result<(), NameError> {
        let cost = LOOKUP_COST + name_bytes as u64;
        self.left = self.left.checked_sub(cost).ok_or(NameError::TooManySteps)?;
        Ok(())
    }

    /// Accounts for inserting a name, which looks up each directory above it.
    pub(crate) fn charge_insert(&mut self, name: &str) -> Result<(), NameError> {
        name.match_indices('/')
            .try_for_each(|(at, _)| self.charge(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_ends() {
        let mut lookups = Lookups::new(100);
        assert_eq!(lookups.charge(84), Ok(()));
        assert_eq!(lookups.charge(0), Err(NameError::TooManySteps));
        assert_eq!(lookups.charge_insert("name"), Ok(()));
        assert!(lookups.charge_insert("a/b").is_err());
        assert_eq!(Lookups::unlimited().charge(usize::MAX >> 1), Ok(()));
    }
}
