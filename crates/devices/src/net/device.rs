//! The device: what it offers, its configuration, and which direction has work.

use std::sync::Arc;

use tare_policy::limit::NetLimits;

use super::limit::Limiter;
use super::offload::{self, Negotiated};
use super::receive::Buffers;
use super::{Link, LinkError, NetCounters, QUEUE_SIZE, RX, TX};
use crate::CounterSource;
use crate::clock::{Clock, MonotonicClock};
use crate::virtio::{
    Chain, DeviceKind, Interest, Look, Progress, QueueError, Queues, VirtioDevice,
};

const LINK_UP: u16 = 1;

/// How a network device looks to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetSettings {
    /// Hardware address.
    pub mac: [u8; 6],
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// Frames and bytes a second, in each direction.
    pub limits: NetLimits,
}

/// Whether the link still works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    /// The link does not know yet which offloads the driver accepts.
    Fresh,
    Up,
    Down,
}

/// A network device over a link. Queue 0 receives, queue 1 transmits.
pub struct Net<L> {
    settings: NetSettings,
    pub(super) link: L,
    pub(super) state: LinkState,
    pub(super) negotiated: Negotiated,
    /// Frames wait in the link for receive buffers.
    pub(super) rx_starved: bool,
    /// Frames wait in the transmit queue for the link.
    pub(super) tx_blocked: bool,
    /// The last batch ended before the transmit queue did.
    pub(super) tx_unfinished: bool,
    /// The I/O thread looks at the transmit queue again by itself.
    pub(super) is_looked_at: bool,
    /// Frames that left the transmit queue.
    pub(super) tx_taken: u64,
    pub(super) limiter: Limiter,
    config_changed: bool,
    pub(super) counters: Arc<NetCounters>,
    /// Buffers that both directions use again.
    pub(super) chain: Chain,
    pub(super) buffers: Buffers,
}

impl<L: Link> Net<L> {
    /// A device over `link`.
    pub fn new(settings: NetSettings, link: L) -> Self {
        Self::with_clock(settings, link, Box::new(MonotonicClock))
    }

    /// The same with a clock for the limits, in tests another one.
    pub(crate) fn with_clock(settings: NetSettings, link: L, clock: Box<dyn Clock>) -> Self {
        Self {
            limiter: Limiter::new(settings.limits, clock),
            settings,
            link,
            state: LinkState::Fresh,
            negotiated: Negotiated::default(),
            rx_starved: false,
            tx_blocked: false,
            tx_unfinished: false,
            is_looked_at: false,
            tx_taken: 0,
            config_changed: false,
            counters: Arc::default(),
            chain: Chain::default(),
            buffers: Buffers::default(),
        }
    }

    /// The link.
    pub fn link(&self) -> &L {
        &self.link
    }

    /// The link, for the monitor's own use of it.
    pub fn link_mut(&mut self) -> &mut L {
        &mut self.link
    }

    /// Changes the limits, at run time. Notify a queue afterwards: what waits goes on at
    /// the deadline, which may have passed.
    pub fn set_limits(&mut self, limits: NetLimits) {
        self.limiter.set(limits);
    }

    /// The limits in force.
    pub fn limits(&self) -> NetLimits {
        self.limiter.limits()
    }

    /// When a frame that waits may go on, if one waits.
    pub(super) fn allowed_at_ns(&self) -> Option<u64> {
        self.limiter.deadline_ns()
    }

    /// Whether frames of the link may go to the guest now.
    pub(super) fn may_receive(&self) -> bool {
        !self.link_is_down() && !self.rx_starved && !self.limiter.rx.waits
    }

    /// When the link may have frames that no event announces.
    fn link_due_ns(&self) -> Option<u64> {
        match (self.may_receive(), self.link.has_frames()) {
            (false, _) => None,
            (true, true) => Some(0),
            (true, false) => self.link.deadline_ns(),
        }
    }

    /// Gives the guest what the link has made of its frames.
    fn receive_answers(&mut self, queues: &mut Queues<'_>) -> Result<Progress, QueueError> {
        if self.may_receive() && self.link.has_frames() {
            return self.receive(queues);
        }
        Ok(Progress::Done)
    }

    /// A limit may allow a waiting frame now.
    pub(super) fn resume_limited(&mut self, queues: &mut Queues<'_>) -> Result<(), QueueError> {
        let now_ns = self.limiter.now_ns();
        if self.limiter.tx.resumes(now_ns) {
            let sent = self.transmit(queues)?;
            // The rest of a batch comes with the next call, at once.
            self.limiter.tx.waits |= sent == Progress::More;
        }
        if self.limiter.rx.resumes(now_ns) {
            let received = self.receive(queues)?;
            self.limiter.rx.waits |= received == Progress::More;
        }
        Ok(())
    }

