//! How a device reaches the vCPUs and the I/O thread: three small traits that
//! the monitor implements over irqfds, MSI routes and eventfds.

use std::sync::Arc;

pub use tare_abi::msi::MsiMessage;

/// Delivers interrupts. One value per PCI function; the monitor writes the
/// vector's irqfd.
///
/// Called under the device's mutex, on the I/O thread (queue work) and on vCPU
/// threads (unmasking a pending vector, configuration changes). Must not block
/// and must not take a device's mutex.
pub trait Interrupts: Send + Sync {
    /// Sends the message last given to [`MsixRoutes::set`] for `vector`. Never
    /// called for a vector without one, nor while it is masked.
    fn signal(&self, vector: u16);
}

/// Tracks the MSI-X table. One value per PCI function; the monitor updates KVM's routes.
///
/// Called under the device's mutex, on vCPU threads. A route is set before its first signal, and
/// again only when the message changed: masking and unmasking alone cause no call.
pub trait MsixRoutes: Send + Sync {
    /// Routes `vector` to `message`; `None` forgets the route (reset of the
    /// function's MSI-X state).
    fn set(&self, vector: u16, message: Option<MsiMessage>);
}

/// Wakes the I/O thread for a queue, exactly as the queue's ioeventfd does.
///
/// Called under the device's mutex on vCPU threads: when a notification
/// arrives as an ordinary memory write, and for every queue when the driver
/// sets DRIVER_OK or resets the device. The I/O thread answers with
/// [`crate::virtio::VirtioPci::notified`] and asks for the device's
/// [`crate::virtio::Interest`] again.
pub trait Kick: Send + Sync {
    /// Wakes the I/O thread for `queue`.
    fn kick(&self, queue: u16);
}

/// The three traits as one device gets them.
#[derive(Clone)]
pub struct Wiring {
    /// Delivers this device's interrupts.
    pub interrupts: Arc<dyn Interrupts>,
    /// Learns this device's MSI-X table.
    pub routes: Arc<dyn MsixRoutes>,
    /// Wakes the I/O thread.
    pub kick: Arc<dyn Kick>,
}
