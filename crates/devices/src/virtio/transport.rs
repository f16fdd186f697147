//! transport
use std::sync::Arc;
use crate::{CounterSource, GuestRam, Wiring};
use crate::pci::PciFunction;
use super::{Interest, Progress, VirtioDevice};

/// A virtio device as a PCI function.
pub struct VirtioPci<D> { device: D }

impl<D: VirtioDevice> VirtioPci<D> {
    /// Puts `device` behind the PCI transport.
    pub fn new(device: D, memory: GuestRam, wiring: Wiring) -> Self { let _ = (memory, wiring); Self { device } }
    /// Queues; notify addresses, `Kick` and `notified` count from 0.
    pub fn queue_count(&self) -> u16 { todo!() }
    /// MSI-X vectors (queues and one for configuration changes): vectors 0 to count - 1 reach `Interrupts` and `MsixRoutes`.
    pub fn vector_count(&self) -> u16 { todo!() }
    /// Guest-physical address at which any write of 2 bytes notifies `queue`: bind an ioeventfd with length 0 (any). `None` before the function is on a bus or for a queue that is not there. Never changes.
    pub fn notify_address(&self, queue: u16) -> Option<u64> { let _ = queue; todo!() }
    /// I/O thread: the queue's ioeventfd fired (or `Kick`).
    pub fn notified(&mut self, queue: u16) -> Progress { let _ = queue; todo!() }
    /// I/O thread: the backend's descriptor is ready (in any direction), or `Progress::More` was returned by this call before.
    pub fn backend_ready(&mut self) -> Progress { todo!() }
    /// I/O thread: what to wait for on the backend's descriptor; ask again after each `notified`, `backend_ready`.
    pub fn interest(&self) -> Interest { todo!() }
    /// Counters of transport and device, shared.
    pub fn counters(&self) -> Arc<dyn CounterSource> { todo!() }
    /// The device behind the transport.
    pub fn device(&self) -> &D { &self.device }
}

impl<D: VirtioDevice> PciFunction for VirtioPci<D> {
    fn bar_size(&self) -> Option<u64> { todo!() }
    fn assign_bar(&mut self, address: u64) { let _ = address; todo!() }
    fn config_read(&mut self, offset: u16, data: &mut [u8]) { let _ = (offset, data); }
    fn config_write(&mut self, offset: u16, data: &[u8]) { let _ = (offset, data); }
    fn bar_read(&mut self, offset: u64, data: &mut [u8]) { let _ = (offset, data); }
    fn bar_write(&mut self, offset: u64, data: &[u8]) { let _ = (offset, data); }
}
