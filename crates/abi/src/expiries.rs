//! Time limits and timers of a program that ran out, counted in a table in the image's memory. The
//! host reads it there: counting costs the guest no exit, and a guest that has no program has no
//! table.
//!
//! An ELF note says where the table is (gABI, "Note Section"):
//!
//! ```text
//! name  "Tare\0" (5 bytes, padded to 8), as for the rings
//! type  NOTE_TYPE
//! desc  8 bytes, little-endian: guest-physical address of the table
//! ```
//!
//! ```text
//! table  ENTRIES entries
//! entry  0   8  how often; 0 while the entry is free
//!        8   4  number of the system call, plus 1; 0 in the last entry
//!        12  4  number of the thread; 0 in the last entry
//!        16  16 name of the thread, zeros behind it
//! ```
//!
//! Numbers are little-endian. The last entry counts what found no free one.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::rings;

/// Type of the note, in the name space of [`rings::NOTE_NAME`].
pub const NOTE_TYPE: u32 = 3;
/// Entries of a table.
pub const ENTRIES: usize = 32;
/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 32;
/// Bytes of a table.
pub const TABLE_BYTES: usize = ENTRIES * ENTRY_BYTES;
/// Longest name of a thread, bytes (`TASK_COMM_LEN`).
pub const NAME_BYTES: usize = 16;

/// Numbers of system calls by which a program waits for a limited time or sets a timer
/// (Linux `arch/x86/entry/syscalls/syscall_64.tbl`).
const CALLS: &[(u32, &str)] = &[
    (0, "read"),
    (1, "write"),
    (7, "poll"),
    (23, "select"),
    (35, "nanosleep"),
    (SETITIMER, "setitimer"),
    (42, "connect"),
    (43, "accept"),
    (44, "sendto"),
    (45, "recvfrom"),
    (46, "sendmsg"),
    (47, "recvmsg"),
    (128, "rt_sigtimedwait"),
    (202, "futex"),
    (TIMER_SETTIME, "timer_settime"),
    (230, "clock_nanosleep"),
    (232, "epoll_wait"),
    (270, "pselect6"),
    (271, "ppoll"),
    (281, "epoll_pwait"),
    (TIMERFD_SETTIME, "timerfd_settime"),
    (288, "accept4"),
    (299, "recvmmsg"),
    (441, "epoll_pwait2"),
];
/// The alarm of a process; `alarm(2)` is counted as this too.
pub const SETITIMER: u32 = 38;
/// A timer of `timer_create(2)`.
pub const TIMER_SETTIME: u32 = 223;
/// A timer that is a file.
pub const TIMERFD_SETTIME: u32 = 286;

/// What ran out: the limit of a call, or the timer that a call has set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Of which system call and thread; `None` for those that found no free entry.
    pub origin: Option<Origin>,
    /// How often.
    pub count: u64,
}

/// A system call of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Number of the system call.
    pub call: u32,
    /// Number of the thread, as the program sees it.
    pub thread: u32,
    /// Name of the thread, with zeros behind it: what the program has given it.
    pub name: [u8; NAME_BYTES],
}

impl Origin {
    /// The system call's name; `None` for one that has no time limit in Linux.
    pub fn call_name(&self) -> Option<&'static str> {
        let mut calls = CALLS.iter();
        let found = calls.find(|(number, _)| *number == self.call);
        found.map(|(_, name)| *name)
    }

    /// The thread's name up to the first zero.
    pub fn name_bytes(&self) -> &[u8] {
        let mut parts = self.name.split(|&byte| byte == 0);
        parts.next().unwrap_or_default()
    }

    /// Never 0.
    const fn key(&self) -> u64 {
        (self.call as u64 + 1) | (self.thread as u64) << 32
    }
}

/// The table, as the guest counts in it.
#[derive(Debug)]
#[repr(C)]
pub struct Table([Slot; ENTRIES]);

#[derive(Debug)]
#[repr(C)]
struct Slot {
    count: AtomicU64,
    /// Of the origin; 0 while the entry is free.
    key: AtomicU64,
    name: [AtomicU64; 2],
}

impl Slot {
    const fn free() -> Self {
        Self {
            count: AtomicU64::new(0),
            key: AtomicU64::new(0),
            name: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }
}

impl Table {
    /// A table without an entry in use.
    pub const fn new() -> Self {
        Self([const { Slot::free() }; ENTRIES])
    }

