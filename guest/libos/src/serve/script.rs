//! [`Script`]: a client in memory with its own clock, for tests of servers: nothing waits.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Transport, TransportError};

/// What a client does next.
#[derive(Clone, Debug)]
pub enum Act {
    /// It sends these bytes.
    Send(Vec<u8>),
    /// It does nothing for so long.
    Wait(Duration),
    /// Its connection breaks.
    Break,
}

/// The client's side of a connection: at the end of its acts it ends the stream.
#[derive(Debug)]
pub struct Script {
    acts: VecDeque<Act>,
    now: Duration,
    /// Most bytes of one receive.
    piece: usize,
    /// Bytes that one send takes, and how long that lasts.
    window: usize,
    pace: Duration,
    /// What the server has sent.
    pub sent: Vec<u8>,
    /// In how many calls.
    pub sends: usize,
    /// Whether the server has said that nothing more comes.
    pub finished: bool,
    /// Whether the server has seen the client's end.
    pub ended: bool,
    /// Whether the server has waited without a limit.
    pub unbounded: bool,
}

impl Script {
    /// A client that takes whatever is sent at once.
    pub fn new(acts: impl IntoIterator<Item = Act>) -> Self {
        Self {
            acts: acts.into_iter().collect(),
            now: Duration::ZERO,
            piece: usize::MAX,
            window: usize::MAX,
            pace: Duration::ZERO,
            sent: Vec::new(),
            sends: 0,
            finished: false,
            ended: false,
            unbounded: false,
        }
    }

    /// One that sends these bytes, a piece for each receive.
    pub fn sending<B: AsRef<[u8]>>(pieces: impl IntoIterator<Item = B>) -> Self {
        let sends = pieces.into_iter().map(|it| it.as_ref().to_vec());
        Self::new(sends.filter(|it| !it.is_empty()).map(Act::Send))
    }

    /// The same with a pause before each act.
    pub fn pausing(mut self, pause: Duration) -> Self {
        let acts = self.acts.into_iter();
        self.acts = acts.flat_map(|act| [Act::Wait(pause), act]).collect();
        self
    }

    /// The same with at most `piece` bytes for a receive.
    pub fn in_pieces(mut self, piece: usize) -> Self {
        self.piece = piece;
        self
    }

    /// The same, taking at most `window` bytes of each send, after `pace`.
    pub fn slow(mut self, window: usize, pace: Duration) -> Self {
        (self.window, self.pace) = (window, pace);
        self
    }

    /// Time on the client's clock.
    pub fn elapsed(&self) -> Duration {
        self.now
    }
}

impl Transport for &mut Script {
    fn receive(
        &mut self,
        into: &mut [u8],
        within: Option<Duration>,
    ) -> Result<usize, TransportError> {
        self.unbounded |= within.is_none();
        let mut left = within.unwrap_or(Duration::MAX);
        loop {
            match self.acts.pop_front() {
                None => {
                    self.ended = true;
                    return Ok(0);
                }
                Some(Act::Break) => return Err(TransportError::Broken),
                Some(Act::Wait(time)) if time < left => {
                    self.now += time;
                    left -= time;
                }
                Some(Act::Wait(time)) => {
                    self.now += left;
                    self.acts.push_front(Act::Wait(time - left));
                    return Err(TransportError::TimedOut);
                }
                Some(Act::Send(mut bytes)) => {
                    let n = bytes.len().min(into.len()).min(self.piece);
                    into[..n].copy_from_slice(&bytes[..n]);
                    let rest = bytes.split_off(n);
                    if !rest.is_empty() {
                        self.acts.push_front(Act::Send(rest));
                    }
                    return Ok(n);
                }
            }
        }
    }

    fn send<const N: usize>(
        &mut self,
        parts: &[&[u8]; N],
        within: Duration,
    ) -> Result<usize, TransportError> {
        if self.pace > within {
            self.now += within;
            return Err(TransportError::TimedOut);
        }
        self.now += self.pace;
        let all = parts.concat();
        let n = all.len().min(self.window);
        self.sent.extend_from_slice(&all[..n]);
        self.sends += 1;
        Ok(n)
    }

    fn finish(&mut self) {
        self.finished = true;
    }

    fn now(&self) -> Duration {
        self.now
    }
}
