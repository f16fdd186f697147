//! MSI-X: the table of messages, its masks, and the pending bits (PCI 3.0, 6.8.2 and 6.8.3).

use std::sync::Arc;

use crate::{Interrupts, MsiMessage, MsixRoutes};

/// Bytes of a table entry.
pub(crate) const ENTRY_LEN: usize = 16;
const VECTOR_MASKED: u32 = 1;

/// The message control register's two bits that a guest may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MsixControl {
    enabled: bool,
    masked: bool,
}

impl MsixControl {
    /// Writable bits of the register.
    pub const WRITABLE: u16 = Self::ENABLE | Self::FUNCTION_MASK;
    const ENABLE: u16 = 1 << 15;
    const FUNCTION_MASK: u16 = 1 << 14;

    /// From the register's value.
    pub fn from_word(word: u16) -> Self {
        Self {
            enabled: word & Self::ENABLE != 0,
            masked: word & Self::FUNCTION_MASK != 0,
        }
    }

    fn delivers(self) -> bool {
        self.enabled && !self.masked
    }
}

/// The effect of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MsixDelivery {
    /// The message was sent.
    Sent,
    /// The vector is masked: its pending bit is set, the message follows when
    /// the mask goes.
    Pending,
    /// MSI-X is off or the vector does not exist: the driver must poll.
    Nowhere,
}

/// One vector: its 16 bytes of table, and its state that the guest does not see.
#[derive(Clone, Debug)]
struct Vector {
    entry: [u8; ENTRY_LEN],
    pending: bool,
    routed: Option<MsiMessage>,
}

impl Vector {
    const WRITABLE: [u8; ENTRY_LEN] = [
        0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // address
        0xff, 0xff, 0xff, 0xff, // data
        1, 0, 0, 0, // mask
    ];

    fn new() -> Self {
        let mut entry = [0; ENTRY_LEN];
        entry[12] = VECTOR_MASKED as u8;
        Self {
            entry,
            pending: false,
            routed: None,
        }
    }

    fn dword(&self, index: usize) -> u32 {
        let at = index * 4;
        let bytes = &self.entry[at..at + 4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    fn masked(&self) -> bool {
        self.dword(3) & VECTOR_MASKED != 0
    }

    fn message(&self) -> MsiMessage {
        MsiMessage {
            address: u64::from(self.dword(1)) << 32 | u64::from(self.dword(0)),
            data: self.dword(2),
        }
    }
}

/// A function's MSI-X state.
pub struct Msix {
    control: MsixControl,
    vectors: Vec<Vector>,
    interrupts: Arc<dyn Interrupts>,
    routes: Arc<dyn MsixRoutes>,
}

impl Msix {
    /// `vectors` masked vectors, MSI-X off.
    pub fn new(vectors: u16, interrupts: Arc<dyn Interrupts>, routes: Arc<dyn MsixRoutes>) -> Self {
        Self {
            control: MsixControl::default(),
            vectors: vec![Vector::new(); usize::from(vectors)],
            interrupts,
            routes,
        }
    }

    /// Vectors in the table.
    pub(crate) fn vector_count(&self) -> u16 {
        self.vectors.len() as u16
    }

    /// The guest wrote the message control register.
    pub(crate) fn set_control(&mut self, control: MsixControl) {
        let was = std::mem::replace(&mut self.control, control);
        if was.enabled && !control.enabled {
            self.forget_routes();
        }
        for index in 0..self.vectors.len() {
            self.update_route(index);
        }
    }

    /// Sends `vector`'s message, or remembers it behind a mask.
    pub fn signal(&mut self, vector: u16) -> MsixDelivery {
        let index = usize::from(vector);
        if !self.control.enabled || index >= self.vectors.len() {
            return MsixDelivery::Nowhere;
        }
        self.vectors[index].pending = true;
        self.update_route(index);
        if self.vectors[index].pending {
            MsixDelivery::Pending
        } else {
            MsixDelivery::Sent
        }
    }

    /// Reads from the table; zeros beyond it.
    pub(crate) fn table_read(&self, offset: usize, data: &mut [u8]) {
        for (at, byte) in (offset..).zip(data) {
            let vector = self.vectors.get(at / ENTRY_LEN);
            *byte = vector.map_or(0, |vector| vector.entry[at % ENTRY_LEN]);
        }
    }

    /// Writes to the table; at most two entries are touched by one access.
    pub(crate) fn table_write(&mut self, offset: usize, data: &[u8]) {
        for (at, value) in (offset..).zip(data) {
            if let Some(vector) = self.vectors.get_mut(at / ENTRY_LEN) {
                let mask = Vector::WRITABLE[at % ENTRY_LEN];
                let byte = &mut vector.entry[at % ENTRY_LEN];
                *byte = *byte & !mask | value & mask;
            }
        }
        let last = offset.saturating_add(data.len().saturating_sub(1));
        for index in offset / ENTRY_LEN..=last / ENTRY_LEN {
            if index < self.vectors.len() {
                self.update_route(index);
            }
        }
    }

    /// Reads from the pending bit array.
    pub(crate) fn pba_read(&self, offset: usize, data: &mut [u8]) {
        for (at, byte) in (offset..).zip(data) {
            let bits = self.vectors.iter().skip(at * 8).take(8).enumerate();
            *byte = bits.fold(0, |byte, (bit, vector)| {
                byte | u8::from(vector.pending) << bit
            });
        }
    }

    /// Updates the route and delivers a pending message, unless a mask forbids it.
    fn update_route(&mut self, index: usize) {
        let vector = &mut self.vectors[index];
        if !self.control.delivers() || vector.masked() {
            return;
        }
        let message = vector.message();
        if vector.routed != Some(message) {
            vector.routed = Some(message);
            self.routes.set(index as u16, Some(message));
        }
        if std::mem::take(&mut vector.pending) {
            self.interrupts.signal(index as u16);
        }
    }

    fn forget_routes(&mut self) {
        for (index, vector) in self.vectors.iter_mut().enumerate() {
            vector.pending = false;
            if vector.routed.take().is_some() {
                self.routes.set(index as u16, None);
            }
        }
    }
}
