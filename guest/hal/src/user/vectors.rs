//! Vector registers: SSE and AVX. The library OS is compiled without them, so that
//! interrupts and system calls leave them alone; only another program's thread
//! makes it save and restore them (Intel SDM vol. 1, chapter 13).

#![allow(unsafe_code)]

use core::arch::asm;
use core::arch::x86_64::{_fxrstor64, _fxsave64};

use x86_64::registers::control::{Cr0, Cr0Flags, Cr4, Cr4Flags};

use crate::cpuid;

/// x87, SSE, AVX, and the three parts of AVX-512, as bits of XCR0.
const PARTS: u32 = 0xe7;
/// Bytes of these parts in XSAVE's standard format.
pub(super) const BYTES: usize = 2688;
/// Offset of MXCSR, and its value after a reset: all exceptions masked.
const MXCSR: usize = 24;
const MXCSR_RESET: u32 = 0x1f80;
/// x87 control word after FNINIT, at offset 0.
const CONTROL_RESET: u16 = 0x37f;

/// Contents of the vector registers, in XSAVE's standard format.
#[derive(Clone)]
#[repr(C, align(64))]
pub struct VectorState([u8; BYTES]);

impl Default for VectorState {
    fn default() -> Self {
        let mut state = Self([0; BYTES]);
        state.0[..2].copy_from_slice(&CONTROL_RESET.to_le_bytes());
        state.0[MXCSR..MXCSR + 4].copy_from_slice(&MXCSR_RESET.to_le_bytes());
        state
    }
}

impl core::fmt::Debug for VectorState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("VectorState").finish_non_exhaustive()
    }
}

impl VectorState {
    /// The bytes, as FXSAVE and XSAVE lay them out.
    pub fn bytes(&self) -> &[u8] {
        &self.0[..used_bytes()]
    }

    /// Replaces the x87 and SSE part and, as far as they are given, the others, with what
    /// a program says. Reserved bits are cleared, since loading them would fault.
    ///
    /// # Errors
    /// If these are not the 512 bytes of FXSAVE or all of [`VectorState::bytes`].
    pub fn set_bytes(&mut self, bytes: &[u8]) -> Result<(), WrongLength> {
        const LEGACY: usize = 512;
        const HEADER: usize = 64;
        let used = used_bytes();
        if bytes.len() != LEGACY && bytes.len() != used {
            return Err(WrongLength);
        }
        self.0[..bytes.len()].copy_from_slice(bytes);
        let mxcsr = &mut self.0[MXCSR..MXCSR + 4];
        let value = u32::from_le_bytes([mxcsr[0], mxcsr[1], mxcsr[2], mxcsr[3]]) & 0xffff;
        mxcsr.copy_from_slice(&value.to_le_bytes());
        let header = &mut self.0[LEGACY..LEGACY + HEADER];
        let first = u64::from_le_bytes([
            header[0], header[1], header[2], header[3], header[4], header[5], header[6], header[7],
        ]);
        // The legacy part is always there.
        let present = (first & u64::from(parts())) | 3;
        header.fill(0);
        header[..8].copy_from_slice(&present.to_le_bytes());
        Ok(())
    }

    /// Takes the registers' contents.
    pub(super) fn save(&mut self) {
        let area = self.0.as_mut_ptr();
        if cpuid::extended_state().is_none() {
            // SAFETY: 1. `init` switched the instructions on. 2. The state has 512 bytes and
            //    more, aligned to 16.
            unsafe { _fxsave64(area) };
            return;
        }
        // SAFETY: 1. `init` switched XSAVE on. 2. The parts asked for end within `BYTES` on every
        //    processor that has them: at 2,688 bytes in Intel's layout, at 2,432 in AMD's. 3. The
        //    state is aligned to 64 and borrowed exclusively.
        unsafe {
            asm!("xsave64 [{}]", in(reg) area, in("eax") parts(), in("edx") 0, options(nostack));
        }
    }

    /// Gives the registers these contents.
    pub(super) fn restore(&self) {
        let area = self.0.as_ptr();
        if cpuid::extended_state().is_none() {
            // SAFETY: 1. `init` switched the instructions on. 2. `set_bytes` leaves no reserved
            //    bit of MXCSR set.
            unsafe { _fxrstor64(area) };
            return;
        }
        // SAFETY: 1. `init` switched XSAVE on, with these parts. 2. The state is aligned to 64 and
        //    as long as they need (`save`). 3. It holds no reserved bit of MXCSR or the header,
        //    which would fault: `set_bytes` clears them, and `save` sets none.
        unsafe {
            asm!("xrstor64 [{}]", in(reg) area, in("eax") parts(), in("edx") 0, options(nostack));
        }
    }
}

/// Bytes that are not a saved vector state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongLength;

/// The parts that this processor has.
fn parts() -> u32 {
    cpuid::extended_state().map_or(0, |(supported, _)| supported & PARTS)
}

/// Bytes of these parts.
fn used_bytes() -> usize {
    match parts() {
        0 => 512,
        parts if parts & 0xe0 != 0 => BYTES,
        parts if parts & 4 != 0 => 832,
        _ => 576,
    }
}

/// Switches SSE, AVX and FS.base's instruction on, if the processor has them. In
/// ring 0, on each CPU.
pub(super) fn init() {
    let mut flags = Cr4Flags::OSFXSR | Cr4Flags::OSXMMEXCPT_ENABLE;
    let parts = parts();
    flags.set(Cr4Flags::OSXSAVE, parts != 0);
    flags.set(Cr4Flags::FSGSBASE, cpuid::has_fsgsbase());
    // SAFETY: 1. In ring 0. 2. CPUID names each feature that is switched on; all 64-bit
    //    processors have FXSAVE and SSE. 3. The memory mapping does not change.
    unsafe { Cr4::write_raw(Cr4::read_raw() | flags.bits()) };
    let control =
        Cr0::read_raw() & !(Cr0Flags::EMULATE_COPROCESSOR | Cr0Flags::TASK_SWITCHED).bits();
    let coprocessor = Cr0Flags::MONITOR_COPROCESSOR | Cr0Flags::NUMERIC_ERROR;
    // SAFETY: 1. In ring 0. 2. Every 64-bit processor has the floating point unit, so that no bit
    //    set here is reserved. 3. Paging and protection stay as they are.
    unsafe { Cr0::write_raw(control | coprocessor.bits()) };
    if parts != 0 {
        // SAFETY: 1. CR4.OSXSAVE is set. 2. CPUID names every part; x87 is among them.
        unsafe {
            asm!("xsetbv", in("ecx") 0, in("eax") parts, in("edx") 0, options(nomem, nostack));
        }
    }
}
