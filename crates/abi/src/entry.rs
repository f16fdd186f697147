//! How the first processor enters an image, as plain data: `boot` decides it,
//! `hv` turns it into registers.
//!
//! The other processors wait for INIT and start-up interrupts, as on hardware.

use crate::layout;

/// The first processor's state at the image's first instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryState {
    /// Processor mode.
    pub mode: EntryMode,
    /// Address of the first instruction.
    pub rip: u64,
    /// RBX: `hvm_start_info` in the PVH protocol, else 0.
    pub rbx: u64,
    /// RSI: boot parameters in the 64-bit Linux protocol, else 0.
    pub rsi: u64,
    /// RSP; 0 where the protocol gives no stack.
    pub rsp: u64,
}

/// Processor mode at entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryMode {
    /// Flat 32-bit protected mode, paging off (Xen `docs/misc/pvh.pandoc`).
    Protected32,
    /// 64-bit mode with flat segments (Linux `Documentation/arch/x86/boot.rst`,
    /// 64-bit protocol).
    Long64 {
        /// Physical address of the top-level page table.
        page_table: u64,
    },
}

impl EntryState {
    /// The PVH entry at `rip` with its start info at [`layout::PVH_START_INFO`].
    pub const fn pvh(rip: u64) -> Self {
        Self {
            mode: EntryMode::Protected32,
            rip,
            rbx: layout::PVH_START_INFO,
            rsi: 0,
            rsp: 0,
        }
    }

    /// The 64-bit Linux entry at `rip` with its boot parameters at
    /// [`layout::ZERO_PAGE`].
    pub const fn linux(rip: u64) -> Self {
        Self {
            mode: EntryMode::Long64 {
                page_table: layout::BOOT_PAGE_TABLE,
            },
            rip,
            rbx: 0,
            rsi: layout::ZERO_PAGE,
            rsp: 0,
        }
    }
}

/// Selector of the code segment at entry.
pub const CODE_SELECTOR: u16 = 0x10;
/// Selector of the data and stack segments at entry.
pub const DATA_SELECTOR: u16 = 0x18;
/// Selector of the task state segment at entry.
pub const TASK_SELECTOR: u16 = 0x20;

/// The boot GDT, at [`layout::BOOT_GDT`], for `mode`: two null entries, code,
/// data and a task state segment.
pub const fn boot_gdt(mode: EntryMode) -> [u64; 5] {
    let code = match mode {
        EntryMode::Protected32 => 0x00cf_9b00_0000_ffff,
        EntryMode::Long64 { .. } => 0x00af_9b00_0000_ffff,
    };
    [0, 0, code, 0x00cf_9300_0000_ffff, 0x0000_8b00_0000_0067]
}
