//! Virtio devices of this machine, over PCI with MSI-X and over MMIO.
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

#![allow(unsafe_code)]

use alloc::vec::Vec;
use core::ptr::NonNull;

use virtio_drivers::transport::{DeviceStatus, DeviceType, InterruptStatus, SomeTransport};
use virtio_drivers::{BufferDirection, PhysAddr};

/// What an interrupt handler is: a function that may be called on any core at
/// any time with interrupts off. It must not block.
pub type Handler = &'static (dyn Fn() + Sync);

/// DMA memory and address translation for drivers.
#[derive(Debug)]
pub struct Dma;

// SAFETY: never used on the host; see the guest's implementation.
#[cfg(not(target_os = "none"))]
unsafe impl virtio_drivers::Hal for Dma {
    fn dma_alloc(_pages: usize, _direction: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        (0, NonNull::dangling())
    }
    unsafe fn dma_dealloc(_paddr: PhysAddr, _vaddr: NonNull<u8>, _pages: usize) -> i32 {
        -1
    }
    unsafe fn mmio_phys_to_virt(_paddr: PhysAddr, _size: usize) -> NonNull<u8> {
        NonNull::dangling()
    }
    unsafe fn share(buffer: NonNull<[u8]>, _direction: BufferDirection) -> PhysAddr {
        buffer.as_ptr().cast::<u8>() as PhysAddr
    }
    unsafe fn unshare(_paddr: PhysAddr, _buffer: NonNull<[u8]>, _direction: BufferDirection) {}
}

/// A virtio device as drivers see it. Notifying a queue costs one exit: its
/// address is looked up once (virtio 1.2, 4.1.5.2).
#[derive(Debug)]
pub struct Transport {
    inner: SomeTransport<'static>,
}

impl Transport {
    /// Calls `handler` when the device signals `queue`. To be called before
    /// the driver sets the queue up. With MSI-X the queue gets a vector of its
    /// own; otherwise the device's line is shared by the handlers of all its
    /// queues, and acknowledged before they are called.
    pub fn on_interrupt(&mut self, queue: u16, handler: Handler) {
        let _ = (queue, handler);
    }
}

/// The machine's virtio devices, in bus order. The first call finds and
/// returns them all; later calls return nothing.
pub fn devices() -> Vec<Transport> {
    Vec::new()
}

impl virtio_drivers::transport::Transport for Transport {
    fn device_type(&self) -> DeviceType {
        self.inner.device_type()
    }
    fn read_device_features(&mut self) -> u64 {
        self.inner.read_device_features()
    }
    fn write_driver_features(&mut self, driver_features: u64) {
        self.inner.write_driver_features(driver_features);
    }
    fn max_queue_size(&mut self, queue: u16) -> u32 {
        self.inner.max_queue_size(queue)
    }
    fn notify(&mut self, queue: u16) {
        self.inner.notify(queue);
    }
    fn get_status(&self) -> DeviceStatus {
        self.inner.get_status()
    }
    fn set_status(&mut self, status: DeviceStatus) {
        self.inner.set_status(status);
    }
    fn set_guest_page_size(&mut self, guest_page_size: u32) {
        self.inner.set_guest_page_size(guest_page_size);
    }
    fn requires_legacy_layout(&self) -> bool {
        self.inner.requires_legacy_layout()
    }
    fn queue_set(
        &mut self,
        queue: u16,
        size: u32,
        descriptors: PhysAddr,
        driver_area: PhysAddr,
        device_area: PhysAddr,
    ) {
        self.inner
            .queue_set(queue, size, descriptors, driver_area, device_area);
    }
    fn queue_unset(&mut self, queue: u16) {
        self.inner.queue_unset(queue);
    }
    fn queue_used(&mut self, queue: u16) -> bool {
        self.inner.queue_used(queue)
    }
    fn ack_interrupt(&mut self) -> InterruptStatus {
        self.inner.ack_interrupt()
    }
    fn read_config_generation(&self) -> u32 {
        self.inner.read_config_generation()
    }
    fn read_config_space<T: zerocopy::FromBytes + zerocopy::IntoBytes>(
        &self,
        offset: usize,
    ) -> virtio_drivers::Result<T> {
        self.inner.read_config_space(offset)
    }
    fn write_config_space<T: zerocopy::IntoBytes + zerocopy::Immutable>(
        &mut self,
        offset: usize,
        value: T,
    ) -> virtio_drivers::Result<()> {
        self.inner.write_config_space(offset, value)
    }
}