    /// The link failed: the guest sees it as down.
    pub(super) fn link_failed(&mut self, _why: &LinkError) {
        self.counters.link_errors.increment();
        self.config_changed |= self.state != LinkState::Down;
        self.state = LinkState::Down;
    }

    pub(super) fn link_is_down(&self) -> bool {
        self.state == LinkState::Down
    }

    /// Before the first frame of a run: gives the link the offloads that the driver accepts.
    fn prepare_link(&mut self) {
        if self.state != LinkState::Fresh {
            return;
        }
        self.state = LinkState::Up;
        if let Err(error) = self.link.set_offload(self.negotiated.rx()) {
            self.link_failed(&error);
        }
    }

    fn config(&self) -> [u8; 12] {
        let mut config = [0; 12];
        let status = if self.link_is_down() { 0 } else { LINK_UP };
        config[..6].copy_from_slice(&self.settings.mac);
        config[6..8].copy_from_slice(&status.to_le_bytes());
        config[8..10].copy_from_slice(&1u16.to_le_bytes());
        config[10..].copy_from_slice(&self.settings.mtu.to_le_bytes());
        config
    }
}

impl<L: Link> VirtioDevice for Net<L> {
    fn kind(&self) -> DeviceKind {
        DeviceKind {
            id: 1,
            class: 0x02_0000,
        }
    }

    fn queue_sizes(&self) -> &[u16] {
        &[QUEUE_SIZE; 2]
    }

    fn features(&self) -> u64 {
        offload::offered(self.link.features().offload)
    }

    fn accepts(&self, features: u64) -> bool {
        offload::consistent(features)
    }

    fn read_config(&self, offset: usize, data: &mut [u8]) {
        for (byte, value) in data.iter_mut().zip(self.config().iter().skip(offset)) {
            *byte = *value;
        }
    }

    fn start(&mut self, features: u64) {
        self.negotiated = Negotiated::new(features);
        if self.state == LinkState::Up {
            self.state = LinkState::Fresh;
        }
    }

    fn stop(&mut self) {
        self.rx_starved = false;
        self.tx_blocked = false;
        self.tx_unfinished = false;
        self.is_looked_at = false;
        self.limiter.forget();
    }

    fn process(&mut self, index: u16, queues: &mut Queues<'_>) -> Result<Progress, QueueError> {
        self.prepare_link();
        match index {
            RX => self.receive(queues),
            TX => {
                let sent = self.transmit(queues)?;
                Ok(sent.or(self.receive_answers(queues)?))
            }
            _ => Ok(Progress::Done),
        }
    }

    fn look(&mut self, look: Look, queues: &mut Queues<'_>) -> Result<Progress, QueueError> {
        self.is_looked_at = look == Look::Again;
        let before = self.tx_taken;
        let progress = self.process(TX, queues)?;
        Ok(if self.tx_taken == before {
            progress
        } else {
            Progress::More
        })
    }

    fn backend_ready(&mut self, queues: &mut Queues<'_>) -> Result<Progress, QueueError> {
        self.prepare_link();
        self.link.ready();
        let sent = self.resume_transmit(queues)?;
        let received = self.receive(queues)?;
        Ok(sent.or(received))
    }

    fn interest(&self) -> Interest {
        let sends = !self.link_is_down() && (self.tx_blocked || self.link.has_unsent());
        let is_set = self.link.is_set();
        Interest {
            readable: self.may_receive() || sends && is_set,
            writable: sends && !is_set,
        }
    }

    fn deadline_ns(&self) -> Option<u64> {
        let due = [self.allowed_at_ns(), self.link_due_ns()];
        due.into_iter().flatten().min()
    }

    fn deadline_passed(&mut self, queues: &mut Queues<'_>) -> Result<(), QueueError> {
        self.resume_limited(queues)?;
        if self.link_due_ns().is_some() {
            // What is left is due at once.
            let _ = self.receive(queues)?;
        }
        Ok(())
    }

    fn take_config_change(&mut self) -> bool {
        std::mem::take(&mut self.config_changed)
    }

    fn counters(&self) -> Arc<dyn CounterSource> {
        Arc::clone(&self.counters) as Arc<dyn CounterSource>
    }
}
