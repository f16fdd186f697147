//! CPUID feature bits: each announces an instruction.

use kvm_bindings::kvm_cpuid_entry2;

/// A register that CPUID answers in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Register {
    Eax,
    Ebx,
    Ecx,
    Edx,
}

/// One feature bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Name as in Linux's `/proc/cpuinfo`.
    pub name: &'static str,
    leaf: u32,
    index: u32,
    register: Register,
    bit: u8,
}

impl Feature {
    const fn new(name: &'static str, leaf: u32, index: u32, register: Register, bit: u8) -> Self {
        Self {
            name,
            leaf,
            index,
            register,
            bit,
        }
    }

    /// Its leaf and sub-leaf.
    pub(crate) fn place(&self) -> (u32, u32) {
        (self.leaf, self.index)
    }

    /// Whether `leaves` offer it.
    pub(crate) fn is_in(&self, leaves: &[kvm_cpuid_entry2]) -> bool {
        leaves
            .iter()
            .any(|entry| self.is_at(entry) && self.word(entry) & self.mask() != 0)
    }

    /// Its number in Linux, for `clearcpuid=` on a kernel's command line; `None` for a word that
    /// Linux maps to several (`arch/x86/include/asm/cpufeatures.h`).
    pub fn linux_number(&self) -> Option<u32> {
        let word = match (self.leaf, self.index, self.register) {
            (1, 0, Register::Edx) => 0,
            (0x8000_0001, 0, Register::Edx) => 1,
            (1, 0, Register::Ecx) => 4,
            (0x8000_0001, 0, Register::Ecx) => 6,
            (7, 0, Register::Ebx) => 9,
            (0xd, 1, Register::Eax) => 10,
            (7, 0, Register::Ecx) => 16,
            _ => return None,
        };
        Some(32 * word + u32::from(self.bit))
    }

    /// Removes it from `entry`, if it is there.
    pub(crate) fn clear(&self, entry: &mut kvm_cpuid_entry2) {
        if self.is_at(entry) {
            let mask = self.mask();
            *self.word_mut(entry) &= !mask;
        }
    }

    fn is_at(&self, entry: &kvm_cpuid_entry2) -> bool {
        entry.function == self.leaf && entry.index == self.index
    }

    fn mask(&self) -> u32 {
        1 << self.bit
    }

    fn word(&self, entry: &kvm_cpuid_entry2) -> u32 {
        match self.register {
            Register::Eax => entry.eax,
            Register::Ebx => entry.ebx,
            Register::Ecx => entry.ecx,
            Register::Edx => entry.edx,
        }
    }

    fn word_mut<'a>(&self, entry: &'a mut kvm_cpuid_entry2) -> &'a mut u32 {
        match self.register {
            Register::Eax => &mut entry.eax,
            Register::Ebx => &mut entry.ebx,
            Register::Ecx => &mut entry.ecx,
            Register::Edx => &mut entry.edx,
        }
    }
}

macro_rules! features {
    ($($constant:ident = $name:literal, $leaf:literal, $index:literal, $register:ident, $bit:literal;)+) => {
        $(pub(crate) const $constant: Feature =
            Feature::new($name, $leaf, $index, Register::$register, $bit);)+
    };
}

features! {
    FPU = "fpu", 1, 0, Edx, 0;
    CLFLUSH = "clflush", 1, 0, Edx, 19;
    FXSR = "fxsr", 1, 0, Edx, 24;
    SSE = "sse", 1, 0, Edx, 25;
    SSE2 = "sse2", 1, 0, Edx, 26;
    CX8 = "cx8", 1, 0, Edx, 8;
    CX16 = "cx16", 1, 0, Ecx, 13;
    SSE4_2 = "sse4_2", 1, 0, Ecx, 20;
    MOVBE = "movbe", 1, 0, Ecx, 22;
    POPCNT = "popcnt", 1, 0, Ecx, 23;
    XSAVE = "xsave", 1, 0, Ecx, 26;
    AVX = "avx", 1, 0, Ecx, 28;
    F16C = "f16c", 1, 0, Ecx, 29;
    FMA = "fma", 1, 0, Ecx, 12;
    RDRAND = "rdrand", 1, 0, Ecx, 30;
    FSGSBASE = "fsgsbase", 7, 0, Ebx, 0;
    BMI1 = "bmi1", 7, 0, Ebx, 3;
    AVX2 = "avx2", 7, 0, Ebx, 5;
    BMI2 = "bmi2", 7, 0, Ebx, 8;
    ERMS = "erms", 7, 0, Ebx, 9;
    INVPCID = "invpcid", 7, 0, Ebx, 10;
    RDSEED = "rdseed", 7, 0, Ebx, 18;
    ADX = "adx", 7, 0, Ebx, 19;
    SMAP = "smap", 7, 0, Ebx, 20;
    CLFLUSHOPT = "clflushopt", 7, 0, Ebx, 23;
    CLWB = "clwb", 7, 0, Ebx, 24;
    RDPID = "rdpid", 7, 0, Ecx, 22;
    XSAVEOPT = "xsaveopt", 0xd, 1, Eax, 0;
    XSAVEC = "xsavec", 0xd, 1, Eax, 1;
    XSAVES = "xsaves", 0xd, 1, Eax, 3;
    LZCNT = "abm", 0x8000_0001, 0, Ecx, 5;
    PREFETCHW = "3dnowprefetch", 0x8000_0001, 0, Ecx, 8;
    RDTSCP = "rdtscp", 0x8000_0001, 0, Edx, 27;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_have_linuxs_numbers() {
        let numbers = [CX16, POPCNT, SMAP, RDTSCP].map(|it| it.linux_number());
        assert_eq!(numbers, [141, 151, 308, 59].map(Some));
    }

    #[test]
    fn a_bit_is_found_and_cleared_in_its_own_leaf() {
        let mut right = kvm_cpuid_entry2 {
            function: 7,
            ebx: 1 << 20 | 1,
            ..Default::default()
        };
        let mut wrong = kvm_cpuid_entry2 { index: 1, ..right };
        assert!(SMAP.is_in(&[wrong, right]));
        assert!(!SMAP.is_in(&[wrong]));
        SMAP.clear(&mut right);
        SMAP.clear(&mut wrong);
        assert_eq!((right.ebx, wrong.ebx), (1, 1 << 20 | 1));
    }
}
