//! Ends of an image in ring 3 that keep no rule, drawn at random, for tests: each must end the
//! image with a report of registers, and never the monitor.
//!
//! An end is a few instructions, entered with any values in all registers: jumps into ring
//! 0's code, frames that no processor returns to, privileged instructions, interrupts upon a
//! stack or an area of the CPU that does not exist.

#![allow(unsafe_code)]

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, Ordering};

use tare_abi::layout::LAPIC;

use super::{gate, service};
use crate::memory::supervisor;
use crate::trap::registers::load_registers;
use crate::trap::vector;

/// What ends the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WildEnd {
    /// IRETQ with a frame of random words, or nearly right ones.
    Frame,
    /// A far return with such a frame.
    FarReturn,
    /// A jump to any byte of ring 0's entry code.
    EntryCode,
    /// An access to ring 0's memory, or a jump there.
    Ring0Memory,
    /// An instruction that ring 3 may not execute.
    Privileged,
    /// `int N` with a vector that ring 3 may not raise.
    Vector,
    /// An interrupt upon a stack pointer that leads nowhere.
    Stack,
    /// An interrupt while GS leads nowhere.
    Area,
    /// A trap after each instruction.
    Step,
    /// A segment register with any selector.
    Segment,
    /// A system call of the library OS itself.
    SystemCall,
    /// A jump to any address.
    Jump,
    /// Any service of ring 0 with any arguments, then an invalid instruction.
    Service,
}

impl WildEnd {
    /// All kinds.
    pub const ALL: [Self; 13] = [
        Self::Frame,
        Self::FarReturn,
        Self::EntryCode,
        Self::Ring0Memory,
        Self::Privileged,
        Self::Vector,
        Self::Stack,
        Self::Area,
        Self::Step,
        Self::Segment,
        Self::SystemCall,
        Self::Jump,
        Self::Service,
    ];
}

/// An end with its registers.
#[derive(Debug)]
pub struct Wild {
    /// The kind.
    pub end: WildEnd,
    entry: u64,
    registers: [u64; REGISTERS],
    frame: [u64; 5],
}

/// RAX, RBX, RCX, RDX, RSI, RDI, RBP, R8 to R15, RSP, RFLAGS.
const REGISTERS: usize = 17;
const RAX: usize = 0;
const RCX: usize = 2;
const RDI: usize = 5;
const R15: usize = 14;
const RSP: usize = 15;
const FLAGS: usize = 16;
/// Carry, parity, adjust, zero, sign, direction, overflow, nested task, alignment check, ID.
const FREE_FLAGS: u64 = 0x24_4cd5;
const ALWAYS_FLAGS: u64 = 0x202;
const TRAP_FLAG: u64 = 0x100;
/// Bytes of an end, and of one of a vector.
const SLOT: u64 = 16;
const VECTOR_SLOT: u64 = 4;
/// Mapped nowhere.
const UNMAPPED: u64 = 0x6000_0000_0000;
/// The interrupt that a CPU sends itself, by the shorthand "self".
const TO_SELF: u32 = vector::WAKE as u32 | 1 << 14 | 1 << 18;
/// Turns of the loop in which it comes.
const TURNS: u32 = 1 << 20;

/// Where the code of an end lies, for `tare_wild_run`.
#[unsafe(no_mangle)]
static tare_wild_entry: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    static tare_wild_frame: u8;
    static tare_wild_far_return: u8;
    static tare_wild_jump: u8;
    static tare_wild_accesses: u8;
    static tare_wild_accesses_end: u8;
    static tare_wild_privileged: u8;
    static tare_wild_privileged_end: u8;
    static tare_wild_segments: u8;
    static tare_wild_segments_end: u8;
    static tare_wild_vectors: u8;
    static tare_wild_interrupt: u8;
    static tare_wild_area: u8;
    static tare_wild_step: u8;
    static tare_wild_system_call: u8;
    static tare_wild_service: u8;
    fn tare_wild_run(registers: &[u64; REGISTERS]) -> !;
}

