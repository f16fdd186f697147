//! Robust futexes: what a thread holds when it ends is released to who waits for it (`futex(2)`;
//! `exit_robust_list` in kernel/futex/core.c).

use core::sync::atomic::Ordering;

use crate::errno::Result;
use crate::process::Process;
use crate::thread::Thread;

/// A futex's owner (`include/uapi/linux/futex.h`).
const TID_MASK: u32 = 0x3fff_ffff;
/// Its owner has ended.
const OWNER_DIED: u32 = 0x4000_0000;
/// Some thread waits for it.
const WAITERS: u32 = 0x8000_0000;
/// Most entries of a list, which the program writes (`ROBUST_LIST_LIMIT`).
const MOST: u32 = 2048;

/// Marks what a thread holds, and wakes one thread that waits for each.
///
/// # Errors
/// EFAULT: the list leads to memory that is not there.
pub(crate) fn release(process: &Process, thread: &Thread) -> Result<()> {
    let head = thread.robust_list.load(Ordering::Relaxed);
    if head == 0 {
        return Ok(());
    }
    // The lowest bit of an entry is about priorities.
    let entry_at = |at: u64| Ok::<u64, crate::errno::Errno>(process.u64(at)? & !1);
    let offset = process.u64(head.wrapping_add(8))?;
    let pending = entry_at(head.wrapping_add(16))?;
    let free = |entry: u64| -> Result<()> {
        let at = entry.wrapping_add(offset);
        if process.futex_word(at)? & TID_MASK == thread.number {
            // Another thread may begin to wait meanwhile: its bit is set in any case.
            process.put_u32(at, OWNER_DIED | WAITERS)?;
            process.futexes.wake(at, 1, u32::MAX);
        }
        Ok(())
    };
    let mut entry = entry_at(head)?;
    for _ in 0..MOST {
        if entry == head {
            break;
        }
        // Before: who gets the futex may give its memory back.
        let next = entry_at(entry)?;
        if entry != pending {
            free(entry)?;
        }
        entry = next;
    }
    if pending == 0 { Ok(()) } else { free(pending) }
}
