//! The one process.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64};

use tare_libos::sync::SpinLock;

use crate::files::Table;
use crate::files::tree::Tree;
use crate::futex::Futexes;
use crate::signals::Actions;
use crate::space::Space;
use crate::thread::Thread;

/// The process's number.
pub(crate) const PID: u32 = 1;
/// Most threads.
pub(crate) const MOST_THREADS: usize = 4096;

/// What the program's threads share.
pub(crate) struct Process {
    pub(crate) space: SpinLock<Space>,
    pub(crate) files: SpinLock<Table>,
    pub(crate) tree: Tree,
    /// The working directory, absolute.
    pub(crate) directory: SpinLock<String>,
    pub(crate) threads: SpinLock<BTreeMap<u32, Arc<Thread>>>,
    pub(crate) last_number: AtomicU32,
    pub(crate) futexes: Futexes,
    pub(crate) actions: SpinLock<Actions>,
    /// Signals for any thread.
    pub(crate) pending: AtomicU64,
    /// Unknown calls by number, a bit each: those that were logged.
    pub(crate) unknown: SpinLock<[u64; 8]>,
    /// Its path, for `/proc/self/exe`.
    pub(crate) path: String,
    pub(crate) hostname: String,
}
