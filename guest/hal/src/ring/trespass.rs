//! What ring 3 must not be able to do, for tests: each ends the image with a fault,
//! or is refused by the gate. And the gates with any registers, in any order.

#![allow(unsafe_code)]

use core::arch::{asm, global_asm};
use core::sync::atomic::AtomicU8;

use super::{gate, service};
use crate::apic::eoi;
use crate::memory::layout::STACKS;
use crate::memory::{paging, supervisor};
use crate::trap::registers::load_registers;
use crate::{clock, cpu, ipi};

/// An attempt on ring 0's memory or gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trespass {
    /// Writes to a page table.
    WritePageTable,
    /// Writes to the memory for page tables outside the image.
    WriteFurtherTable,
    /// Writes to the memory with the descriptor tables.
    WriteDescriptors,
    /// Reads from there.
    ReadDescriptors,
    /// Jumps to ring 0's entry code.
    Jump,
    /// Writes to the image's own code.
    WriteText,
    /// Executes the image's own data.
    ExecuteData,
    /// Executes `cli`.
    Privileged,
    /// Goes through the halt gate's sibling, the service gate, and on without a stack.
    NoStack,
    /// Returns to an address that no processor has.
    WildReturn,
    /// Takes the CPU's area from ring 0's entry code, which finds it by GS.
    NoArea,
}

/// Tries it. In ring 0 there is nothing to trespass on: the image would break
/// itself.
///
/// # Panics
/// In ring 0, or if it succeeds.
pub fn trespass(what: Trespass) -> ! {
    assert!(super::is_user(), "only ring 3 can trespass");
    let [_, tables, descriptors] = supervisor::image_parts().map(|part| part.range.start);
    match what {
        // SAFETY: 1. The write faults, or the panic below ends the image: nothing runs that depends
        //    on the table.
        Trespass::WritePageTable => unsafe { (tables as *mut u64).write_volatile(0) },
        Trespass::WriteFurtherTable => {
            let further = supervisor::further_start_at(paging::WINDOW);
            assert_ne!(further, 0, "the machine has no further tables");
            // SAFETY: 1. The write faults, or the panic below ends the image: nothing runs that
            //    depends on the tables.
            unsafe { (further as *mut u64).write_volatile(0) }
        }
        // SAFETY: 1. The write faults, or the panic below ends the image: nothing runs that depends
        //    on the tables.
        Trespass::WriteDescriptors => unsafe { (descriptors as *mut u64).write_volatile(0) },
        // SAFETY: 1. The read faults, or the panic below ends the image.
        Trespass::ReadDescriptors => drop(unsafe { (descriptors as *const u64).read_volatile() }),
        // SAFETY: 1. The call faults, or the panic below ends the image.
        Trespass::Jump => unsafe { asm!("call {}", in(reg) gate::halt(), clobber_abi("C")) },
        // SAFETY: 1. The write faults, or the panic below ends the image: the code has begun
        //    already.
        Trespass::WriteText => unsafe { (trespass as *mut u64).write_volatile(0) },
        // SAFETY: 1. The call faults, or returns at once: the byte is `ret`.
        Trespass::ExecuteData => unsafe {
            static RETURN: AtomicU8 = AtomicU8::new(0xc3);
            asm!("call {}", in(reg) RETURN.as_ptr(), clobber_abi("C"));
        },
        // SAFETY: 1. The instruction faults in ring 3 (asserted above), or the panic below ends the
        //    image.
        Trespass::Privileged => unsafe { asm!("cli") },
        // SAFETY: 1. The gate does not use the stack pointer of ring 3, and the push faults:
        //    nothing is mapped at 0x1000 less 8, in page 0. The image ends.
        Trespass::NoStack => unsafe {
            asm!("mov rsp, 0x1000", "mov edi, 5", "int 4", "push rax");
        },
        // SAFETY: 1. The return faults: no processor has the address. The image ends.
        Trespass::WildReturn => unsafe {
            asm!("push {wild}", "ret", wild = in(reg) 0x4141_4141_4141_4141_u64);
        },
        // SAFETY: 1. The code that follows finds the CPU's area at address 0, in page 0, where
        //    nothing is mapped: it faults, or the panic below does. The image ends.
        Trespass::NoArea => unsafe { asm!("wrgsbase {}", in(reg) 0_u64) },
    }
    panic!("{what:?} succeeded")
}

