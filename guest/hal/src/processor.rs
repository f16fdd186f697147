//! Which processor this is, as CPUID names it; read where it is wanted, in either ring.

use core::arch::x86_64::{__cpuid, CpuidResult};

const EXTENDED: u32 = 0x8000_0000;
/// The leaves of the name, and the first behind them.
const NAME: core::ops::Range<u32> = EXTENDED + 2..EXTENDED + 5;

/// A processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processor {
    /// `GenuineIntel`, `AuthenticAMD`, ...
    pub vendor: [u8; 12],
    /// Family, with the extended one.
    pub family: u32,
    /// Model, with the extended one.
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
    /// Its name, padded with NUL; NULs alone where the processor has none.
    pub name: [u8; 48],
}

/// The processor that this runs on.
pub fn processor() -> Processor {
    let first = __cpuid(0);
    let has_name = __cpuid(EXTENDED).eax >= NAME.end - 1;
    let name = NAME.map(|leaf| {
        let CpuidResult { eax, ebx, ecx, edx } = __cpuid(leaf);
        [eax, ebx, ecx, edx]
    });
    let mut bytes = [0; 48];
    if has_name {
        let words = name.flatten().flat_map(u32::to_le_bytes);
        bytes
            .iter_mut()
            .zip(words)
            .for_each(|(to, byte)| *to = byte);
    }
    let mut vendor = [0; 12];
    let words = [first.ebx, first.edx, first.ecx].map(u32::to_le_bytes);
    vendor.copy_from_slice(words.as_flattened());
    let (family, model, stepping) = signature(__cpuid(1).eax);
    Processor {
        vendor,
        family,
        model,
        stepping,
        name: bytes,
    }
}

/// Family, model and stepping of leaf 1's EAX (Intel SDM volume 2, CPUID; AMD APM volume 3, E.3.2).
const fn signature(eax: u32) -> (u32, u32, u32) {
    let (family, model) = (eax >> 8 & 15, eax >> 4 & 15);
    let has_extended_model = family == 6 || family == 15;
    let whole_family = if family == 15 {
        family + (eax >> 20 & 0xff)
    } else {
        family
    };
    let whole_model = if has_extended_model {
        model | (eax >> 16 & 15) << 4
    } else {
        model
    };
    (whole_family, whole_model, eax & 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extended_families_and_models_are_added() {
        assert_eq!(signature(0x00a2_0f10), (25, 33, 0), "Zen 3");
        assert_eq!(signature(0x0005_0657), (6, 85, 7), "Cascade Lake");
        assert_eq!(signature(0x0000_0543), (5, 4, 3));
    }

    #[test]
    fn this_processor_has_a_vendor() {
        let here = processor();
        assert!(here.vendor.iter().all(u8::is_ascii), "{here:?}");
        assert_eq!(here, processor());
    }
}
