//! Channels with many senders and one receiver, within a core or across cores.
//!
//! ```
//! use tare_libos::{sync::mpsc, thread};
//! let (sender, receiver) = mpsc::sync_channel(2);
//! thread::spawn(move || (1..=3).for_each(|n| sender.send(n).unwrap()));
//! assert_eq!(receiver.iter().sum::<i32>(), 6);
//! ```

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::time::Duration;

use tare_hal::lock::IrqLock;

use super::turns::Turns;
use crate::thread::{self, Thread};
use crate::time::Instant;

/// The receiver is gone; the message comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the channel's receiver is gone")]
pub struct SendError<T>(pub T);

/// A message was not sent; it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrySendError<T> {
    /// The channel is full.
    #[error("the channel is full")]
    Full(T),
    /// The receiver is gone.
    #[error("the channel's receiver is gone")]
    Disconnected(T),
}

/// The channel is empty and all senders are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all senders of the channel are gone")]
pub struct RecvError;

/// There is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TryRecvError {
    /// None yet.
    #[error("the channel is empty")]
    Empty,
    /// None forever.
    #[error("all senders of the channel are gone")]
    Disconnected,
}

/// No message came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecvTimeoutError {
    /// None in time.
    #[error("no message arrived in time")]
    Timeout,
    /// None forever.
    #[error("all senders of the channel are gone")]
    Disconnected,
}

/// An unbounded channel.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Shared::new(usize::MAX);
    (
        Sender {
            shared: Arc::clone(&shared),
        },
        Receiver { shared },
    )
}

/// A channel that holds up to `bound` messages (at least one); senders wait
/// while it is full.
pub fn sync_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
    let shared = Shared::new(bound.max(1));
    (
        SyncSender {
            shared: Arc::clone(&shared),
        },
        Receiver { shared },
    )
}

/// Sends into an unbounded channel.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Sender<T> {
    /// Sends `message`; never waits, and may be called by interrupt handlers.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        self.shared.try_send(message).map_err(|error| match error {
            TrySendError::Full(message) | TrySendError::Disconnected(message) => SendError(message),
        })
    }
}

/// Sends into a bounded channel.
pub struct SyncSender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> SyncSender<T> {
    /// Sends `message`, waiting while the channel is full.
    pub fn send(&self, mut message: T) -> Result<(), SendError<T>> {
        loop {
            match self.shared.send_or_queue(message) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(message)) => return Err(SendError(message)),
                Err(TrySendError::Full(back)) => message = back,
            }
            thread::park();
        }
    }

    /// Sends `message` if there is room; may be called by interrupt handlers.
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        self.shared.try_send(message)
    }
}

/// Receives what the senders send.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Receiver<T> {
    /// Waits for a message.
    pub fn recv(&self) -> Result<T, RecvError> {
        loop {
            match self.shared.receive_or_wait() {
                Ok(message) => return Ok(message),
                Err(TryRecvError::Disconnected) => return Err(RecvError),
                Err(TryRecvError::Empty) => thread::park(),
            }
        }
    }

    /// A message, if there is one.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.shared.try_receive()
    }

    /// Waits for a message, at most for `timeout`.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.recv_deadline(Instant::now() + timeout)
    }

    /// Waits for a message, at most until `deadline`.
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        loop {
            match self.shared.receive_or_wait() {
                Ok(message) => return Ok(message),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
                Err(TryRecvError::Empty) if Instant::now() >= deadline => {
                    self.shared.state.lock().receiver = None;
                    return Err(RecvTimeoutError::Timeout);
                }
                Err(TryRecvError::Empty) => thread::park_until(deadline),
            }
        }
    }

    /// The messages until all senders are gone.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        core::iter::from_fn(|| self.recv().ok())
    }
}

struct Shared<T> {
    bound: usize,
    state: IrqLock<State<T>>,
}

struct State<T> {
    messages: VecDeque<T>,
    /// The receiver's thread while it waits.
    receiver: Option<Thread>,
    /// Threads waiting for room.
    full: Turns,
    senders: usize,
    receiving: bool,
}

impl<T> Shared<T> {
    fn new(bound: usize) -> Arc<Self> {
        Arc::new(Self {
            bound,
            state: IrqLock::new(State {
                messages: VecDeque::new(),
                receiver: None,
                full: Turns::new(),
                senders: 1,
                receiving: true,
            }),
        })
    }

    fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let receiver = self.state.lock().push(message, self.bound)?;
        wake(receiver);
        Ok(())
    }

    fn send_or_queue(&self, message: T) -> Result<(), TrySendError<T>> {
        let receiver = {
            let mut state = self.state.lock();
            match state.push(message, self.bound) {
                Err(TrySendError::Full(message)) => {
                    state.full.add(&thread::current());
                    return Err(TrySendError::Full(message));
                }
                other => {
                    let receiver = other?;
                    if !state.full.is_empty() {
                        state.full.remove(&thread::current());
                    }
                    receiver
                }
            }
        };
        wake(receiver);
        Ok(())
    }

    fn try_receive(&self) -> Result<T, TryRecvError> {
        let (message, sender) = self.state.lock().pop()?;
        wake(sender);
        Ok(message)
    }

    fn receive_or_wait(&self) -> Result<T, TryRecvError> {
        let (message, sender) = {
            let mut state = self.state.lock();
            match state.pop() {
                Err(TryRecvError::Empty) => {
                    state.receiver = Some(thread::current());
                    return Err(TryRecvError::Empty);
                }
                other => other?,
            }
        };
        wake(sender);
        Ok(message)
    }

    fn add_sender(self: &Arc<Self>) -> Arc<Self> {
        self.state.lock().senders += 1;
        Arc::clone(self)
    }

    fn drop_sender(&self) {
        let receiver = {
            let mut state = self.state.lock();
            state.senders -= 1;
            match state.senders {
                0 => state.receiver.take(),
                _ => None,
            }
        };
        wake(receiver);
    }

    fn drop_receiver(&self) {
        let (messages, mut waiting) = {
            let mut state = self.state.lock();
            state.receiving = false;
            (
                core::mem::take(&mut state.messages),
                core::mem::take(&mut state.full),
            )
        };
        drop(messages);
        while let Some(sender) = waiting.take() {
            sender.unpark();
        }
    }
}

impl<T> State<T> {
    /// Adds a message; gives the thread to wake.
    fn push(&mut self, message: T, bound: usize) -> Result<Option<Thread>, TrySendError<T>> {
        if !self.receiving {
            return Err(TrySendError::Disconnected(message));
        }
        if self.messages.len() >= bound {
            return Err(TrySendError::Full(message));
        }
        self.messages.push_back(message);
        Ok(self.receiver.take())
    }

    /// Takes a message; gives the thread to wake.
    fn pop(&mut self) -> Result<(T, Option<Thread>), TryRecvError> {
        match self.messages.pop_front() {
            Some(message) => {
                self.receiver = None;
                Ok((message, self.full.take()))
            }
            None if self.senders == 0 => Err(TryRecvError::Disconnected),
            None => Err(TryRecvError::Empty),
        }
    }
}

fn wake(thread: Option<Thread>) {
    if let Some(thread) = thread {
        thread.unpark();
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.add_sender(),
        }
    }
}

impl<T> Clone for SyncSender<T> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.add_sender(),
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.shared.drop_sender();
    }
}

impl<T> Drop for SyncSender<T> {
    fn drop(&mut self) {
        self.shared.drop_sender();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.drop_receiver();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_one_sender_keep_their_order() {
        let (sender, receiver) = channel();
        let thread = thread::spawn(move || (0..5_000).for_each(|n| sender.send(n).expect("send")));
        assert!(receiver.iter().eq(0..5_000));
        thread.join();
    }

    #[test]
    fn a_bounded_channel_holds_its_senders() {
        let (sender, receiver) = sync_channel(2);
        let senders: alloc::vec::Vec<_> = (0..3)
            .map(|_| {
                let sender = sender.clone();
                thread::spawn(move || (0..500).for_each(|_| sender.send(1_u32).expect("send")))
            })
            .collect();
        drop(sender);
        let mut sum = 0;
        while let Ok(one) = receiver.recv() {
            assert!(receiver.shared.state.lock().messages.len() <= 2);
            sum += one;
        }
        assert_eq!(sum, 1_500);
        senders.into_iter().for_each(|thread| thread.join());
    }

    #[test]
    fn full_and_empty_differ_from_disconnected() {
        let (sender, receiver) = sync_channel(1);
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(sender.try_send(1), Ok(()));
        assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
        drop(sender);
        assert_eq!(receiver.recv(), Ok(1));
        assert_eq!(receiver.recv(), Err(RecvError));

        let (sender, receiver) = channel();
        drop(receiver);
        assert_eq!(sender.send(3), Err(SendError(3)));
    }

    #[test]
    fn a_full_sender_learns_that_the_receiver_is_gone() {
        let (sender, receiver) = sync_channel(1);
        sender.send(1).expect("room");
        let thread = thread::spawn(move || sender.send(2));
        thread::sleep(Duration::from_millis(5));
        drop(receiver);
        assert_eq!(thread.join(), Err(SendError(2)));
    }

    #[test]
    fn a_timeout_ends_the_wait() {
        let (sender, receiver) = channel::<()>();
        let start = Instant::now();
        let outcome = receiver.recv_timeout(Duration::from_millis(5));
        assert_eq!(outcome, Err(RecvTimeoutError::Timeout));
        assert!(start.elapsed() >= Duration::from_millis(5));
        drop(sender);
    }
}
