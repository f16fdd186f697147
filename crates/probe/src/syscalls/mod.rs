//! What an application asks of its kernel: every task, every system call, the
//! arguments that select features.
//!
//! ```text
//! recorder   the observation: followed tasks, draining, the profile at its end
//! session    its course: how long, and who ends it
//! follow     whom: a command's children, a process, a container
//! record     the kernel side's records, parsed
//! calls      counts of each CPU, made into calls of the profile
//! tasks      tasks and programs
//! features   uses of numbers by name, files, mounts
//! call_log   single calls as lines of text
//! modules    kernel modules that came or were used meanwhile
//! ```
//!
//! The kernel side is `bpf/syscalls.bpf.c`: it counts there, and passes on only
//! what is rare. A use counts when the kernel did what was asked; what it
//! refused stands among the call's errors. Calls of 32-bit programs are counted
//! as one kind, `compat`.

mod call_log;
mod calls;
mod features;
mod follow;
mod lookups;
mod modules;
mod record;
mod recorder;
mod session;
mod tasks;

pub use call_log::{LogEnd, LogError};
pub use follow::{Container, FollowError};
pub use recorder::{Recorder, StartError};
pub use session::{Because, Limits, ObservationEnd};
