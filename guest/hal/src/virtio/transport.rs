//! A virtio device as drivers see it: the transport of the virtio-drivers
//! crate, plus what that leaves out (interrupt vectors) and with cheaper
//! notifications.

use core::fmt;

use virtio_drivers::PhysAddr;
use virtio_drivers::transport::{
    DeviceStatus, DeviceType, InterruptStatus, SomeTransport, Transport as Inner,
};

#[cfg(target_os = "none")]
use super::interrupts::msix::NO_VECTOR;
use super::interrupts::{Handler, Interrupts};

/// A virtio device. Notifying a queue costs one exit: its address is looked
/// up once (virtio 1.2, 4.1.5.2).
pub struct Transport {
    inner: SomeTransport<'static>,
    notifier: Notifier,
    interrupts: Interrupts,
}

/// How a queue's notification is written.
#[derive(Debug)]
pub(super) enum Notifier {
    /// As the inner transport does.
    Inner,
    /// To a queue's own address.
    #[cfg(target_os = "none")]
    Pci(PciNotifier),
}

impl Transport {
    pub(super) fn new(
        inner: SomeTransport<'static>,
        notifier: Notifier,
        interrupts: Interrupts,
    ) -> Self {
        Self {
            inner,
            notifier,
            interrupts,
        }
    }

    /// Calls `handler` when the device signals `queue`. To be called before
    /// the driver sets the queue up. With MSI-X the queue gets its own
    /// vector; otherwise the device's line is shared by the handlers of all its
    /// queues, and acknowledged before they are called.
    pub fn on_interrupt(&mut self, queue: u16, handler: Handler) {
        self.on_interrupt_at(queue, 0, handler);
    }

    /// The same, with the interrupt on the CPU of that number. A line, which
    /// all queues share, stays with CPU 0.
    pub fn on_interrupt_at(&mut self, queue: u16, cpu: usize, handler: Handler) {
        self.interrupts.handle(queue, cpu, handler);
    }

    /// How many more queues, of this and the devices that follow, can have an interrupt: with
    /// MSI-X each takes a vector of the image's; a line serves any number.
    pub fn interrupts_left(&self) -> usize {
        self.interrupts.left()
    }

    /// Calls `handler` on CPU 0 when the device's configuration changes. False if there is a
    /// handler already, or the device cannot report a change. To be called when the queues have
    /// theirs.
    pub fn on_config_change(&mut self, handler: Handler) -> bool {
        match (&self.notifier, &mut self.interrupts) {
            #[cfg(target_os = "none")]
            (Notifier::Pci(pci), Interrupts::Msix(msix)) => {
                if msix.entry(pci::CONFIG) != NO_VECTOR {
                    return false;
                }
                msix.handle(pci::CONFIG, 0, handler);
                pci.set_config_vector(msix.entry(pci::CONFIG))
            }
            #[cfg(target_os = "none")]
            (_, Interrupts::Line(line)) => line.handle_config(handler),
            _ => {
                let _ = handler;
                false
            }
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("inner", &self.inner)
            .field("notifier", &self.notifier)
            .finish_non_exhaustive()
    }
}

impl Inner for Transport {
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
        match &self.notifier {
            #[cfg(target_os = "none")]
            Notifier::Pci(pci) if pci.notify(queue) => {}
            _ => self.inner.notify(queue),
        }
    }

    fn get_status(&self) -> DeviceStatus {
        self.inner.get_status()
    }

