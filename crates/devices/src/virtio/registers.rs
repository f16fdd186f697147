//! Reads and writes of the common configuration structure (virtio 1.2, 4.1.4.3): negotiation, and
//! queues before they live.

use super::common::{Register, Ring};
use super::negotiation::{DRIVER_OK, Step};
use super::{NO_VECTOR, QueueSettings, VirtioDevice, VirtioPci};

impl<D: VirtioDevice> VirtioPci<D> {
    pub(super) fn common_read(&self, register: Register) -> u64 {
        let selected = self.settings.get(usize::from(self.queue_select));
        let queue = |value: fn(&QueueSettings) -> u64| selected.map_or(0, value);
        match register {
            Register::OfferedSelect => self.negotiation.offered_select.into(),
            Register::Offered => self.negotiation.offered_word().into(),
            Register::AcceptedSelect => self.negotiation.accepted_select.into(),
            Register::Accepted => self.negotiation.accepted_word().into(),
            Register::ConfigVector => self.config_vector.into(),
            Register::QueueCount => self.queue_count().into(),
            Register::Status => self.negotiation.status().into(),
            Register::Generation => self.generation.into(),
            Register::QueueSelect => self.queue_select.into(),
            Register::QueueSize => queue(|queue| queue.size.into()),
            Register::QueueVector => selected.map_or(NO_VECTOR, |queue| queue.vector).into(),
            Register::QueueEnable => queue(|queue| queue.enabled.into()),
            Register::QueueNotifyOffset => selected.map_or(0, |_| self.queue_select).into(),
            Register::QueueNotifyData | Register::QueueReset => 0,
            Register::Ring(Ring::Descriptors, part) => part.of(queue(|queue| queue.descriptors)),
            Register::Ring(Ring::Available, part) => part.of(queue(|queue| queue.available)),
            Register::Ring(Ring::Used, part) => part.of(queue(|queue| queue.used)),
        }
    }

    /// Writes a register; `false` if the write is invalid.
    pub(super) fn common_write(&mut self, register: Register, value: u64) -> bool {
        match register {
            Register::OfferedSelect => self.negotiation.offered_select = value as u32,
            Register::AcceptedSelect => self.negotiation.accepted_select = value as u32,
            Register::Accepted => return self.negotiation.accept_word(value as u32),
            Register::ConfigVector => self.config_vector = self.known_vector(value),
            Register::Status => return self.write_status(value as u8),
            Register::QueueSelect => self.queue_select = value as u16,
            Register::QueueVector => return self.write_queue_vector(value),
            Register::QueueEnable => return self.enable_queue(value),
            Register::QueueSize => {
                return self.configure(|queue| queue.size = value as u16);
            }
            Register::Ring(ring, part) => {
                return self.configure(|queue| {
                    let address = match ring {
                        Ring::Descriptors => &mut queue.descriptors,
                        Ring::Available => &mut queue.available,
                        Ring::Used => &mut queue.used,
                    };
                    *address = part.replace(*address, value);
                });
            }
            Register::Offered
            | Register::QueueCount
            | Register::Generation
            | Register::QueueNotifyOffset
            | Register::QueueNotifyData
            | Register::QueueReset => return false,
        }
        true
    }

    fn write_status(&mut self, value: u8) -> bool {
        let device = &self.device;
        let step = self
            .negotiation
            .write_status(value, |features| device.accepts(features));
        match step {
            Step::Reset => self.reset(),
            Step::Start => self.activate(),
            Step::Fail => self.deactivate(),
            Step::Refused => self.counters.features_refused.increment(),
            Step::Noted => {}
            Step::Invalid => return false,
        }
        true
    }

    fn write_queue_vector(&mut self, value: u64) -> bool {
        let vector = self.known_vector(value);
        let selected = self.settings.get_mut(usize::from(self.queue_select));
        selected.map(|queue| queue.vector = vector).is_some()
    }

    /// Changes a queue that is not enabled yet.
    fn configure(&mut self, change: impl FnOnce(&mut QueueSettings)) -> bool {
        match self.settings.get_mut(usize::from(self.queue_select)) {
            Some(queue) if !queue.enabled => change(queue),
            _ => return false,
        }
        true
    }

    /// Enables the selected queue if its settings are valid; otherwise the queue is broken.
    fn enable_queue(&mut self, value: u64) -> bool {
        let started = self.negotiation.status() & DRIVER_OK != 0;
        let selected = self.settings.get_mut(usize::from(self.queue_select));
        let (Some(queue), 1, false) = (selected, value, started) else {
            return false;
        };
        match queue.build(&self.memory) {
            Ok(_) => queue.enabled = true,
            Err(_) => self.break_down(),
        }
        true
    }

    /// A vector that does not exist becomes [`NO_VECTOR`] (4.1.5.1.2.1).
    fn known_vector(&self, value: u64) -> u16 {
        let vector = value as u16;
        if vector < self.vector_count() {
            vector
        } else {
            NO_VECTOR
        }
    }
}
