//! Start-up of the first CPU, and of the others.

#![allow(unsafe_code)]

use core::cell::UnsafeCell;

use alloc::vec::Vec;

use super::initramfs::{Initramfs, Place};
use super::{Handover, Physical, Protocol, parse, u32_at, u64_at};
use crate::once::OnceCell;
use crate::virtio::MmioWord;
use crate::{acpi, apic, clock, cpuid, memory, pci, percpu, power, ring, trap};

/// Command lines beyond this are cut.
const CMDLINE_MAX: usize = tare_abi::layout::CMDLINE_MAX;

struct Start {
    cmdline: &'static str,
    initramfs: Place,
    dsdt: u64,
}

static START: OnceCell<Start> = OnceCell::new();

/// The command line.
pub fn cmdline() -> &'static str {
    START.get().map_or("", |start| start.cmdline)
}

/// The initramfs, if one was loaded and [`take_initramfs`] has not taken it. It then stays for as
/// long as the image runs.
pub fn initramfs() -> Option<&'static [u8]> {
    START.get()?.initramfs.lend()
}

/// The initramfs as a value of one owner, if one was loaded and [`initramfs`] has not lent it:
/// its memory becomes heap when the owner drops it.
pub fn take_initramfs() -> Option<Initramfs> {
    START.get()?.initramfs.take()
}

/// virtio-mmio devices that ACPI names.
pub(crate) fn acpi_virtio_mmio() -> Vec<MmioWord> {
    match START.get() {
        Some(start) if start.dsdt != 0 => acpi::virtio_mmio(&Identity, start.dsdt),
        _ => Vec::new(),
    }
}

unsafe extern "Rust" {
    /// The image's program, defined by `tare_libos::entry!`.
    fn tare_main() -> !;
}

/// Called by the entry code on the boot stack, with the first GiB mapped.
#[unsafe(no_mangle)]
extern "C" fn tare_boot(information: u64, protocol: u64) -> ! {
    percpu::init_first();
    cpuid::init();
    let protocol = match protocol {
        0 => Protocol::Pvh,
        _ => Protocol::Linux,
    };
    let ring = ring::choose(|| tare_abi::cmdline::ring(early_cmdline(protocol, information)));
    trap::init(ring);
    init_programs(ring);
    ring::enter(ring);
    let Some(handover) = parse(&Identity, protocol, information) else {
        panic!("the boot information at {information:#x} is neither PVH's nor Linux's");
    };
    // Before the loader's memory becomes heap and page 0 goes.
    let cmdline = copy_cmdline(handover.cmdline);
    memory::init(&handover);
    let tables = acpi::find(&Identity, handover.rsdp).unwrap_or_default();
    let start = Start {
        cmdline,
        initramfs: place(&handover),
        dsdt: tables.dsdt,
    };
    START.set(start).ok();
    power::init(&tables);
    pci::init(&tables);
    apic::init(&tables);
    clock::init(&tables);
    crate::smp::init(&tables);
    crate::ipi::init();
    // SAFETY: 1. `tare_libos::entry!` defines the function once in every image, with this type. 2.
    //    What it needs is set up above.
    unsafe { tare_main() }
}

/// The command line where the loader left it, before anything else is set up; empty
/// if there is none.
fn early_cmdline(protocol: Protocol, information: u64) -> &'static str {
    const FIELD_OF_PVH: u64 = 24;
    const FIELD_OF_LINUX: u64 = 0x228;
    let (field, bytes) = match protocol {
        Protocol::Pvh => (FIELD_OF_PVH, 8),
        Protocol::Linux => (FIELD_OF_LINUX, 4),
    };
    let address = Identity
        .bytes(information + field, bytes)
        .and_then(|field| {
            let low = u32_at(field, 0).map(u64::from);
            u64_at(field, 0).or(low)
        });
    let text = address.filter(|&address| address != 0).and_then(|address| {
        let bytes = Identity.bytes(address, CMDLINE_MAX as u64)?;
        let length = bytes.iter().position(|&byte| byte == 0)?;
        // SAFETY: 1. `Identity::bytes` gave the bytes, of which this is the beginning. 2. Nothing
        //    writes to the loader's memory before `memory::init`, and `tare_boot` drops the text
        //    before it calls that.
        Some(unsafe { core::slice::from_raw_parts(bytes.as_ptr(), length) })
    });
    text.and_then(|text| core::str::from_utf8(text).ok())
        .unwrap_or("")
}