    /// One step at a time (virtio 1.2, 3.1.1): Firecracker takes no two at once, as
    /// virtio-drivers writes them.
    fn set_status(&mut self, status: DeviceStatus) {
        if status == DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER {
            self.inner.set_status(DeviceStatus::ACKNOWLEDGE);
        }
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
        #[cfg(target_os = "none")]
        if let (Notifier::Pci(pci), Interrupts::Msix(msix)) = (&mut self.notifier, &self.interrupts)
        {
            pci.prepare(queue, msix.entry(queue));
        }
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

#[cfg(target_os = "none")]
pub(super) use pci::PciNotifier;

#[cfg(target_os = "none")]
mod pci {
    //! The three registers of the common configuration that the inner transport
    //! does not use, and the notification region (virtio 1.2, 4.1.4.3-4).

    #![allow(unsafe_code)]

    use super::NO_VECTOR;

    /// Stands for configuration changes among the owners of vectors: no queue has this number.
    pub(super) const CONFIG: u16 = 0xffff;

    const CONFIG_MSIX_VECTOR: u64 = 0x10;
    const QUEUE_SELECT: u64 = 0x16;
    const QUEUE_MSIX_VECTOR: u64 = 0x1a;
    const QUEUE_NOTIFY_OFF: u64 = 0x1e;
    /// Queues whose address is kept; a console of three ports has eight.
    const MAX_QUEUES: usize = 8;

    /// Addresses of a device's structures, mapped forever.
    #[derive(Debug)]
    pub(in crate::virtio) struct PciNotifier {
        common: u64,
        notify: u64,
        length: u32,
        multiplier: u32,
        /// Where each queue is notified, 0 until it is set up.
        queues: [u64; MAX_QUEUES],
    }

    impl PciNotifier {
        /// From the mapped structures' addresses.
        pub(in crate::virtio) fn new(
            common: u64,
            notify: u64,
            length: u32,
            multiplier: u32,
        ) -> Self {
            Self {
                common,
                notify,
                length,
                multiplier,
                queues: [0; MAX_QUEUES],
            }
        }

        /// Gives `queue` its interrupt entry and looks its address up.
        pub(in crate::virtio) fn prepare(&mut self, queue: u16, entry: u16) {
            let register = |offset| (self.common + offset) as *mut u16;
            for (offset, value) in [(QUEUE_SELECT, queue), (QUEUE_MSIX_VECTOR, entry)] {
                // SAFETY: 1. `discover` mapped the structure within its BAR (`pci::bar_memory`),
                //    after virtio-drivers refused one shorter than these registers or
                //    misaligned; mappings are never removed. 2. `&mut self`: no other core
                //    selects a queue in between. 3. The registers are 16 bits wide (virtio
                //    1.2, 4.1.4.3).
                unsafe { register(offset).write_volatile(value) };
            }
            // SAFETY: 1. The register lies in the structure that is mapped, as above. 2. `&mut
            //    self`: no other core selects a queue in between. 3. A read of it has no effect.
            let offset = unsafe { register(QUEUE_NOTIFY_OFF).read_volatile() };
            let offset = u64::from(offset) * u64::from(self.multiplier);
            if offset + 2 <= u64::from(self.length)
                && offset.is_multiple_of(2)
                && let Some(address) = self.queues.get_mut(usize::from(queue))
            {
                *address = self.notify + offset;
            }
        }

        /// Gives configuration changes their interrupt entry; says whether the device took it.
        pub(in crate::virtio) fn set_config_vector(&self, entry: u16) -> bool {
            let register = (self.common + CONFIG_MSIX_VECTOR) as *mut u16;
            // SAFETY: 1. The register lies in the structure that `discover` mapped (see `prepare`),
            //    and is 16 bits wide. 2. It needs no selection.
            unsafe { register.write_volatile(entry) };
            // SAFETY: 1. The register lies in the structure that `discover` mapped (see `prepare`).
            //    2. A read of it has no effect.
            let taken = unsafe { register.read_volatile() };
            taken == entry && entry != NO_VECTOR
        }

        /// Notifies `queue`; says whether its address is known.
        #[inline]
        pub(in crate::virtio) fn notify(&self, queue: u16) -> bool {
            match self.queues.get(usize::from(queue)) {
                Some(&address) if address != 0 => {
                    // SAFETY: 1. `prepare` stored the address after checking that its two bytes
                    //    are within the mapped notification region, at an even offset. 2. Mappings
                    //    are never removed. 3. The device takes a write by any core at any time.
                    unsafe { (address as *mut u16).write_volatile(queue) };
                    true
                }
                _ => false,
            }
        }
    }
}
