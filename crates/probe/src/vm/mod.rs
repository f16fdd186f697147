//! Which virtual machines this host runs.

mod descriptors;
mod find;
mod helpers;
mod name;
mod sockets;
mod started;
mod threads;
mod translated;

pub(crate) use descriptors::Descriptors;
pub use find::{FindError, Listing, find, has_closed, list, lives, of_pid};
pub(crate) use helpers::helpers;
pub use helpers::of as helpers_of;
pub use started::{Looked, Started};
pub use tare_account::{Monitor, Role, Vm};
pub(crate) use threads::nameless_vcpus;
pub use threads::{VmThread, threads};
pub use translated::{Translated, translated};
