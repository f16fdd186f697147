//! Sets of CPUs of a fixed size.

/// A set of CPU numbers below [`CpuMask::BITS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CpuMask {
    words: [u64; Self::WORDS],
}

impl CpuMask {
    const WORDS: usize = 16;
    /// Numbers that fit.
    pub const BITS: usize = Self::WORDS * 64;
    /// No CPU.
    pub const EMPTY: Self = Self {
        words: [0; Self::WORDS],
    };

    /// This one CPU; empty if the number does not fit.
    pub fn of(cpu: u16) -> Self {
        let mut mask = Self::EMPTY;
        mask.insert(cpu);
        mask
    }

    /// Adds a CPU; a number that does not fit is left out.
    pub fn insert(&mut self, cpu: u16) {
        if let Some(word) = self.words.get_mut(usize::from(cpu) / 64) {
            *word |= 1 << (cpu % 64);
        }
    }

    /// Whether a CPU is in it.
    pub fn contains(&self, cpu: u16) -> bool {
        let word = self.words.get(usize::from(cpu) / 64);
        word.is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// Whether no CPU is in it.
    pub fn is_empty(&self) -> bool {
        self.words == [0; Self::WORDS]
    }

    /// How many are in it.
    pub fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Those that are in both.
    pub fn and(&self, other: &Self) -> Self {
        let mut both = *self;
        for (word, more) in both.words.iter_mut().zip(other.words) {
            *word &= more;
        }
        both
    }

    /// Those that are in either.
    pub fn or(&self, other: &Self) -> Self {
        let mut either = *self;
        for (word, more) in either.words.iter_mut().zip(other.words) {
            *word |= more;
        }
        either
    }

    /// Whether each of these is in `other` too.
    pub fn is_within(&self, other: &Self) -> bool {
        self.and(other) == *self
    }

    /// Its CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (0..Self::BITS as u16).filter(|cpu| self.contains(*cpu))
    }
}

impl FromIterator<u16> for CpuMask {
    fn from_iter<I: IntoIterator<Item = u16>>(cpus: I) -> Self {
        let mut mask = Self::EMPTY;
        cpus.into_iter().for_each(|cpu| mask.insert(cpu));
        mask
    }
}
