//! Guest hardware: boot, paging, traps, APIC, clocks, ports, PCI, DMA and the
//! context switch; all of the guest's unsafe code. `libos` is the only user.
//!
//! The crate also compiles for the host, where parsing and locks have their
//! tests; what touches the machine exists only for `target_os = "none"`.
//!
//! # Interface
//!
//! `cpu` (halt, interrupts, `pause`), `fiber` (context switch), `PerCpu`, `smp` and `ipi` (other
//! cores), `irq` (handlers), `timer` and `clock`, `virtio` (PCI and MMIO transports), `memory`
//! (heap, stacks with guard pages), `power` (end of the machine), `ring` (which ring the image runs
//! in), `user` (unmodified programs), `raw` (devices without drivers, for tests of monitors).
//!
//! # Layers
//!
//! A file uses what is below it; no circle is larger than two files.
//!
//! | layer, from the top | files |
//! |---|---|
//! | boot | `boot`, `ring::choice`, `ring::serve` |
//! | measurements | `exits`, `stamp`, `paravirt`, `ring::trespass`, `ring::wild` |
//! | devices, power | `virtio`, `pci`, `legacy`, `raw`, `power`, `panic` |
//! | what runs | `fiber`, `user` |
//! | CPUs, time | `smp`, `ipi`, `timer`, `clock`, `cpu::halt`, `apic` |
//! | memory | `memory`, `lock`, `once` |
//! | interrupts | `cpu::interrupts`, `trap::irq`, `apic::eoi`, `user::flush` |
//! | one CPU | `percpu`, `ring::level`, `ring::gate`, `cpuid`, `apic::registers`, `trap::vector` |

//!
//! # Unsafe code
//!
//! One operation a block. Its SAFETY comment numbers the arguments; each says who establishes what,
//! and where that is checked. `cargo xtask tidy` refuses a comment without numbers.

#![cfg_attr(target_os = "none", no_std)]
// On the host only the tests use what is left of the machine's side.
#![cfg_attr(not(target_os = "none"), allow(dead_code))]

extern crate alloc;

pub mod acpi;
pub mod boot;
pub mod clock;
pub mod cpu;
pub mod lock;
pub mod once;
pub mod processor;
pub mod virtio;

#[cfg(target_os = "none")]
mod apic;
#[cfg(target_os = "none")]
mod cmos;
#[cfg(target_os = "none")]
mod cpuid;
#[cfg(target_os = "none")]
pub mod exits;
#[cfg(target_os = "none")]
pub mod fiber;
#[cfg(any(test, target_os = "none"))]
mod gates;
#[cfg(target_os = "none")]
pub mod ipi;
#[cfg(target_os = "none")]
pub mod legacy;
#[cfg(target_os = "none")]
pub mod memory;
#[cfg(target_os = "none")]
pub mod panic;
#[cfg(target_os = "none")]
pub mod paravirt;
#[cfg(target_os = "none")]
mod pci;
#[cfg(target_os = "none")]
mod percpu;
#[cfg(target_os = "none")]
pub mod power;
#[cfg(target_os = "none")]
pub mod raw;
#[cfg(target_os = "none")]
pub mod ring;
#[cfg(target_os = "none")]
pub mod serial;
#[cfg(target_os = "none")]
pub mod signals;
#[cfg(target_os = "none")]
pub mod smp;
#[cfg(target_os = "none")]
pub mod stamp;
#[cfg(target_os = "none")]
pub mod timer;
#[cfg(target_os = "none")]
mod trap;
#[cfg(any(test, target_os = "none"))]
mod unrolled;
#[cfg(target_os = "none")]
pub mod user;

#[cfg(target_os = "none")]
pub use percpu::PerCpu;
#[cfg(target_os = "none")]
pub use trap::irq;

/// What CPUID says of the processor's features in leaf 1, EDX.
#[cfg(target_os = "none")]
pub fn cpu_features() -> u32 {
    core::arch::x86_64::__cpuid(1).edx
}
