//! The machine and the process: names, randomness, registers, the end.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linux_raw_sys::general as c;
use linux_raw_sys::prctl::{
    PR_CAP_AMBIENT_CLEAR_ALL, PR_CAP_AMBIENT_IS_SET, PR_CAP_AMBIENT_LOWER, PR_CAP_AMBIENT_RAISE,
};
use tare_program::offered::Prctl;

use super::arguments::Arguments;
use super::unknown;
use crate::capabilities::Capabilities;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::memory;
use crate::process::Process;
use crate::thread::Kept;

/// Codes of `arch_prctl` (kernel `arch/x86/include/uapi/asm/prctl.h`).
const ARCH_SET_FS: u32 = 0x1002;
const ARCH_GET_FS: u32 = 0x1003;
/// End of a program's addresses.
const LOWER_HALF: u64 = 1 << 47;
const UTS_BYTES: usize = 65;
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

const LAST_SIGNAL: u64 = 64;

/// `prctl(2)`: names have a meaning, and the rest is kept and read back. EINVAL for other
/// operations and values (kernel `kernel/sys.c`).
pub(super) fn prctl(context: &Context<'_>, a: Arguments) -> Result {
    let [_, value, rest @ ..] = a;
    let (process, thread) = (context.process, context.thread);
    let operation = Prctl::of(a[0] as u32).ok_or(Errno::EINVAL)?;
    let is_last = rest[..3] == [0; 3];
    let kept = |number: Kept| &thread.kept[number as usize];
    let keep = |number: Kept, is_sound: bool| {
        if !is_sound {
            return Err(Errno::EINVAL);
        }
        kept(number).store(value as u32, Ordering::Relaxed);
        Ok(0)
    };
    let read = |number: Kept| kept(number).load(Ordering::Relaxed);
    match operation {
        Prctl::PR_SET_NAME => {
            let text = process.name(value)?;
            *thread.name.lock() = text;
            Ok(0)
        }
        Prctl::PR_GET_NAME => {
            let name = *thread.name.lock();
            process.write(value, &name)?;
            Ok(0)
        }
        Prctl::PR_SET_DUMPABLE => keep(Kept::Dumpable, value <= 1),
        Prctl::PR_GET_DUMPABLE => Ok(read(Kept::Dumpable).into()),
        Prctl::PR_SET_KEEPCAPS if value > 1 => Err(Errno::EINVAL),
        Prctl::PR_SET_KEEPCAPS => {
            thread.credentials.lock().capabilities.keep = value == 1;
            Ok(0)
        }
        Prctl::PR_GET_KEEPCAPS => Ok(thread.credentials.lock().capabilities.keep.into()),
        Prctl::PR_SET_NO_NEW_PRIVS => keep(Kept::NoNewPrivs, value == 1 && is_last),
        Prctl::PR_GET_NO_NEW_PRIVS if value != 0 || !is_last => Err(Errno::EINVAL),
        Prctl::PR_GET_NO_NEW_PRIVS => Ok(read(Kept::NoNewPrivs).into()),
        Prctl::PR_SET_PDEATHSIG => keep(Kept::ParentSignal, value <= LAST_SIGNAL),
        Prctl::PR_GET_PDEATHSIG => process.put_u32(value, read(Kept::ParentSignal)).map(|()| 0),
        Prctl::PR_CAPBSET_READ => {
            let own = thread.credentials.lock();
            Ok(own.capabilities.is_bounded(value)?.into())
        }
        Prctl::PR_CAPBSET_DROP => {
            let mut own = thread.credentials.lock();
            own.capabilities.bound(value).map(|()| 0)
        }
        Prctl::PR_CAP_AMBIENT => {
            let mut own = thread.credentials.lock();
            ambient(&mut own.capabilities, value, rest)
        }
        Prctl::PR_GET_SECCOMP | Prctl::PR_GET_SECUREBITS => Ok(0),
        // Nothing here depends on them.
        Prctl::PR_SET_CHILD_SUBREAPER
        | Prctl::PR_SET_THP_DISABLE
        | Prctl::PR_SET_TIMERSLACK
        | Prctl::PR_SET_VMA => Ok(0),
    }
}

/// `PR_CAP_AMBIENT`: EINVAL for another operation and for numbers behind it.
fn ambient(own: &mut Capabilities, operation: u64, rest: [u64; 4]) -> Result {
    let [number, more @ ..] = rest;
    let operation = operation as u32;
    if operation == PR_CAP_AMBIENT_CLEAR_ALL {
        if rest[..3] != [0; 3] {
            return Err(Errno::EINVAL);
        }
        own.clear_ambient();
        return Ok(0);
    }
    if more[..2] != [0; 2] {
        return Err(Errno::EINVAL);
    }
    match operation {
        PR_CAP_AMBIENT_IS_SET => return Ok(own.is_ambient(number)?.into()),
        PR_CAP_AMBIENT_RAISE => own.raise_ambient(number)?,
        PR_CAP_AMBIENT_LOWER => own.lower_ambient(number)?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
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
        let written = context.process.write_some(to.wrapping_add(done), part);
        done += written as u64;
        if written < part.len() {
            break;
        }
    }
    if done == 0 && length > 0 {
        return Err(Errno::EFAULT);
    }
    Ok(done)
}