fn address(code: *const u8) -> u64 {
    code.addr() as u64
}

impl Wild {
    /// Draws an end: consecutive seeds have all kinds in turn.
    pub fn draw(seed: u64) -> Self {
        let end = WildEnd::ALL[(seed % WildEnd::ALL.len() as u64) as usize];
        // Another state for each seed of 63 bits, and never zero, which would stay.
        let mut state = seed << 1 | 1;
        let mut draw = move || {
            // Marsaglia's xorshift64, a few times: small seeds are alike at first.
            for _ in 0..8 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
            }
            state
        };
        let mut registers = [0; REGISTERS];
        registers.iter_mut().for_each(|register| *register = draw());
        registers[FLAGS] = registers[FLAGS] & FREE_FLAGS | ALWAYS_FLAGS;
        let mut wild = Self {
            end,
            entry: 0,
            registers,
            frame: core::array::from_fn(|_| draw()),
        };
        let one_of = |start: *const u8, end: *const u8, number: u64| {
            let slots = (address(end) - address(start)) / SLOT;
            address(start) + number % slots * SLOT
        };
        let parts = supervisor::image_parts().map(|part| part.range);
        let within = |part: usize, number: u64| {
            let range = &parts[part % parts.len()];
            range.start + number % (range.end - range.start).max(1)
        };
        wild.entry = match end {
            WildEnd::Frame => address(&raw const tare_wild_frame),
            WildEnd::FarReturn => address(&raw const tare_wild_far_return),
            WildEnd::EntryCode => {
                wild.registers[R15] = within(0, draw());
                address(&raw const tare_wild_jump)
            }
            WildEnd::Ring0Memory => {
                wild.registers[R15] = within(draw() as usize, draw());
                one_of(
                    &raw const tare_wild_accesses,
                    &raw const tare_wild_accesses_end,
                    draw(),
                )
            }
            WildEnd::Privileged => one_of(
                &raw const tare_wild_privileged,
                &raw const tare_wild_privileged_end,
                draw(),
            ),
            WildEnd::Segment => one_of(
                &raw const tare_wild_segments,
                &raw const tare_wild_segments_end,
                draw(),
            ),
            WildEnd::Vector => address(&raw const tare_wild_vectors) + draw() % 256 * VECTOR_SLOT,
            WildEnd::Stack => {
                wild.registers[RSP] = [UNMAPPED, 8, draw()][draw() as usize % 3];
                address(&raw const tare_wild_interrupt)
            }
            WildEnd::Area => {
                let text = address(&raw const tare_wild_area);
                wild.registers[R15] = [UNMAPPED, 0, text, draw()][draw() as usize % 4];
                address(&raw const tare_wild_area)
            }
            WildEnd::Step => {
                wild.registers[FLAGS] |= TRAP_FLAG;
                address(&raw const tare_wild_step)
            }
            WildEnd::SystemCall => address(&raw const tare_wild_system_call),
            WildEnd::Jump => address(&raw const tare_wild_jump),
            WildEnd::Service => {
                // Two beyond the last.
                wild.registers[RDI] = draw() % (service::LAST + 3);
                address(&raw const tare_wild_service)
            }
        };
        // Half of the frames and selectors are nearly right.
        if draw() % 2 == 0 {
            let selectors = [
                0,
                8,
                16,
                u64::from(gate::USER_CODE),
                u64::from(gate::USER_DATA),
            ];
            wild.frame[1] = selectors[draw() as usize % selectors.len()];
            wild.frame[4] = selectors[draw() as usize % selectors.len()];
            wild.registers[RAX] = draw() % 256;
        }
        wild
    }

    /// Ends the image.
    ///
    /// # Panics
    /// In ring 0, where the image would only break itself.
    pub fn end(mut self) -> ! {
        assert!(super::is_user(), "only ring 3 has a ring to be kept out of");
        match self.end {
            WildEnd::Frame | WildEnd::FarReturn => {
                self.registers[RSP] = self.frame.as_ptr().addr() as u64;
            }
            WildEnd::Stack => {}
            _ => {
                // SAFETY: 1. The instruction reads the stack pointer into a word of this value and
                //    changes nothing else.
                unsafe { asm!("mov {}, rsp", out(reg) self.registers[RSP], options(nomem)) };
            }
        }
        if matches!(self.end, WildEnd::Stack | WildEnd::Area) {
            self.registers[RCX] = u64::from(TURNS);
        }
        tare_wild_entry.store(self.entry, Ordering::Relaxed);
        // SAFETY: 1. The registers are valid for reads: the code loads each once. 2. The code that
        //    it jumps to faults, or loops until an interrupt does, and a fault ends the image:
        //    nothing runs behind it. 3. Ring 3 (asserted above) cannot change ring 0's memory,
        //    whatever the registers hold.
        unsafe { tare_wild_run(&self.registers) }
    }
}

