//! virtio
mod device;
mod transport;
pub use device::{Interest, Progress, VirtioDevice};
pub use transport::VirtioPci;
