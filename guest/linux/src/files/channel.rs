//! One direction of a connection of AF_UNIX, or what a datagram socket receives.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tare_libos::sync::SpinLock;

use super::Watchers;
use super::endpoint::{Address, Name, Received, SocketKind};
use crate::errno::{Errno, Result};

/// Bytes that wait in one direction, as Linux's `wmem_default`.
pub(super) const CAPACITY: usize = 212_992;
/// Most bytes of a message: Linux takes 32 for itself.
pub(crate) const MOST_MESSAGE: usize = CAPACITY - 32;
/// Messages that wait in one direction.
pub(super) const MOST_MESSAGES: usize = 1024;

/// One direction of a connection, or what a datagram socket receives.
pub(super) struct Channel {
    pub(super) content: SpinLock<Content>,
    pub(super) is_open: AtomicBool,
    /// The sender went with unread bytes: the reader finds ECONNRESET once, of a stream behind what
    /// came, of messages before it.
    pub(super) is_reset: AtomicBool,
    pub(super) sends: AtomicU64,
    pub(super) watchers: Watchers,
}

/// Bytes of a stream, or messages with their senders.
pub(super) enum Content {
    Bytes(VecDeque<u8>),
    Messages(VecDeque<(Vec<u8>, Name)>),
}

impl Content {
    pub(super) fn length(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Messages(all) => all.iter().map(|(bytes, _)| bytes.len()).sum(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::Messages(all) => all.is_empty(),
        }
    }

    /// Whether something can be added.
    pub(super) fn has_room(&self) -> bool {
        match self {
            Self::Bytes(bytes) => bytes.len() < CAPACITY,
            Self::Messages(all) => all.len() < MOST_MESSAGES && self.length() < CAPACITY,
        }
    }
}

impl Channel {
    pub(super) fn new(kind: SocketKind) -> Arc<Self> {
        let content = match kind {
            SocketKind::Stream => Content::Bytes(VecDeque::new()),
            SocketKind::Datagram | SocketKind::Packets | SocketKind::Raw => {
                Content::Messages(VecDeque::new())
            }
        };
        Arc::new(Self {
            content: SpinLock::new(content),
            is_open: AtomicBool::new(true),
            is_reset: AtomicBool::new(false),
            sends: AtomicU64::new(0),
            watchers: Watchers::new(),
        })
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::SeqCst)
    }

    /// ECONNRESET, once.
    pub(super) fn check_reset(&self) -> Result<()> {
        if self.is_reset.swap(false, Ordering::SeqCst) {
            return Err(Errno::ECONNRESET);
        }
        Ok(())
    }

    /// Forgets what waits.
    pub(super) fn purge(&self) {
        match &mut *self.content.lock() {
            Content::Bytes(bytes) => bytes.clear(),
            Content::Messages(all) => all.clear(),
        }
    }

    pub(super) fn close(&self) {
        self.is_open.store(false, Ordering::SeqCst);
        self.watchers.wake();
    }

    pub(super) fn send(&self, from: &[u8], sender: &Name) -> Result<usize> {
        let mut content = self.content.lock();
        let has_room = content.has_room();
        let length = content.length();
        let sent = match &mut *content {
            _ if !has_room => return Err(Errno::EAGAIN),
            Content::Bytes(bytes) => {
                let count = from.len().min(CAPACITY - bytes.len());
                bytes.extend(&from[..count]);
                count
            }
            Content::Messages(_) if from.len() > MOST_MESSAGE => return Err(Errno::EMSGSIZE),
            Content::Messages(_) if length + from.len() > CAPACITY => return Err(Errno::EAGAIN),
            Content::Messages(all) => {
                all.push_back((from.into(), sender.clone()));
                from.len()
            }
        };
        self.sends.fetch_add(1, Ordering::Relaxed);
        drop(content);
        self.watchers.wake();
        Ok(sent)
    }

    /// Takes, or with `peeks` copies, what there is; EAGAIN for nothing.
    pub(super) fn receive(&self, to: &mut [u8], peeks: bool) -> Result<Received> {
        let mut content = self.content.lock();
        let is_stream = matches!(*content, Content::Bytes(_));
        if content.is_empty() || !is_stream {
            self.check_reset()?;
        }
        if content.is_empty() {
            return if self.is_open() {
                Err(Errno::EAGAIN)
            } else {
                Ok(Received::default())
            };
        }
        let received = match &mut *content {
            Content::Bytes(bytes) => {
                let count = to.len().min(bytes.len());
                for (slot, byte) in to.iter_mut().zip(bytes.iter()) {
                    *slot = *byte;
                }
                if !peeks {
                    bytes.drain(..count);
                }
                Received {
                    count,
                    length: count,
                    from: None,
                }
            }
            Content::Messages(all) => {
                let Some((bytes, sender)) = all.front() else {
                    return Err(Errno::EAGAIN);
                };
                let count = to.len().min(bytes.len());
                to[..count].copy_from_slice(&bytes[..count]);
                let received = Received {
                    count,
                    length: bytes.len(),
                    from: Some(Address::Unix(sender.clone())),
                };
                if !peeks {
                    all.pop_front();
                }
                received
            }
        };
        drop(content);
        self.watchers.wake();
        Ok(received)
    }
}
