//! Requests between the guest's queue and their answer.

use std::sync::Arc;

use tare_policy::coalesce::RequestKind;
use vm_memory::GuestAddress;

use super::io_engine::Durability;
use super::raw_io::Buffers;
use super::{MAX_IN_FLIGHT, Request};
use crate::GuestRam;

/// Where the answer to a request is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    /// Queue that it came from.
    pub(super) queue: usize,
    /// Chain.
    pub(super) head: u16,
    /// Where the status byte goes.
    pub(super) status_at: GuestAddress,
    /// Its class, for the coalescing policy.
    pub(super) kind: RequestKind,
    /// When it was taken from the queue, by the device's clock.
    pub(super) submitted_ns: u64,
}

/// A request that the I/O engine executes.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlightRequest {
    pub(super) reply: Reply,
    pub(super) request: Request,
    pub(super) durability: Durability,
    /// Bytes transferred so far.
    pub(super) done: u64,
    /// All bytes are transferred; the engine now makes them durable.
    pub(super) flushes: bool,
    /// Its data is copied through the device's own memory (`slow`).
    pub(super) copied: bool,
}

/// Requests in flight by token, and buffers to use again.
#[derive(Default)]
pub(super) struct InFlight {
    slots: Vec<Option<InFlightRequest>>,
    free: Vec<usize>,
    spare: Vec<Buffers>,
    memory: Option<Arc<GuestRam>>,
}

impl InFlight {
    /// A free token with buffers to fill; `None` if all tokens are in flight.
    pub(super) fn reserve(&mut self, memory: &GuestRam) -> Option<(usize, Buffers)> {
        let token = match self.free.pop() {
            Some(token) => token,
            None if self.slots.len() < MAX_IN_FLIGHT => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => return None,
        };
        let memory = self.memory.get_or_insert_with(|| Arc::new(memory.clone()));
        let buffers = self.spare.pop().unwrap_or_else(|| Buffers::new(memory));
        Some((token, buffers))
    }

    /// Whether every token is in use.
    pub(super) fn are_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() == MAX_IN_FLIGHT
    }

    /// Whether something is in flight.
    pub(super) fn any(&self) -> bool {
        self.free.len() != self.slots.len()
    }

    /// Notes that the I/O engine has the request.
    pub(super) fn submit(&mut self, token: usize, pending: InFlightRequest) {
        if let Some(slot) = self.slots.get_mut(token) {
            *slot = Some(pending);
        }
    }

    /// The request with that token.
    pub(super) fn get(&self, token: usize) -> Option<&InFlightRequest> {
        self.slots.get(token)?.as_ref()
    }

    /// The request that the I/O engine has completed; its token stays in use.
    pub(super) fn complete(&mut self, token: usize) -> Option<InFlightRequest> {
        self.slots.get_mut(token)?.take()
    }

    /// Gives token and buffers back.
    pub(super) fn release(&mut self, token: usize, mut buffers: Buffers) {
        buffers.clear();
        self.spare.push(buffers);
        self.free.push(token);
    }

    /// Forgets everything in flight, and the memory.
    pub(super) fn forget(&mut self) {
        self.slots.clear();
        self.free.clear();
        self.spare.clear();
        self.memory = None;
    }
}
