//! Robust futexes: what a thread holds when it ends is released to who waits for it (`futex(2)`;
//! `exit_robust_list` in kernel/futex/core.c).

use core::sync::atomic::Ordering;

use crate::errno::{Errno, Result};
use crate::owned::{OWNER_DIED, TID_MASK, WAITERS};
use crate::process::{FutexWord, Process};
use crate::thread::Thread;

/// Of the address of an entry: the kernel hands the futex over.
const IS_OWNED: u64 = 1;
/// Most entries of a list, which the program writes (`ROBUST_LIST_LIMIT`).
const MOST: u32 = 2048;

/// Marks what a thread holds, and wakes one thread that waits for each. What threads wait for that
/// the kernel hands over goes to the next, in a list or not.
///
/// # Errors
/// EFAULT: the list leads to memory that is not there.
pub(crate) fn release(process: &Process, thread: &Thread) -> Result<()> {
    let listed = release_listed(process, thread);
    let word_at = |address| FutexWord { process, address };
    process.owned_futexes.release(thread.number, word_at);
    listed
}

fn release_listed(process: &Process, thread: &Thread) -> Result<()> {
    let head = thread.robust_list.load(Ordering::Relaxed);
    if head == 0 {
        return Ok(());
    }
    let offset = process.u64(head.wrapping_add(8))?;
    let pending = process.u64(head.wrapping_add(16))?;
    let free = |entry: u64| -> Result<()> {
        let at = (entry & !IS_OWNED).wrapping_add(offset);
        if entry & IS_OWNED != 0 {
            let word = FutexWord {
                process,
                address: at,
            };
            let lines = &process.owned_futexes;
            return match lines.hand_over((at, &word), thread.number, OWNER_DIED) {
                // Another's.
                Err(Errno::EPERM) => Ok(()),
                other => other,
            };
        }
        if process.futex_word(at)? & TID_MASK == thread.number {
            // Another thread may begin to wait meanwhile: its bit is set in any case.
            process.put_u32(at, OWNER_DIED | WAITERS)?;
            process.futexes.wake(at, 1, u32::MAX);
        }
        Ok(())
    };
    let mut entry = process.u64(head)?;
    for _ in 0..MOST {
        if entry & !IS_OWNED == head {
            break;
        }
        // Before: who gets the futex may give its memory back.
        let next = process.u64(entry & !IS_OWNED)?;
        if (entry ^ pending) & !IS_OWNED != 0 {
            free(entry)?;
        }
        entry = next;
    }
    if pending == 0 { Ok(()) } else { free(pending) }
}
