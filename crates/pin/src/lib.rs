//! Puts the threads of a virtual machine, a container or a process onto CPUs, and
//! puts them back exactly.
//!
//! ```no_run
//! use tare_pin::{Choice, Host, Plan, Store, Target, pin};
//!
//! let store = Store::open_default()?;
//! store.recover();
//! let target = Target::find("web")?;
//! let plan = Plan::make(&target, &Host::read()?, &Choice::Auto)?;
//! let pinned = pin(&store, "web", &plan, &|| false)?;
//! // ... measure ...
//! pinned.undo();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Target`] says what it is and which threads it has, [`Host`] which CPUs there
//! are, [`Plan`] where each thread shall go (the rules are
//! `tare_policy::placement`'s). [`pin`] writes the old placement into the journal
//! of a [`Store`], changes it, catches threads that begin meanwhile, and reads back
//! what the kernel took. A [`Pinned`] that is dropped is undone; one that was
//! killed is undone by the next [`Store::recover`].
//!
//! Linux keeps no record of whether a thread's set of CPUs was ever set; what is
//! put back is the set.

#![forbid(unsafe_code)]

pub mod affinity;
mod cpu_list;
mod host;
mod journal;
mod load;
mod pinned;
mod plan;
mod target;
mod task;

pub use cpu_list::{CpuList, CpuListError};
pub use host::{Host, HostError};
pub use journal::{Recovered, Store, StoreError, Undone, state_directory};
pub use pinned::{PinError, Pinned, pin};
pub use plan::{Choice, Plan, PlanError, Seat};
pub use target::{Container, Cpuset, Quota, Target, TargetError, TargetKind};
pub use task::{Task, TaskId};
