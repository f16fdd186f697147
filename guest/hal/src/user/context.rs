//! A program's thread: running it until it needs the library OS.

#![allow(unsafe_code)]

use alloc::boxed::Box;
use core::marker::PhantomData;

use super::entry;
use super::registers::Registers;
use super::vectors::{self, VectorState};
use crate::percpu::{self, Cpu};
use crate::ring::{self, service};
use crate::{cpu, cpuid};

/// Flags that a program may have: CF, PF, AF, ZF, SF, DF, OF, ID.
const ALLOWED_FLAGS: u64 = 0x20_0cd5;
/// The flag that is always set, and IF, which only shows that interrupts are on.
const FIXED_FLAGS: u64 = 0x202;

/// Behind the addresses that programs can have; further up some are not canonical.
const LOWER_HALF: u64 = 1 << 47;
const GENERAL_PROTECTION: u8 = 13;
const PAGE_FAULT: u8 = 14;
/// Error code: an instruction fetch in ring 3 from a page that is not there.
const FETCH_IN_RING_3: u32 = 1 << 4 | 1 << 2;

/// Why a program came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// SYSCALL: the number is in RAX, arguments in RDI, RSI, RDX, R10, R8 and R9, RIP is
    /// the instruction after it; RCX holds RIP and R11 the flags.
    SystemCall,
    /// A system call by a jump to [`super::jump_target`]: the same, but that RIP is what the
    /// program said, and the flags are not its own.
    Jump,
    /// An interrupt, which has been handled: a chance to run another thread.
    Interrupt,
    /// An exception at RIP.
    Fault {
        /// Its vector: 14 is a page fault.
        vector: u8,
        /// The processor's error code; of a page fault bit 0 present, 1 write, 4 fetch.
        error: u32,
        /// CR2; of page faults the address.
        address: u64,
    },
}

/// A thread of a program. It belongs to the CPU on which it is made, as fibers do.
#[derive(Debug)]
pub struct Context {
    /// Its general registers.
    pub registers: Registers,
    vectors: Box<VectorState>,
    /// Its vector state may be in this CPU's registers.
    stays: PhantomData<*mut ()>,
}

impl Context {
    /// A thread with these registers and fresh vector registers.
    pub fn new(registers: Registers) -> Self {
        Self::with_vectors(registers, Box::default())
    }

    /// A thread with these registers and vector registers, such as a copy of another's.
    pub(crate) fn with_vectors(registers: Registers, vectors: Box<VectorState>) -> Self {
        Self {
            registers,
            vectors,
            stays: PhantomData,
        }
    }

    /// The vector registers as they are now.
    pub fn vectors(&mut self) -> &mut VectorState {
        let loaded = &percpu::current().user.vectors;
        if loaded.get() == self.vectors_address() {
            self.vectors.save();
            // The caller may change them.
            loaded.set(0);
        }
        &mut self.vectors
    }

    /// Runs the program until it needs the library OS, unless `may_enter`, called with
    /// interrupt handlers off, says no; then nothing runs and the exit is an interrupt. An
    /// interrupt that comes after it has been called ends the program's run: a deadline that
    /// has to end it is armed there.
    ///
    /// # Panics
    /// In ring 0 of an image that declares no programs, in an interrupt handler, or with
    /// interrupts off.
    pub fn enter(&mut self, may_enter: impl FnOnce() -> bool) -> Exit {
        let isolates = ring::isolates();
        assert!(
            isolates || ring::is_user(),
            "this image runs programs in ring 3 only"
        );
        assert!(!cpu::in_interrupt(), "an interrupt handler runs no program");
        let cpu = percpu::current();
        self.load_fs_base(cpu);
        self.load_vectors(cpu);
        if isolates && let Some(fault) = cannot_go_on_at(self.registers.rip) {
            return fault;
        }
        let flags = self.registers.rflags & ALLOWED_FLAGS | FIXED_FLAGS;
        self.registers.rflags = flags;
        let state = cpu::disable_interrupts();
        assert!(state.were_on(), "a program runs with interrupts on");
        if !may_enter() {
            cpu::enable_interrupts();
            return Exit::Interrupt;
        }
        let enter = if isolates {
            entry::enter_from_ring_0
        } else {
            entry::enter
        };
        // SAFETY: 1. The flag is off. 2. The registers live until the call returns, which is
        //    before anything else of this CPU's threads runs. 3. What the program does with the
        //    address space is what `user` documents. 4. For ring 0 RIP and the flags are checked
        //    above.
        let reason = unsafe { enter(&raw mut self.registers) };
        // The program may have changed it; only a change by itself is lost, which
        // the library OS would have to offer (AT_HWCAP2).
        match reason {
            entry::INTERRUPT => Exit::Interrupt,
            entry::SYSTEM_CALL => {
                cpu::enable_interrupts();
                Exit::SystemCall
            }
            entry::JUMP => {
                cpu::enable_interrupts();
                Exit::Jump
            }
            _ => {
                let [vector, error, address] = &cpu.user.fault;
                let exit = Exit::Fault {
                    vector: vector.get() as u8,
                    error: error.get() as u32,
                    address: address.get(),
                };
                cpu::enable_interrupts();
                exit
            }
        }
    }

    fn load_fs_base(&self, cpu: &Cpu) {
        let base = self.registers.fs_base;
        if cpu.user.fs_base.get() == base {
            return;
        }
        if cpuid::has_fsgsbase() {
            // SAFETY: 1. `vectors::init` switched the instruction on. 2. The library OS does not
            //    use FS. 3. A base that is not canonical is refused by `is_canonical`.
            unsafe { core::arch::asm!("wrfsbase {}", in(reg) canonical(base)) };
        } else {
            service::call(service::WRITE_FS, [canonical(base), 0, 0]);
        }
        cpu.user.fs_base.set(base);
    }

    fn load_vectors(&self, cpu: &Cpu) {
        let own = self.vectors_address();
        let loaded = cpu.user.vectors.replace(own);
        if loaded == own {
            return;
        }
        if loaded != 0 {
            // SAFETY: 1. The address is that of a context's state on this CPU: contexts do not
            //    leave it, and take their address away when they are dropped. 2. That context
            //    does not run, so that nothing else uses its state.
            unsafe { (*(loaded as *mut VectorState)).save() };
        }
        self.vectors.restore();
    }

    fn vectors_address(&self) -> u64 {
        (&raw const *self.vectors).addr() as u64
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let loaded = &percpu::current().user.vectors;
        if loaded.get() == self.vectors_address() {
            loaded.set(0);
        }
    }
}

/// What going on at an address beyond the lower half gives, where IRETQ and SYSRET could not.
fn cannot_go_on_at(rip: u64) -> Option<Exit> {
    if rip < LOWER_HALF {
        return None;
    }
    let is_page = canonical(rip) == rip;
    Some(Exit::Fault {
        vector: if is_page {
            PAGE_FAULT
        } else {
            GENERAL_PROTECTION
        },
        error: if is_page { FETCH_IN_RING_3 } else { 0 },
        address: rip,
    })
}

/// The nearest address with equal upper bits: others fault when loaded.
fn canonical(address: u64) -> u64 {
    ((address << 16) as i64 >> 16) as u64
}

const _: () = assert!(vectors::BYTES.is_multiple_of(64));
