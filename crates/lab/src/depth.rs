//! How long an experiment may take.

/// How long an experiment may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Depth {
    /// `--quick`: does it work, roughly; intervals are wide.
    Quick,
    /// Enough to decide the experiment's goals on a quiet machine: minutes.
    #[default]
    Standard,
    /// `--full`: the durations of the experiment's source (docs/background.md).
    Full,
}

impl Depth {
    /// The depth of a name in a record; the standard one for any other.
    pub fn named(name: &str) -> Self {
        let all = [Self::Quick, Self::Standard, Self::Full];
        let mut named = all.into_iter().filter(|depth| depth.name() == name);
        named.next().unwrap_or_default()
    }

    /// What is for this depth, of what is for quick, standard and full.
    pub const fn of<T: Copy>(self, [quick, standard, full]: [T; 3]) -> T {
        match self {
            Self::Quick => quick,
            Self::Standard => standard,
            Self::Full => full,
        }
    }

    /// The name as written in records and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Standard => "standard",
            Self::Full => "full",
        }
    }
}