global_asm!(
    r#"
    .macro wild code:vararg
    .balign {slot}
    \code
    ud2
    .endm

    .section .text.tare_wild, "ax", @progbits
    .global tare_wild_run
tare_wild_run:
    push qword ptr [rdi + 128]
    popfq
    mov rsp, [rdi + 120]
    "#,
    load_registers!(),
    r#"
    jmp qword ptr [rip + tare_wild_entry]

    .global tare_wild_frame
tare_wild_frame:
    wild iretq
    .global tare_wild_far_return
tare_wild_far_return:
    wild retfq
    .global tare_wild_jump
tare_wild_jump:
    wild jmp r15
    .global tare_wild_step
tare_wild_step:
    wild nop
    .global tare_wild_system_call
tare_wild_system_call:
    wild syscall
    .global tare_wild_service
tare_wild_service:
    wild int 4

    .balign {slot}
    .global tare_wild_accesses
    .global tare_wild_accesses_end
tare_wild_accesses:
    wild mov rax, [r15]
    wild mov [r15], rax
    wild lock or [r15], rax
    wild jmp r15
    wild call r15
    .balign {slot}
tare_wild_accesses_end:

    .global tare_wild_privileged
    .global tare_wild_privileged_end
tare_wild_privileged:
    wild cli
    wild sti
    wild hlt
    wild lgdt [rsp]
    wild lidt [rsp]
    wild lldt ax
    wild ltr ax
    wild lmsw ax
    wild clts
    wild invd
    wild wbinvd
    wild invlpg [rax]
    wild swapgs
    wild sysretq
    wild sysexit
    wild rdmsr
    wild wrmsr
    wild xsetbv
    wild mov cr0, rax
    wild mov cr3, rax
    wild mov cr4, rax
    wild mov cr8, rax
    wild mov rax, cr0
    wild mov rax, cr3
    wild mov dr7, rax
    wild mov rax, dr7
    .balign {slot}
tare_wild_privileged_end:

    .global tare_wild_segments
    .global tare_wild_segments_end
tare_wild_segments:
    wild mov ds, eax
    wild mov es, eax
    wild mov fs, eax
    wild mov gs, eax
    wild mov ss, eax
    .balign {slot}
tare_wild_segments_end:

    .global tare_wild_vectors
tare_wild_vectors:
    .set vector, 0
    .rept 256
    .byte 0xcd, vector          // int
    ud2
    .set vector, vector + 1
    .endr

    .global tare_wild_area
    .global tare_wild_interrupt
tare_wild_area:
    wrgsbase r15
tare_wild_interrupt:
    mov eax, {command}
    mov dword ptr [rax], {to_self}
2:
    pause
    dec ecx
    jnz 2b
    ud2
    .purgem wild
    "#,
    slot = const SLOT,
    command = const LAPIC + 0x300,
    to_self = const TO_SELF,
);
