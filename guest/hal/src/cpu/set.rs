//! How many CPUs an image uses, and sets of them.

/// Most CPUs that an image uses; further ones stay off.
pub const MAX: usize = tare_abi::layout::MAX_CPUS as usize;

/// A set of CPUs by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(u32);

impl CpuSet {
    /// No CPU.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds a CPU.
    ///
    /// # Panics
    /// If the number is [`MAX`] or more.
    #[inline]
    pub fn insert(&mut self, cpu: usize) {
        assert!(cpu < MAX, "there is no CPU {cpu}");
        self.0 |= 1 << cpu;
    }

    /// How many CPUs are in the set.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The CPUs in the set, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX).filter(move |cpu| self.0 & (1 << cpu) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_each_cpu_once_and_in_order() {
        let mut set = CpuSet::new();
        assert!(set.is_empty());
        for cpu in [MAX - 1, 2, 2, 0] {
            set.insert(cpu);
        }
        assert_eq!(set.len(), 3);
        assert!(set.iter().eq([0, 2, MAX - 1]));
    }
}