    /// Counts one. A thread that has another name by now has it in the table too.
    pub fn count(&self, origin: &Origin) {
        let Some((last, others)) = self.0.split_last() else {
            return;
        };
        let key = origin.key();
        let claimed = others.iter().find(|entry| {
            let claim = entry
                .key
                .compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed);
            claim.is_ok() || claim == Err(key)
        });
        if let Some(entry) = claimed {
            let (low, high) = origin.name.split_at(8);
            for (word, bytes) in entry.name.iter().zip([low, high]) {
                let bytes = bytes.first_chunk().copied().unwrap_or_default();
                word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
            }
        }
        // Behind the name: who reads a count of more than 0 reads a name.
        let entry = claimed.unwrap_or(last);
        entry.count.fetch_add(1, Ordering::Release);
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

/// What the bytes of a table count. They may be anything: a guest has written them.
pub fn parse(table: &[u8; TABLE_BYTES]) -> impl Iterator<Item = Entry> {
    let (entries, _) = table.as_chunks::<ENTRY_BYTES>();
    entries.iter().filter_map(|entry| {
        let word = |at: usize| u64::from_le_bytes(*entry[at..].first_chunk().unwrap_or(&[0; 8]));
        let (count, key) = (word(0), word(8));
        let origin = (key as u32).checked_sub(1).map(|call| Origin {
            call,
            thread: (key >> 32) as u32,
            name: *entry[16..].first_chunk().unwrap_or(&[0; NAME_BYTES]),
        });
        (count != 0).then_some(Entry { origin, count })
    })
}

/// The note as an image carries it. Images are mapped where they lie in memory.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Note(rings::Words<&'static Table>);

impl Note {
    /// The note of an image that counts in `table`.
    pub const fn new(table: &'static Table) -> Self {
        Self(rings::Words::new(NOTE_TYPE, table))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(call: u32, thread: u32, name: &[u8]) -> Origin {
        let mut padded = [0; NAME_BYTES];
        padded[..name.len()].copy_from_slice(name);
        Origin {
            call,
            thread,
            name: padded,
        }
    }

    /// The table's memory, as the host reads it.
    fn bytes(table: &Table) -> [u8; TABLE_BYTES] {
        let mut bytes = [0; TABLE_BYTES];
        for (to, entry) in bytes.chunks_mut(ENTRY_BYTES).zip(&table.0) {
            let words = [&entry.count, &entry.key, &entry.name[0], &entry.name[1]];
            for (to, word) in to.chunks_mut(8).zip(words) {
                to.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            }
        }
        bytes
    }

    #[test]
    fn what_a_guest_counts_is_what_the_host_reads() {
        let table = Table::new();
        assert_eq!(parse(&bytes(&table)).count(), 0);
        let (redis, read) = (
            origin(232, 1, b"redis-server"),
            origin(0, u32::MAX, &[7; 16]),
        );
        table.count(&redis);
        table.count(&read);
        table.count(&redis);
        let table = bytes(&table);
        let mut found = parse(&table);
        let of = |origin, count| {
            Some(Entry {
                origin: Some(origin),
                count,
            })
        };
        assert_eq!(found.next(), of(redis, 2));
        assert_eq!(found.next(), of(read, 1));
        assert_eq!(found.next(), None);
        assert_eq!(redis.call_name(), Some("epoll_wait"));
        assert_eq!(redis.name_bytes(), b"redis-server");
        assert_eq!(read.name_bytes(), [7; 16]);
        assert_eq!(origin(39, 1, b"").call_name(), None);
    }

    #[test]
    fn a_full_table_counts_the_rest_together() {
        let table = Table::new();
        for thread in 0..40 {
            table.count(&origin(35, thread, b"sleeper"));
        }
        let bytes = bytes(&table);
        let found: [Option<Entry>; ENTRIES + 1] = {
            let mut found = parse(&bytes);
            core::array::from_fn(|_| found.next())
        };
        assert!(
            found[..31]
                .iter()
                .all(|it| it.is_some_and(|it| it.count == 1))
        );
        let rest = Entry {
            origin: None,
            count: 9,
        };
        assert_eq!((found[31], found[32]), (Some(rest), None));
    }

    #[test]
    fn a_renamed_thread_has_its_last_name() {
        let table = Table::new();
        table.count(&origin(202, 4, b"worker"));
        table.count(&origin(202, 4, b"gc"));
        let table = bytes(&table);
        let last = parse(&table).next().and_then(|it| it.origin);
        assert_eq!(last, Some(origin(202, 4, b"gc")));
    }

    #[test]
    fn layout_is_as_described() {
        assert_eq!(size_of::<Table>(), TABLE_BYTES);
        assert_eq!((size_of::<Note>(), align_of::<Note>()), (28, 4));
        let sorted = CALLS.is_sorted_by(|(one, _), (other, _)| one < other);
        assert!(sorted, "each number once");
    }
}
