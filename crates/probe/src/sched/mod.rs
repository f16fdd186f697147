//! Where the time of any processes goes, by the scheduler's events: stretches on
//! a CPU (as cpudist shows) and stretches off one by their cause (as offcputime
//! shows), for groups of threads that the caller chooses.
//!
//! ```no_run
//! use std::time::Duration;
//! use tare_probe::sched::Observer;
//!
//! let mut observer = Observer::start()?;
//! let group = observer.group();
//! observer.watch_process(group, std::process::id());
//! std::thread::sleep(Duration::from_secs(1));
//! for times in observer.turn() {
//!     println!("{:?}: {} ns on a CPU", times.group, times.on_cpu.sum_ns);
//! }
//! # Ok::<(), tare_probe::Unavailable>(())
//! ```
//!
//! What a watched thread forks belongs to its group, so a workload is watched
//! whole from its first process on. Programs: `bpf/sched.bpf.c`; causes are
//! by the system call that waits, read at the time of waiting, so that no system
//! call is slowed down.

mod cause;
mod observer;
mod times;

pub use cause::Cause;
pub use observer::{Group, Observer};
pub use times::{OffCpuTime, Times};
