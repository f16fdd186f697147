//! The other CPUs: started all at once by two broadcasts, each finds its area
//! by its APIC ID and runs what [`start`] was given.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use tare_abi::layout::AP_TRAMPOLINE;

use crate::acpi::Tables;
use crate::cpu::MAX;
use crate::memory::heap;
use crate::once::OnceCell;
use crate::{apic, clock, cpuid, percpu};

/// Pages of the stack on which a further CPU starts and idles.
const STACK_PAGES: usize = 4;
/// How long to wait for a CPU before it gets a second start-up IPI, and then before
/// it counts as absent.
const ONLINE_TIMEOUT_NS: u64 = 1_000_000_000;
const RETRY_NS: u64 = 20_000_000;

static APIC_IDS: [AtomicU32; MAX] = [const { AtomicU32::new(0) }; MAX];
static COUNT: AtomicUsize = AtomicUsize::new(1);
/// Bit by CPU: it runs.
static ONLINE: AtomicU32 = AtomicU32::new(1);
static RUN: OnceCell<fn() -> !> = OnceCell::new();

unsafe extern "C" {
    static tare_trampoline: u8;
    static tare_trampoline_end: u8;
}

/// How many CPUs the image uses.
#[inline]
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// The APIC ID of a CPU.
pub(crate) fn apic_id(cpu: usize) -> u32 {
    APIC_IDS[cpu % MAX].load(Ordering::Relaxed)
}

/// Notes which CPUs there are; CPU 0 is the one that runs.
pub(crate) fn init(tables: &Tables) {
    let own = cpuid::first_apic_id();
    APIC_IDS[0].store(own, Ordering::Relaxed);
    let others = tables.apic_ids[..tables.cpus]
        .iter()
        .map(|&id| u32::from(id))
        .filter(|&id| id != own);
    let mut count = 1;
    for id in others.take(MAX - 1) {
        APIC_IDS[count].store(id, Ordering::Relaxed);
        count += 1;
    }
    COUNT.store(count, Ordering::Relaxed);
}

/// Starts the other CPUs with `run`. Does not wait for them.
pub fn start(run: fn() -> !) {
    if count() == 1 || RUN.set(run).is_err() {
        return;
    }
    for cpu in 1..count() {
        let id = apic_id(cpu);
        let Some(stack) = heap::raw_pages(STACK_PAGES) else {
            panic!("no memory for the stack of CPU {cpu}");
        };
        let top = stack.addr().get() + STACK_PAGES * 4096;
        percpu::add(cpu, id, top as u64);
    }
    copy_trampoline();
    apic::start_others();
}

/// Whether `cpu` runs.
pub(crate) fn is_online(cpu: usize) -> bool {
    ONLINE.load(Ordering::Acquire) & (1 << cpu) != 0
}

/// Whether `cpu` runs; waits for one that has been started.
pub fn wait_online(cpu: usize) -> bool {
    if is_online(cpu) {
        return true;
    }
    let start = clock::now_ns();
    let mut told = start;
    loop {
        if is_online(cpu) {
            return true;
        }
        let now = clock::now_ns();
        if now - start > ONLINE_TIMEOUT_NS {
            return false;
        }
        if now - told > RETRY_NS {
            told = now;
            apic::start_one(apic_id(cpu));
        }
        crate::cpu::pause();
    }
}

/// A further CPU, on its own stack with its own tables.
pub(crate) fn run() -> ! {
    ONLINE.fetch_or(1 << percpu::index(), Ordering::AcqRel);
    match RUN.get() {
        Some(run) => run(),
        None => panic!("a CPU started without a request"),
    }
}

fn copy_trampoline() {
    let start = &raw const tare_trampoline;
    let length = (&raw const tare_trampoline_end).addr() - start.addr();
    debug_assert!(length <= 4096);
    // SAFETY: 1. The trampoline lies in the image, from its start to its end (`boot/entry.rs`), and
    //    is shorter than a page (asserted). 2. The page lies in the first MiB, which `memory::init`
    //    keeps out of the heap and which is mapped, writable. 3. No CPU executes it: `start` runs
    //    once and sends the start-up interrupts afterwards.
    unsafe { core::ptr::copy_nonoverlapping(start, AP_TRAMPOLINE as *mut u8, length) };
}