/// Asks the service gate for what it must refuse, with registers drawn from `seed`, and
/// goes through the halt gate in between; gives how many requests the gate took as they
/// were. The image goes on afterwards.
///
/// # Panics
/// In ring 0, or if a gate changes a register or flag that it must keep.
pub fn ask_nonsense(seed: u64, requests: u32) -> u32 {
    assert!(super::is_user(), "only ring 3 asks");
    // Another state for each seed of 63 bits, and never zero, which would stay.
    let mut state = seed << 1 | 1;
    let mut draw = move || {
        // Marsaglia's xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let upcalls = (ask_nonsense as *const ()).addr() as u64 & !4095;
    for (address, entry) in [(upcalls, 0), (upcalls, upcalls | 7), (0x6000_0000_0000, 7)] {
        for number in [service::SET_PAGES, service::SET_NEW_PAGES] {
            let answer = service::call(number, [address, entry, 1]);
            // The last one maps a page of the first MiB, which is ring 3's.
            let expected = u64::from(entry == 7);
            assert_eq!(
                answer, expected,
                "{number}, entry {entry:#x} at {address:#x}"
            );
        }
        let answer = service::call(service::CLEAR_PAGES, [address, 0, 1]);
        assert_eq!(answer, u64::from(entry == 7), "clearing {address:#x}");
    }
    let own = supervisor::image_parts().map(|part| part.range.start);
    ask_for_shared_bytes(&own);
    ask_for_frames(&own);
    let mut taken = 0;
    for _ in 0..requests {
        // Small numbers and addresses of ring 0's memory find more than random ones.
        let mut argument = || match draw() % 4 {
            0 => draw() % 8,
            1 => own[draw() as usize % own.len()] + (draw() % 64) * 4096,
            2 => 0x7000_0000_0000 + draw() % (1 << 40) / 4096 * 4096,
            _ => draw(),
        };
        let arguments = [argument(), argument(), argument()];
        let mut registers = Registers([0; REGISTERS]);
        registers
            .0
            .iter_mut()
            .for_each(|register| *register = draw());
        registers.0[FLAGS] = registers.0[FLAGS] & FREE_FLAGS | ALWAYS_FLAGS;
        if draw() % 4 == 0 {
            registers.halt();
        }
        // Numbers beyond the last, and those of which every answer is harmless.
        let number = match draw() % 13 {
            0 => service::MAP_PAGES,
            1 => service::WRITE_MSR,
            2 => service::READ_MSR,
            3 => service::SET_PAGES,
            4 => service::WRITE_FS,
            5 => service::FLUSH,
            6 => service::OPEN,
            7 => service::SET_NEW_PAGES,
            8 => service::CLEAR_PAGES,
            9 => service::MAP_GIB,
            10 => service::SET_LARGE_PAGE,
            11 => service::ASK_FOR_HUGE_PAGE,
            _ => service::LAST + 1 + draw() % (1 << 32),
        };
        taken += u32::from(registers.ask(number, arguments) == 1);
    }
    taken
}

/// Asks for ring 0's frames by addresses with bits that a processor ignores in an entry, and for
/// frames whose last ones carry into those bits.
fn ask_for_frames(parts: &[u64]) {
    // In the window of stacks, where few are in use.
    let page = STACKS.end - 4 * 4096;
    for (frame, count) in parts
        .iter()
        .flat_map(|part| (51..63).map(move |bit| (*part | 1 << bit, 1)))
        .chain([((1 << 52) - 4096, 2)])
    {
        let answer = service::call(service::MAP_PAGES, [page, frame, count]);
        assert_ne!(answer, 1, "{count} frames from {frame:#x}");
        let entry = frame | 7;
        let answer = service::call(service::SET_PAGES, [0x6000_0000_0000, entry, count]);
        assert_ne!(answer, 1, "{count} frames by entry {entry:#x}");
    }
    // The large page that holds a part, one that begins within another, and not a program's.
    let large = 2 << 20;
    for part in parts {
        for (address, frame) in [
            (0x6000_4000_0000, part & !(large - 1)),
            (0x6000_4000_0000, (part & !(large - 1)) + 4096),
            (0x6000_4000_1000, 512 * large),
            (STACKS.end - large, 512 * large),
        ] {
            let answer = service::call(service::SET_LARGE_PAGE, [address, frame | 7, 0]);
            assert_ne!(answer, 1, "2 MiB at {address:#x} from {frame:#x}");
        }
    }
}

/// Asks for bytes that KVM writes, at every distance at which the last of them would be ring 0's.
fn ask_for_shared_bytes(parts: &[u64]) {
    for (register, bytes) in clock::SHARED_REGISTERS.iter().chain(&eoi::SHARED_REGISTERS) {
        for start in parts {
            for address in start - bytes + 1..=*start {
                let answer = service::call(service::WRITE_MSR, [u64::from(*register), address, 0]);
                assert_eq!(answer, u64::MAX, "{bytes} bytes at {address:#x}");
            }
        }
    }
}

/// RAX, RBX, RCX, RDX, RSI, RDI, RBP, R8 to R15, RFLAGS.
const REGISTERS: usize = 16;
const RAX: usize = 0;
const RCX: usize = 2;
const RDX: usize = 3;
const RSI: usize = 4;
const RDI: usize = 5;
const FLAGS: usize = 15;
/// Those that a called function keeps: RBX, RBP, R12 to R15; and all flags, by IRETQ.
const KEPT: [usize; 7] = [1, 6, 11, 12, 13, 14, FLAGS];
/// Carry, parity, adjust, zero, sign, direction, overflow, alignment check, ID. Not nested task:
/// a KVM that emulates ring 0 clears it on the way.
const FREE_FLAGS: u64 = 0x24_0cd5;
/// Interrupts are on, and a bit that is always one.
const ALWAYS_FLAGS: u64 = 0x202;

/// What is in the registers before and behind a gate.
#[repr(C)]
struct Registers([u64; REGISTERS]);

impl Registers {
    /// Goes through the service gate.
    fn ask(&mut self, number: u64, arguments: [u64; 3]) -> u64 {
        self.0[RDI] = number;
        for (register, argument) in [RSI, RDX, RCX].into_iter().zip(arguments) {
            self.0[register] = argument;
        }
        let before = self.0;
        // SAFETY: 1. The code stores all registers where it took them from, and gives back its
        //    caller's. 2. What a service does is its own to check.
        unsafe { tare_fuzz_service(&mut self.0) };
        for register in KEPT {
            assert_eq!(self.0[register], before[register], "register {register}");
        }
        self.0[RAX]
    }

    /// Goes through the halt gate; an interrupt ends the halt.
    fn halt(&mut self) {
        let before = self.0;
        let interrupts = cpu::disable_interrupts();
        ipi::wake(cpu::index());
        // SAFETY: 1. The code stores all registers where it took them from, and gives back its
        //    caller's. 2. The halt gate takes no arguments; `wake` has made an interrupt pending,
        //    which ends the halt.
        unsafe { tare_fuzz_halt(&mut self.0) };
        cpu::restore_interrupts(interrupts);
        assert_eq!(self.0, before, "the halt gate changes nothing");
    }
}

unsafe extern "C" {
    fn tare_fuzz_halt(registers: &mut [u64; REGISTERS]);
    fn tare_fuzz_service(registers: &mut [u64; REGISTERS]);
}

global_asm!(
    r#"
    .macro fuzz_gate name, number
    .section .text.\name, "ax", @progbits
    .global \name
\name:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    push rdi
    push qword ptr [rdi + 120]
    popfq
    "#,
    load_registers!(),
    r#"
    \number
    push rdi
    mov rdi, [rsp + 8]
    mov [rdi], rax
    mov [rdi + 8], rbx
    mov [rdi + 16], rcx
    mov [rdi + 24], rdx
    mov [rdi + 32], rsi
    mov [rdi + 48], rbp
    mov [rdi + 56], r8
    mov [rdi + 64], r9
    mov [rdi + 72], r10
    mov [rdi + 80], r11
    mov [rdi + 88], r12
    mov [rdi + 96], r13
    mov [rdi + 104], r14
    mov [rdi + 112], r15
    pop qword ptr [rdi + 40]
    pushfq
    pop qword ptr [rdi + 120]
    cld
    pop rdi
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret
    .endm
    fuzz_gate tare_fuzz_halt, int3
    fuzz_gate tare_fuzz_service, "int 4"
    .purgem fuzz_gate
    "#
);
