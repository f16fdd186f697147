//! What keeps ring 0 off programs' memory by mistake, where the library OS is there.

#![allow(unsafe_code)]

use x86_64::registers::control::{Cr4, Cr4Flags};

use crate::{cpuid, ring};

/// Has this CPU fault where ring 0 executes a program's page, and where ring 3 reads the addresses
/// of descriptor tables (Intel SDM vol. 3A, 2.5: SMEP, UMIP), as far as it can. In ring 0, when
/// no page of the library OS is a program's any more.
pub(crate) fn keep_out() {
    if !ring::isolates() {
        return;
    }
    let mut flags = Cr4Flags::empty();
    flags.set(
        Cr4Flags::SUPERVISOR_MODE_EXECUTION_PROTECTION,
        cpuid::has_smep(),
    );
    flags.set(
        Cr4Flags::USER_MODE_INSTRUCTION_PREVENTION,
        cpuid::has_umip(),
    );
    // SAFETY: 1. In ring 0 (`isolates`). 2. CPUID names each feature that is switched on. 3. The
    //    page tables have no page for programs that the library OS executes (`paging::protect`).
    unsafe { Cr4::write_raw(Cr4::read_raw() | flags.bits()) };
}
