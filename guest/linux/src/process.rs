//! The one process.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64};

use tare_libos::sync::SpinLock;

use crate::alarm::Alarm;
use crate::files::Table;
use crate::files::endpoint::Name;
use crate::files::tree::Tree;
use crate::files::unix::Named;
use crate::futex::Futexes;
use crate::shared::Mappings;
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
    /// Files of a volume that are mapped for writing.
    pub(crate) shared: Mappings,
    pub(crate) files: SpinLock<Table>,
    pub(crate) tree: Tree,
    /// Sockets with abstract names.
    pub(crate) abstract_names: SpinLock<BTreeMap<Name, Named>>,
    /// Permissions that new files do not get (`umask`).
    pub(crate) mask: AtomicU32,
    /// The timer of `setitimer` and `alarm`.
    pub(crate) alarm: Arc<Alarm>,
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