/// Called by the trampoline on the CPU's own stack.
#[unsafe(no_mangle)]
extern "C" fn tare_boot_ap(area: *mut percpu::Cpu) -> ! {
    // SAFETY: 1. `percpu::add` made the area for the CPU of this APIC ID, which the trampoline
    //    looks up. 2. It is leaked, so it lives forever. 3. This runs first on the CPU, once: no
    //    reference to the area exists.
    unsafe { percpu::init_further(area) };
    trap::init(ring::current());
    init_programs(ring::current());
    crate::user::keep_out();
    ring::enter(ring::current());
    apic::init_further();
    crate::smp::run()
}

/// Prepares this CPU for programs. An image in ring 3 may run some without declaring them.
fn init_programs(ring: ring::Ring) {
    if ring == ring::Ring::Three || memory::layout::has_programs() {
        crate::user::init(ring);
    }
}

/// Copies the command line: the loader's memory may become heap.
fn copy_cmdline(address: u64) -> &'static str {
    struct Buffer(UnsafeCell<[u8; CMDLINE_MAX]>);
    // SAFETY: 1. `copy_cmdline` writes the buffer once, before the other CPUs start. 2. Nothing
    //    writes it afterwards.
    unsafe impl Sync for Buffer {}
    static BUFFER: Buffer = Buffer(UnsafeCell::new([0; CMDLINE_MAX]));

    let available = Identity
        .bytes(address, CMDLINE_MAX as u64)
        .filter(|_| address != 0)
        .unwrap_or(&[]);
    let length = available.iter().position(|&byte| byte == 0).unwrap_or(0);
    // SAFETY: 1. `tare_boot` calls this once, on the only CPU that runs: no other reference to the
    //    buffer exists. 2. The length is below the buffer's: a position in at most CMDLINE_MAX
    //    bytes.
    let copy = unsafe { &mut (&mut *BUFFER.0.get())[..length] };
    copy.copy_from_slice(&available[..length]);
    core::str::from_utf8(copy).unwrap_or("")
}

/// Where the initramfs is. `memory::init` maps it and keeps it out of the heap.
fn place(handover: &Handover) -> Place {
    let range = &handover.initramfs;
    let is_there = !range.is_empty() && handover.ram.contain(range);
    // SAFETY: 1. The range is empty, or lies in RAM (checked above), where the loader put the
    //    initramfs. 2. `memory::init`, which has run, maps it and keeps it out of the heap. 3. Nothing
    //    writes to it. 4. Start-up runs once and makes the only value of this range.
    unsafe { Place::new(if is_there { range.clone() } else { 0..0 }) }
}

/// Physical memory through the identity mapping.
struct Identity;

impl Physical for Identity {
    fn bytes(&self, address: u64, length: u64) -> Option<&[u8]> {
        let end = address.checked_add(length)?;
        if length == 0 || !memory::is_mapped(&(address..end)) {
            return None;
        }
        // SAFETY: 1. The GiB that hold the range are mapped (`memory::is_mapped`); what is not
        //    mapped within them (page 0, ring 0's memory for ring 3, low memory of programs)
        //    faults, and the image ends. 2. Any byte is valid, and the length fits `isize`: an
        //    address has 47 bits. 3. Nothing writes to it: before `memory::init` only the loader
        //    has written to memory; afterwards callers read ACPI's tables, which a loader puts in
        //    the first MiB or in memory that its map does not call RAM, and the heap has neither.
        Some(unsafe { core::slice::from_raw_parts(address as *const u8, length as usize) })
    }
}
