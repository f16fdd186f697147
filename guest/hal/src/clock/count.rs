//! [`Count`]: what a timer of 32 bits counts down from, near or far.

/// Ticks that one of the far kind stands for.
const FAR: u64 = 128;

/// A count of the APIC's timer. At the 1 GHz that KVM's timer has, the near kind reaches
/// 4.3 s: a CPU whose next deadline is an hour away would wake 838 times before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// Of single ticks.
    Near(u32),
    /// Of [`FAR`] ticks each.
    Far(u32),
}

impl Count {
    /// A count of `ticks`, rounded up where they are many, and cut to what it holds.
    pub(crate) fn at_least(ticks: u64) -> Self {
        match u32::try_from(ticks) {
            Ok(ticks) => Self::Near(ticks),
            Err(_) => Self::Far(u32::try_from(ticks.div_ceil(FAR)).unwrap_or(u32::MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_deadlines_take_one_count_of_nine_minutes() {
        let near = u64::from(u32::MAX);
        assert_eq!(Count::at_least(1), Count::Near(1));
        assert_eq!(Count::at_least(near), Count::Near(u32::MAX));
        assert_eq!(Count::at_least(near + 1), Count::Far(1 << 25));
        assert_eq!(Count::at_least(near + 2), Count::Far((1 << 25) + 1));
        assert_eq!(Count::at_least(540_000_000_000), Count::Far(4_218_750_000));
        assert_eq!(Count::at_least(u64::MAX), Count::Far(u32::MAX));
    }
}
