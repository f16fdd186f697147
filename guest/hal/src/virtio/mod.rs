//! Virtio devices of this machine, over PCI with MSI-X and over MMIO (virtio
//! 1.2, 4.1 and 4.2).
//!
//! [`devices`] finds them once; each is a [`Transport`] that any driver of the
//! `virtio-drivers` crate takes, with [`Dma`] as its memory interface:
//!
//! ```ignore
//! for mut transport in tare_hal::virtio::devices() {
//!     if transport.device_type() == DeviceType::Network {
//!         transport.on_interrupt(0, receive_ready); // before the driver sets up its queues
//!         let net = VirtIONet::<Dma, Transport, 64>::new(transport, 2048)?;
//!     }
//! }
//! ```

mod barrier;
#[cfg(target_os = "none")]
mod discover;
mod dma;
#[cfg(not(target_os = "none"))]
mod in_memory;
mod interrupts;
mod mmio_word;
mod queue;
mod transport;

#[cfg(target_os = "none")]
pub use discover::{console_driver, devices};
pub use dma::Dma;
#[cfg(not(target_os = "none"))]
pub use in_memory::{DeviceMemory, Doorbell, Registers};
pub use interrupts::Handler;
pub use mmio_word::MmioWord;
#[cfg(not(target_os = "none"))]
pub use queue::DeviceSide;
pub use queue::{Queue, QueueOptions};
pub use transport::Transport;

/// Why a device could not be set up, in words. Those of the virtio-drivers crate name errors of
/// sockets too, and take 1 KiB of every image.
pub fn reason(error: &virtio_drivers::Error) -> &'static str {
    use virtio_drivers::Error;
    match error {
        Error::DmaError => "there is no memory for its queues",
        Error::ConfigSpaceTooSmall | Error::ConfigSpaceMissing => {
            "its configuration space is too small"
        }
        Error::InvalidParam => "it lacks a queue",
        Error::Unsupported => "it lacks a feature",
        _ => "it does not follow the specification",
    }
}

/// On the host there is none.
#[cfg(not(target_os = "none"))]
pub fn devices() -> alloc::vec::Vec<Transport> {
    alloc::vec::Vec::new()
}

/// The host has no image that names one.
#[cfg(not(target_os = "none"))]
pub fn console_driver() -> Option<fn(Transport)> {
    None
}
