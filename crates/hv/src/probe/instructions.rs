//! Instructions to try, each as its own bytes, with the feature that announces
//! it and the features to hide when it does not work.
//!
//! At the first byte RAX is 3, RDX and RCX are 0, RDI points to a zeroed page,
//! RSP to a stack; CR4 has OSFXSR, OSXMMEXCPT, and FSGSBASE and OSXSAVE if offered.

use super::feature::{
    ADX, AVX, AVX2, BMI1, BMI2, CLFLUSH, CLFLUSHOPT, CLWB, CX8, CX16, ERMS, F16C, FMA, FPU,
    FSGSBASE, FXSR, Feature, INVPCID, LZCNT, MOVBE, POPCNT, PREFETCHW, RDPID, RDRAND, RDSEED,
    RDTSCP, SMAP, SSE, SSE2, SSE4_2, XSAVE, XSAVEC, XSAVEOPT, XSAVES,
};

/// An instruction to try.
#[derive(Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Its mnemonic.
    pub name: &'static str,
    /// The feature that announces it; `None` for one that every x86-64 has.
    pub feature: Option<Feature>,
    /// Features that a machine's CPUID must hide if the instruction does not work. Empty for
    /// x86-64's baseline, which guests take for granted and user code runs natively.
    pub(crate) hides: &'static [Feature],
    pub(crate) code: &'static [u8],
    pub(crate) ends_in: End,
}

/// Where execution continues after a working instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// To the next one.
    Next,
    /// To the handler of this vector.
    Vector(u8),
}

const fn baseline(name: &'static str, code: &'static [u8]) -> Instruction {
    Instruction {
        name,
        feature: None,
        hides: &[],
        code,
        ends_in: End::Next,
    }
}

const fn announced(
    name: &'static str,
    feature: Feature,
    hides: &'static [Feature],
    code: &'static [u8],
) -> Instruction {
    Instruction {
        name,
        feature: Some(feature),
        hides,
        code,
        ends_in: End::Next,
    }
}

/// XSAVE and every feature whose state only XSAVE saves.
const XSAVE_FAMILY: &[Feature] = &[XSAVE, XSAVEOPT, XSAVEC, XSAVES, AVX, AVX2, FMA, F16C];

