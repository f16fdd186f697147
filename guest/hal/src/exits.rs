//! Measures instructions that cause exits: each in its own loop, timed by the
//! time stamp counter. None has a lasting effect.

#![allow(unsafe_code)]

use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::hint::black_box;

use tare_abi::layout::IOAPIC;
use x86_64::instructions::port::Port;
use x86_64::registers::control::Cr3;
use x86_64::registers::model_specific::Msr;

use crate::apic::timed;
use crate::cpu::CpuSet;
use crate::ipi::Several;
use crate::ring::service;
use crate::{clock, cpu, cpuid, ipi, memory, pci, ring, smp};

/// First controller's mask, which an in-kernel interrupt controller serves.
const PIC_MASK: u16 = 0x21;
/// A UART's line status and scratch registers, which the monitor serves.
const LINE_STATUS: u16 = 0x3fd;
const SCRATCH: u16 = 0x3ff;
const IA32_TSC_DEADLINE: u32 = 0x6e0;
/// `KVM_HC_VAPIC_POLL_IRQ`, which does nothing.
const HYPERCALL: u64 = 1;
/// A number that the service gate does not know.
const NO_SERVICE: u64 = u64::MAX;
/// A deadline that does not come.
const FAR: u64 = 1 << 62;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The loop by itself.
    Control,
    /// CPUID.
    Cpuid,
    /// VMCALL or VMMCALL.
    Hypercall,
    /// A port that the kernel's interrupt controller serves.
    PioInKernel,
    /// The same, written.
    PioOutKernel,
    /// A port that the monitor serves.
    PioInUser,
    /// The same, written.
    PioOutUser,
    /// A register of the kernel's IOAPIC.
    MmioKernel,
    /// A register in a PCI device's BAR.
    MmioUser,
    /// The timer's deadline.
    TscDeadline,
    /// The timer's initial count.
    TimerCount,
    /// An end of interrupt while none is in service.
    Eoi,
    /// An interrupt to this CPU, with its handling.
    SelfIpi,
    /// An interrupt to the second CPU.
    Ipi,
    /// Interrupts to all other CPUs, a command for each.
    IpiEach,
    /// The same by one command to the x2APICs' cluster.
    IpiCluster,
    /// The same by one call of KVM.
    IpiHypercall,
    /// CR3 written with what it holds.
    Cr3,
    /// A call of the service gate, which refuses it. Ring 3 only.
    Gate,
}

impl Exit {
    /// All, with their names.
    pub const ALL: [(Self, &'static str); 19] = [
        (Self::Control, "control"),
        (Self::Cpuid, "cpuid"),
        (Self::Hypercall, "hypercall"),
        (Self::PioInKernel, "pio_in_kernel"),
        (Self::PioOutKernel, "pio_out_kernel"),
        (Self::PioInUser, "pio_in_user"),
        (Self::PioOutUser, "pio_out_user"),
        (Self::MmioKernel, "mmio_kernel"),
        (Self::MmioUser, "mmio_user"),
        (Self::TscDeadline, "tsc_deadline"),
        (Self::TimerCount, "timer_count"),
        (Self::Eoi, "eoi"),
        (Self::SelfIpi, "self_ipi"),
        (Self::Ipi, "ipi"),
        (Self::IpiEach, "ipi_each"),
        (Self::IpiCluster, "ipi_cluster"),
        (Self::IpiHypercall, "ipi_hypercall"),
        (Self::Cr3, "cr3"),
        (Self::Gate, "gate"),
    ];
}

/// Executes it `iterations` times; gives the cycles of all. The error names
/// what the machine lacks; an instruction that the machine cannot execute ends
/// the image.
pub fn measure(exit: Exit, iterations: u64) -> Result<u64, &'static str> {
    match exit {
        // KVM answers CPUID there with the host's leaves, and natively.
        Exit::Cpuid | Exit::Hypercall | Exit::Cr3 if ring::is_user() => {
            Err("ring 3 cannot execute it")
        }
        Exit::Gate if !ring::is_user() => Err("an image in ring 0 has no gates"),
        Exit::Gate => Ok(repeat(iterations, || {
            service::call(NO_SERVICE, [0; 3]);
        })),
        Exit::Control => Ok(repeat(iterations, || {})),
        Exit::Cpuid => Ok(repeat(iterations, || {
            black_box(__cpuid(black_box(0)));
        })),
        Exit::Hypercall => hypercall(iterations),
        Exit::PioInKernel => Ok(input(iterations, PIC_MASK)),
        Exit::PioOutKernel => Ok(output(iterations, PIC_MASK, 0xff)),
        Exit::PioInUser => Ok(input(iterations, LINE_STATUS)),
        Exit::PioOutUser => Ok(output(iterations, SCRATCH, 0)),
        Exit::MmioKernel => read(iterations, IOAPIC + 0x10),
        Exit::MmioUser => read(iterations, pci::any_bar().ok_or("no PCI device has a BAR")?),
        Exit::TscDeadline => tsc_deadline(iterations),
        Exit::TimerCount => Ok(timed::with_counting_timer(|count| {
            repeat(iterations, || count(u32::MAX))
        })),
        Exit::Eoi => Ok(with_interrupts_off(|| repeat(iterations, timed::end))),
        Exit::SelfIpi => {
            let own = cpu::index();
            Ok(repeat(iterations, || ipi::wake(own)))
        }
        Exit::Ipi if cpu::count() < 2 => Err("there is no second CPU"),
        Exit::Ipi => Ok(repeat(iterations, || ipi::wake(1))),
        Exit::IpiEach => to_all_others(iterations, Several::Each),
        Exit::IpiCluster => to_all_others(iterations, Several::Cluster),
        Exit::IpiHypercall => to_all_others(iterations, Several::Hypercall),
        Exit::Cr3 => Ok(repeat(iterations, || {
            let (table, flags) = Cr3::read();
            // SAFETY: 1. In ring 0: `measure` refuses the others. 2. The table and the flags are
            //    those that the register holds, just read.
            unsafe { Cr3::write(table, flags) };
        })),
    }
}

