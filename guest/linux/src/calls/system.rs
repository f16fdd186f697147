//! The machine and the process: names, limits, randomness, registers, the end.

use core::sync::atomic::{AtomicBool, Ordering};

use linux_raw_sys::general as c;
use tare_program::offered::Prctl;

use crate::context::Context;
use crate::errno::{Errno, Result};

/// Codes of `arch_prctl` (kernel `arch/x86/include/uapi/asm/prctl.h`).
const ARCH_SET_FS: u32 = 0x1002;
const ARCH_GET_FS: u32 = 0x1003;
/// End of a program's addresses.
const LOWER_HALF: u64 = 1 << 47;
const UTS_BYTES: usize = 65;
const RLIM_INFINITY: u64 = u64::MAX;
/// Whose use `getrusage` gives.
const RUSAGE_CHILDREN: i32 = -1;
const RUSAGE_SELF: i32 = 0;
const RUSAGE_THREAD: i32 = 1;

/// `arch_prctl(2)`: FS only; GS belongs to the library OS.
pub(super) fn arch_prctl(context: &mut Context<'_>, code: u64, address: u64) -> Result {
    match code as u32 {
        ARCH_SET_FS if address < LOWER_HALF => context.registers.fs_base = address,
        ARCH_SET_FS => return Err(Errno::EPERM),
        ARCH_GET_FS => context
            .process
            .put_u64(address, context.registers.fs_base)?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

pub(super) fn prctl(context: &Context<'_>, option: u64, argument: u64) -> Result {
    match Prctl::of(option as u32).ok_or(Errno::EINVAL)? {
        Prctl::PR_SET_NAME => {
            let text = context.process.name(argument)?;
            *context.thread.name.lock() = text;
            Ok(0)
        }
        Prctl::PR_GET_NAME => {
            let name = *context.thread.name.lock();
            context.process.write(argument, &name)?;
            Ok(0)
        }
        Prctl::PR_GET_DUMPABLE => Ok(1),
        // Nothing here depends on them.
        Prctl::PR_SET_DUMPABLE
        | Prctl::PR_SET_PDEATHSIG
        | Prctl::PR_SET_KEEPCAPS
        | Prctl::PR_SET_NO_NEW_PRIVS
        | Prctl::PR_SET_THP_DISABLE
        | Prctl::PR_SET_TIMERSLACK
        | Prctl::PR_SET_VMA => Ok(0),
    }
}

pub(super) fn uname(context: &Context<'_>, to: u64) -> Result {
    let fields = [
        "Linux",
        context.process.hostname.as_str(),
        "6.1.0-tare",
        "#1 Tare",
        "x86_64",
        "",
    ];
    let mut bytes = [0; 6 * UTS_BYTES];
    for (slot, field) in bytes.chunks_mut(UTS_BYTES).zip(fields) {
        let count = field.len().min(UTS_BYTES - 1);
        slot[..count].copy_from_slice(&field.as_bytes()[..count]);
    }
    context.process.write(to, &bytes)?;
    Ok(0)
}

pub(super) fn getrandom(context: &mut Context<'_>, to: u64, length: u64, flags: u64) -> Result {
    if flags as u32 & !(c::GRND_NONBLOCK | c::GRND_RANDOM | c::GRND_INSECURE) != 0 {
        return Err(Errno::EINVAL);
    }
    const STEP: u64 = 4096;
    let length = length.min(256 << 10);
    let mut done = 0;
    let mut bytes = [0; STEP as usize];
    while done < length {
        let part = &mut bytes[..(length - done).min(STEP) as usize];
        tare_libos::random::fill(part);
        context.process.write(to.wrapping_add(done), part)?;
        done += part.len() as u64;
    }
    Ok(done)
}

pub(super) fn prlimit(context: &Context<'_>, resource: u64, old: u64) -> Result {
    let limit = match resource as u32 {
        c::RLIMIT_NOFILE => 65_536,
        c::RLIMIT_STACK => crate::load::STACK_BYTES,
        c::RLIMIT_NPROC => crate::process::MOST_THREADS as u64,
        c::RLIMIT_SIGPENDING => crate::pending::MOST_WAITING as u64,
        c::RLIMIT_CORE => 0,
        0..16 => RLIM_INFINITY,
        _ => return Err(Errno::EINVAL),
    };
    if old != 0 {
        context.process.put_u64(old, limit)?;
        context.process.put_u64(old.wrapping_add(8), limit)?;
    }
    Ok(0)
}

pub(super) fn sysinfo(context: &Context<'_>, to: u64) -> Result {
    let heap = tare_libos::heap::stats();
    let mut bytes = [0; 112];
    let free = heap.total.saturating_sub(heap.used);
    let uptime = tare_hal::clock::now_ns() / 1_000_000_000;
    let words = [uptime, 0, 0, 0, heap.total, free];
    for (slot, word) in bytes.chunks_mut(8).zip(words) {
        slot.copy_from_slice(&u64::to_le_bytes(word));
    }
    bytes[80..82].copy_from_slice(&1_u16.to_le_bytes());
    bytes[104..108].copy_from_slice(&1_u32.to_le_bytes());
    context.process.write(to, &bytes)?;
    Ok(0)
}

/// `getrusage(2)`: CPU time as the program's own, none of it as the kernel's.
pub(super) fn getrusage(context: &Context<'_>, whose: u64, to: u64) -> Result {
    let now_ns = tare_hal::clock::now_ns();
    let ns = match whose as i32 {
        RUSAGE_CHILDREN => 0,
        RUSAGE_SELF => context.process.cpu_ns(now_ns),
        RUSAGE_THREAD => context.thread.cpu_time.ns(now_ns),
        _ => return Err(Errno::EINVAL),
    };
    let mut bytes = [0; 144];
    bytes[..8].copy_from_slice(&(ns / 1_000_000_000).to_le_bytes());
    bytes[8..16].copy_from_slice(&(ns % 1_000_000_000 / 1000).to_le_bytes());
    context.process.write(to, &bytes)?;
    Ok(0)
}

/// `exit_group(2)`.
pub(super) fn exit_group(status: u64) -> Result {
    end(status as u8)
}

/// A thread ends the program, and waits for the disk to do so.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Does not return to a program that has ended.
pub(crate) fn stop_at_end() {
    while IS_ENDING.load(Ordering::Relaxed) {
        tare_libos::thread::park();
    }
}

#[cfg(target_os = "none")]
pub(crate) fn end(status: u8) -> ! {
    tare_libos::net::send_written();
    if let Some(mounted) = crate::files::stored::mounted() {
        if IS_ENDING.swap(true, Ordering::Relaxed) {
            stop_at_end();
        }
        mounted.end();
    }
    tare_hal::power::exit(tare_abi::exit::GuestExit::Status(status))
}
#[cfg(not(target_os = "none"))]
pub(crate) fn end(status: u8) -> ! {
    panic!("the program ends with status {status}")
}

/// `times(2)`: clock ticks since the start, and those of the process.
pub(super) fn times(context: &Context<'_>, to: u64) -> Result {
    const TICK_NS: u64 = 10_000_000;
    let now_ns = tare_hal::clock::now_ns();
    if to != 0 {
        let mut bytes = [0; 32];
        let ticks = context.process.cpu_ns(now_ns) / TICK_NS;
        bytes[..8].copy_from_slice(&ticks.to_le_bytes());
        context.process.write(to, &bytes)?;
    }
    Ok(now_ns / TICK_NS)
}