#[rustfmt::skip]
pub(crate) const INSTRUCTIONS: &[Instruction] = &[
    baseline("cpuid", &[0x0f, 0xa2]),
    baseline("rdtsc", &[0x0f, 0x31]),
    baseline("mfence", &[0x0f, 0xae, 0xf0]),
    baseline("lfence", &[0x0f, 0xae, 0xe8]),
    baseline("sfence", &[0x0f, 0xae, 0xf8]),
    baseline("pause", &[0xf3, 0x90]),
    baseline("lock cmpxchg", &[0xf0, 0x48, 0x0f, 0xb1, 0x17]),
    baseline("lock xadd", &[0xf0, 0x48, 0x0f, 0xc1, 0x17]),
    baseline("bsf", &[0x48, 0x0f, 0xbc, 0xc8]),
    baseline("bswap", &[0x48, 0x0f, 0xc8]),
    baseline("movnti", &[0x48, 0x0f, 0xc3, 0x07]),
    Instruction { ends_in: End::Vector(3), ..baseline("int3", &[0xcc]) },
    Instruction { ends_in: End::Vector(6), ..baseline("ud2", &[0x0f, 0x0b]) },
    announced("fwait", FPU, &[], &[0x9b]),
    announced("fninit", FPU, &[], &[0xdb, 0xe3]),
    announced("fnstcw", FPU, &[], &[0xd9, 0x3f]),
    announced("fxsave", FXSR, &[], &[0x48, 0x0f, 0xae, 0x07]),
    announced("cmpxchg8b", CX8, &[], &[0x0f, 0xc7, 0x0f]),
    announced("clflush", CLFLUSH, &[], &[0x0f, 0xae, 0x3f]),
    announced("ldmxcsr", SSE, &[], &[
        0xc7, 0x07, 0x80, 0x1f, 0x00, 0x00, // movl $0x1f80, (%rdi)
        0x0f, 0xae, 0x17,
    ]),
    announced("stmxcsr", SSE, &[], &[0x0f, 0xae, 0x1f]),
    announced("movaps", SSE, &[], &[0x0f, 0x28, 0x07]),
    announced("movdqu", SSE2, &[], &[0xf3, 0x0f, 0x6f, 0x07]),
    announced("xorps", SSE, &[], &[0x0f, 0x57, 0xc0]),
    announced("paddd", SSE2, &[], &[0x66, 0x0f, 0xfe, 0xc0]),
    announced("crc32", SSE4_2, &[SSE4_2], &[0xf2, 0x48, 0x0f, 0x38, 0xf1, 0xc0]),
    announced("cmpxchg16b", CX16, &[CX16], &[0x48, 0x0f, 0xc7, 0x0f]),
    announced("movbe", MOVBE, &[MOVBE], &[0x48, 0x0f, 0x38, 0xf0, 0x07]),
    announced("popcnt", POPCNT, &[POPCNT], &[0xf3, 0x48, 0x0f, 0xb8, 0xc0]),
    announced("lzcnt", LZCNT, &[LZCNT], &[0xf3, 0x48, 0x0f, 0xbd, 0xc0]),
    announced("tzcnt", BMI1, &[BMI1], &[0xf3, 0x48, 0x0f, 0xbc, 0xc0]),
    announced("andn", BMI1, &[BMI1], &[0xc4, 0xe2, 0xf8, 0xf2, 0xc0]),
    announced("rorx", BMI2, &[BMI2], &[0xc4, 0xe3, 0xfb, 0xf0, 0xc0, 0x01]),
    announced("adcx", ADX, &[ADX], &[0x66, 0x48, 0x0f, 0x38, 0xf6, 0xc0]),
    announced("xgetbv", XSAVE, XSAVE_FAMILY, &[0x31, 0xc9, 0x0f, 0x01, 0xd0]),
    announced("xsave", XSAVE, XSAVE_FAMILY, &[0x48, 0x0f, 0xae, 0x27]),
    announced("xrstor", XSAVE, XSAVE_FAMILY, &[0x48, 0x0f, 0xae, 0x2f]),
    announced("xsaveopt", XSAVEOPT, &[XSAVEOPT], &[0x48, 0x0f, 0xae, 0x37]),
    announced("xsavec", XSAVEC, &[XSAVEC, XSAVES], &[0x48, 0x0f, 0xc7, 0x27]),
    announced("rdrand", RDRAND, &[RDRAND], &[0x48, 0x0f, 0xc7, 0xf0]),
    announced("rdseed", RDSEED, &[RDSEED], &[0x48, 0x0f, 0xc7, 0xf8]),
    announced("rdtscp", RDTSCP, &[RDTSCP], &[0x0f, 0x01, 0xf9]),
    announced("rdpid", RDPID, &[RDPID], &[0xf3, 0x0f, 0xc7, 0xf8]),
    announced("stac", SMAP, &[SMAP], &[0x0f, 0x01, 0xcb]),
    announced("clac", SMAP, &[SMAP], &[0x0f, 0x01, 0xca]),
    announced("rdfsbase", FSGSBASE, &[FSGSBASE], &[0xf3, 0x48, 0x0f, 0xae, 0xc0]),
    announced("wrgsbase", FSGSBASE, &[FSGSBASE], &[0xf3, 0x48, 0x0f, 0xae, 0xd8]),
    announced("rep movsb", ERMS, &[ERMS], &[0x48, 0x89, 0xfe, 0xb9, 0x10, 0, 0, 0, 0xf3, 0xa4]),
    announced("invpcid", INVPCID, &[INVPCID], &[
        0xb8, 0x02, 0x00, 0x00, 0x00, // mov $2, %eax: all contexts
        0x66, 0x0f, 0x38, 0x82, 0x07,
    ]),
    announced("clflushopt", CLFLUSHOPT, &[CLFLUSHOPT], &[0x66, 0x0f, 0xae, 0x3f]),
    announced("clwb", CLWB, &[CLWB], &[0x66, 0x0f, 0xae, 0x37]),
    announced("prefetchw", PREFETCHW, &[PREFETCHW], &[0x0f, 0x0d, 0x0f]),
];