fn to_all_others(iterations: u64, several: Several) -> Result<u64, &'static str> {
    let mut others = CpuSet::new();
    (0..cpu::count())
        .filter(|&cpu| cpu != cpu::index() && smp::wait_online(cpu))
        .for_each(|cpu| others.insert(cpu));
    if others.len() < 2 {
        return Err("there are not several other CPUs");
    }
    if !ipi::is_possible(several, others) {
        return Err("the machine does not offer it");
    }
    Ok(repeat(iterations, || {
        ipi::wake_by(several, others);
    }))
}

#[inline(always)]
fn repeat(iterations: u64, act: impl Fn()) -> u64 {
    let begin = clock::ticks();
    for _ in 0..iterations {
        act();
        black_box(());
    }
    clock::ticks().wrapping_sub(begin)
}

fn with_interrupts_off(act: impl FnOnce() -> u64) -> u64 {
    let interrupts = cpu::disable_interrupts();
    let cycles = act();
    cpu::restore_interrupts(interrupts);
    cycles
}

fn hypercall(iterations: u64) -> Result<u64, &'static str> {
    let has_vmmcall = cpuid::has_vmmcall();
    Ok(repeat(iterations, || {
        if has_vmmcall {
            // SAFETY: 1. The CPU has SVM, and so this instruction. 2. The call does nothing
            //    but give a result in RAX (`Documentation/virt/kvm/x86/hypercalls.rst`).
            unsafe { asm!("vmmcall", inout("rax") HYPERCALL => _, options(nostack)) };
        } else {
            // SAFETY: 1. The CPU has no SVM, and KVM takes VMCALL on the others; a machine
            //    without hypercalls raises an invalid instruction, which ends the image. 2. The
            //    call does nothing but give a result in RAX
            //    (`Documentation/virt/kvm/x86/hypercalls.rst`).
            unsafe { asm!("vmcall", inout("rax") HYPERCALL => _, options(nostack)) };
        }
    }))
}

fn input(iterations: u64, port: u16) -> u64 {
    repeat(iterations, || {
        // SAFETY: 1. The callers in `measure` give the 8259's mask and the UART's line status. 2. A
        //    read of either has no effect that this image depends on, and changes no memory.
        black_box(unsafe { Port::<u8>::new(port).read() });
    })
}

fn output(iterations: u64, port: u16, value: u8) -> u64 {
    repeat(iterations, || {
        // SAFETY: 1. The callers in `measure` give the 8259's mask, with the value that it has
        //    (`apic::mask_pic`), and the UART's scratch register. 2. Neither write changes memory.
        unsafe { Port::<u8>::new(port).write(value) };
    })
}

fn read(iterations: u64, address: u64) -> Result<u64, &'static str> {
    if !memory::map_device(&(address..address + 4)) {
        return Err("the register cannot be mapped");
    }
    Ok(repeat(iterations, || {
        // SAFETY: 1. The register is mapped (checked above) and aligned to 4: the IOAPIC's window
        //    or the begin of a BAR. 2. A read of either changes no memory.
        black_box(unsafe { (address as *const u32).read_volatile() });
    }))
}

fn tsc_deadline(iterations: u64) -> Result<u64, &'static str> {
    if !cpuid::has_tsc_deadline() {
        return Err("the timer takes no deadlines");
    }
    let mut msr = Msr::new(IA32_TSC_DEADLINE);
    Ok(with_interrupts_off(|| {
        let begin = clock::ticks();
        for _ in 0..iterations {
            // SAFETY: 1. CPUID offers the register, and this is ring 0 (`has_tsc_deadline`, checked
            //    above). 2. The deadline does not come.
            unsafe { msr.write(FAR) };
        }
        let cycles = clock::ticks().wrapping_sub(begin);
        // SAFETY: 1. CPUID offers the register, and this is ring 0 (`has_tsc_deadline`, checked
        //    above). 2. Zero turns the timer off; whoever sleeps afterwards arms it anew.
        unsafe { msr.write(0) };
        cycles
    }))
}
