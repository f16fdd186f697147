//! [`Entropy`]: virtio-rng (virtio 1.2, 5.4), waited for by looking: the host answers at once.

#![cfg_attr(not(target_os = "none"), allow(dead_code))] // the host has no devices
#![allow(unsafe_code)] // the queue's `add`

use alloc::boxed::Box;

use tare_hal::virtio::{Queue, QueueOptions, Transport};
use virtio_drivers::transport::Transport as _;

use crate::virtio;

/// The device's only queue.
const REQUESTS: u16 = 0;
const OPTIONS: QueueOptions = QueueOptions {
    longest: 1,
    indirect: false,
    event_idx: false,
};

/// Bytes of one request.
pub(super) const BYTES: usize = 32;

/// The host's generator.
pub(super) struct Entropy {
    transport: Transport,
    queue: Queue,
    /// What the device writes to.
    buffer: Box<[u8; BYTES]>,
}

impl Entropy {
    /// Takes the device over.
    pub(super) fn new(mut transport: Transport) -> virtio_drivers::Result<Self> {
        let negotiated = virtio::negotiate(&mut transport, virtio::VERSION_1);
        negotiated.map_err(|virtio::Refused| virtio_drivers::Error::Unsupported)?;
        let mut queue = Queue::new(&mut transport, REQUESTS, OPTIONS)?;
        queue.set_interrupts(false);
        transport.finish_init();
        Ok(Self {
            transport,
            queue,
            buffer: Box::new([0; BYTES]),
        })
    }

    /// Some bytes; none if the device answers what it was not asked.
    pub(super) fn read(&mut self) -> &[u8] {
        // SAFETY: the buffer lives as long as the queue, and is read when the queue has given
        // its token back; after a wrong answer the queue stays full.
        let token = unsafe { self.queue.add(&[], &mut [&mut self.buffer[..]]) };
        let Some(token) = token else {
            return &[];
        };
        if self.queue.should_notify() {
            self.transport.notify(REQUESTS);
        }
        while !self.queue.can_take() {
            core::hint::spin_loop();
        }
        let len = self.queue.take(token).unwrap_or(0) as usize;
        &self.buffer[..len.min(BYTES)]
    }
}