pub(super) fn sysinfo(context: &Context<'_>, to: u64) -> Result {
    let heap = memory::stats();
    let mut bytes = [0; 112];
    let free = heap.total.saturating_sub(heap.used);
    let uptime = tare_hal::clock::now_ns() / 1_000_000_000;
    let words = [uptime, 0, 0, 0, heap.total, free];
    for (slot, word) in bytes.chunks_mut(8).zip(words) {
        slot.copy_from_slice(&u64::to_le_bytes(word));
    }
    let threads = context.process.threads.lock().len() as u16;
    bytes[80..82].copy_from_slice(&threads.to_le_bytes());
    bytes[104..108].copy_from_slice(&1_u32.to_le_bytes());
    context.process.write(to, &bytes)?;
    Ok(0)
}

/// `waitid(2)`: no child can end. Linux says so in `siginfo` besides.
pub(super) fn waitid(context: &Context<'_>, [which, number, to, options, ..]: Arguments) -> Result {
    let ended = why_none_ended(which, number, options);
    for at in [0, 16] {
        if to != 0 {
            context.process.write(to.wrapping_add(at), &[0; 12])?;
        }
    }
    Err(ended)
}

/// EINVAL for other kinds and options.
fn why_none_ended(which: u64, number: u64, options: u64) -> Errno {
    const P_PID: u32 = 1;
    const P_PIDFD: u32 = 3;
    const ENDS: u32 = c::WEXITED | c::WSTOPPED | c::WCONTINUED;
    const OTHERS: u32 = c::WNOHANG | c::WNOWAIT | c::__WNOTHREAD | c::__WALL | c::__WCLONE;
    let options = options as u32;
    let is_negative = (number as i32) < 0 || which as u32 == P_PID && number as u32 == 0;
    if options & !(ENDS | OTHERS) != 0
        || options & ENDS == 0
        || which as u32 > P_PIDFD
        || which as u32 >= P_PID && is_negative
    {
        return Errno::EINVAL;
    }
    // Descriptors of processes do not exist either.
    if which as u32 == P_PIDFD {
        return Errno::EBADF;
    }
    Errno::ECHILD
}

/// `getrusage(2)`: CPU time as the program's own, none of it as the kernel's; as memory all that the
/// machine has used at most at such a call.
pub(super) fn getrusage(context: &Context<'_>, whose: u64, to: u64) -> Result {
    let now_ns = tare_hal::clock::now_ns();
    let ns = match whose as i32 {
        RUSAGE_CHILDREN => 0,
        RUSAGE_SELF => context.process.cpu_ns(now_ns),
        RUSAGE_THREAD => context.thread.cpu_time.ns(now_ns),
        _ => return Err(Errno::EINVAL),
    };
    static MOST_KIB: AtomicU64 = AtomicU64::new(0);
    let used_kib = memory::stats().used / 1024;
    let most_kib = used_kib.max(MOST_KIB.fetch_max(used_kib, Ordering::Relaxed));
    let mut bytes = [0; 144];
    if whose as i32 != RUSAGE_CHILDREN {
        bytes[32..40].copy_from_slice(&most_kib.to_le_bytes());
    }
    bytes[..8].copy_from_slice(&(ns / 1_000_000_000).to_le_bytes());
    bytes[8..16].copy_from_slice(&(ns % 1_000_000_000 / 1000).to_le_bytes());
    context.process.write(to, &bytes)?;
    Ok(0)
}

/// `exit_group(2)`.
pub(super) fn exit_group(context: &Context<'_>, status: u64) -> Result {
    end(context.process, status as u8)
}

/// A thread ends the program, and waits for the disk to do so.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Does not return to a program that has ended.
pub(crate) fn stop_at_end() {
    while IS_ENDING.load(Ordering::Relaxed) {
        tare_libos::thread::park();
    }
}

pub(crate) fn end(process: &Process, status: u8) -> ! {
    unknown::log_counts(process);
    tare_libos::net::send_written();
    if let Some(mounted) = crate::files::stored::mounted() {
        if IS_ENDING.swap(true, Ordering::Relaxed) {
            stop_at_end();
        }
        mounted.end();
    }
    tare_hal::power::exit(tare_abi::exit::GuestExit::Status(status))
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
