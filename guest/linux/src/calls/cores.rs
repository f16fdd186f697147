//! Cores as a program sees them: on which it runs (`getcpu(2)`, `sched_setaffinity(2)`), how eagerly
//! (`setpriority(2)`), and what they have seen of memory (`membarrier(2)`).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use linux_raw_sys::general::membarrier_cmd as m;
use tare_libos::thread::{self, cores};

use super::threads::thread_of;
use crate::capabilities::SYS_NICE;
use crate::context::Context;
use crate::credentials::Whose;
use crate::errno::{Errno, Result};
use crate::process::PID;
use crate::thread::Thread;

const PRIO_PROCESS: u32 = 0;
const PRIO_PGRP: u32 = 1;
const PRIO_USER: u32 = 2;
/// Stack of a thread that only makes another core look at memory, bytes.
const STACK_BYTES: usize = 16 * 1024;

/// The commands of `membarrier` that there are.
const GLOBAL: u32 = m::MEMBARRIER_CMD_GLOBAL as u32;
const GLOBAL_EXPEDITED: u32 = m::MEMBARRIER_CMD_GLOBAL_EXPEDITED as u32;
const REGISTER_GLOBAL: u32 = m::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED as u32;
const PRIVATE_EXPEDITED: u32 = m::MEMBARRIER_CMD_PRIVATE_EXPEDITED as u32;
const REGISTER_PRIVATE: u32 = m::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED as u32;
const SYNC_CORE: u32 = m::MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE as u32;
const REGISTER_SYNC_CORE: u32 = m::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE as u32;
const COMMANDS: u32 = GLOBAL
    | GLOBAL_EXPEDITED
    | REGISTER_GLOBAL
    | PRIVATE_EXPEDITED
    | REGISTER_PRIVATE
    | SYNC_CORE
    | REGISTER_SYNC_CORE;

/// `getcpu(2)`: all memory is of node 0.
pub(super) fn getcpu(context: &Context<'_>, cpu: u64, node: u64) -> Result {
    let here = thread::current_core() as u32;
    for (at, value) in [(cpu, here), (node, 0)] {
        if at != 0 {
            context.process.put_u32(at, value)?;
        }
    }
    Ok(0)
}

/// The cores of the machine, a bit each.
fn all_cores() -> u64 {
    (1 << cores().min(63)) - 1
}

/// `sched_getaffinity(2)`: ESRCH for no thread, EINVAL for a set that is too short.
pub(super) fn getaffinity(context: &Context<'_>, number: u64, bytes: u64, to: u64) -> Result {
    if bytes < 8 || !bytes.is_multiple_of(8) {
        return Err(Errno::EINVAL);
    }
    let thread = thread_of(context, number)?;
    let cpus = thread.cpus.load(Ordering::Relaxed) & all_cores();
    context.process.put_u64(to, cpus)?;
    Ok(8)
}

/// `sched_setaffinity(2)`: kept and read back; a thread stays on its core. EINVAL for no core of the
/// machine.
pub(super) fn setaffinity(context: &Context<'_>, number: u64, bytes: u64, from: u64) -> Result {
    let mut word = [0; 8];
    let count = u64::from(bytes as u32).min(8) as usize;
    context.process.read(from, &mut word[..count])?;
    let thread = thread_of(context, number)?;
    let cpus = u64::from_le_bytes(word) & all_cores();
    if cpus == 0 {
        return Err(Errno::EINVAL);
    }
    thread.cpus.store(cpus, Ordering::Relaxed);
    Ok(0)
}

/// The threads that `getpriority` is about: EINVAL for another kind, ESRCH for none.
fn threads_of(context: &Context<'_>, which: u64, number: u64) -> Result<Vec<Arc<Thread>>> {
    let number = number as u32;
    let is_all = match which as u32 {
        PRIO_PROCESS => return Ok(alloc::vec![thread_of(context, number.into())?]),
        PRIO_PGRP => number == 0 || number == PID,
        PRIO_USER => {
            let own = context.thread.credentials.lock().ids(Whose::User);
            number == 0 || number == own.real
        }
        _ => return Err(Errno::EINVAL),
    };
    if !is_all {
        return Err(Errno::ESRCH);
    }
    let threads = context.process.threads.lock();
    Ok(threads.values().cloned().collect())
}

/// `getpriority(2)`: the highest of all, as 20 less the nice value.
pub(super) fn getpriority(context: &Context<'_>, which: u64, number: u64) -> Result {
    let threads = threads_of(context, which, number)?;
    let nice = threads
        .iter()
        .map(|thread| thread.nice.load(Ordering::Relaxed));
    Ok((20 - nice.min().unwrap_or_default()) as u64)
}

/// `setpriority(2)`: kept and read back. EACCES for a higher one without `CAP_SYS_NICE`.
pub(super) fn setpriority(context: &Context<'_>, which: u64, number: u64, nice: u64) -> Result {
    let nice = (nice as i32).clamp(-20, 19);
    let threads = threads_of(context, which, number)?;
    let may_rise = context.thread.credentials.lock().capabilities.has(SYS_NICE);
    for thread in threads {
        if nice < thread.nice.load(Ordering::Relaxed) && !may_rise {
            return Err(Errno::EACCES);
        }
        thread.nice.store(nice, Ordering::Relaxed);
    }
    Ok(0)
}

/// `membarrier(2)`: EINVAL for another command and for flags, EPERM for one that must be registered
/// before. A thread of the library OS runs on each other core, behind which no code of the
/// program there is as it was.
pub(super) fn membarrier(context: &Context<'_>, command: u64, flags: u64) -> Result {
    static REGISTERED: AtomicU32 = AtomicU32::new(0);
    if flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    match command as u32 {
        0 => return Ok(COMMANDS.into()),
        command @ (REGISTER_GLOBAL | REGISTER_PRIVATE | REGISTER_SYNC_CORE) => {
            REGISTERED.fetch_or(command, Ordering::Relaxed);
            return Ok(0);
        }
        // Each registration's bit is the next one (kernel `include/uapi/linux/membarrier.h`).
        command @ (PRIVATE_EXPEDITED | SYNC_CORE)
            if REGISTERED.load(Ordering::Relaxed) & command << 1 == 0 =>
        {
            return Err(Errno::EPERM);
        }
        // The other cores return to the program by IRET, which serialises them (SYNC_CORE).
        GLOBAL | GLOBAL_EXPEDITED | PRIVATE_EXPEDITED | SYNC_CORE => {}
        _ => return Err(Errno::EINVAL),
    }
    let here = thread::current_core();
    let mut visits = Vec::new();
    for core in (0..cores()).filter(|&core| core != here) {
        let visit = thread::Builder::new().core(core).stack_size(STACK_BYTES);
        visits.push(visit.spawn(|| ()).map_err(|_| Errno::ENOMEM)?);
        // A core that runs the program looks for threads when something interrupts that.
        tare_hal::ipi::wake(core);
    }
    // Not parked: a core that has gone to the program does not learn that its thread is woken.
    while visits.iter().any(|visit| !visit.is_finished()) {
        context.thread.wait(thread::yield_now);
    }
    Ok(0)
}
