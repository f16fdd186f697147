//! Sockets of AF_NETLINK (`netlink(7)`), of NETLINK_ROUTE alone: a program asks what its network is, and
//! reads the answers. Groups may be joined; nothing is ever sent to them.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use linux_raw_sys::general::{POLLERR, POLLIN, POLLOUT, S_IFSOCK};
use linux_raw_sys::net::AF_NETLINK;
use tare_libos::sync::SpinLock;

use super::endpoint::{Address, Half, Received, SocketKind};
use super::{Endpoint, File, Status, Watchers};
use crate::errno::{Errno, Result};
use crate::interfaces::{self, route};
use crate::process::PID;

/// Bytes of answers that wait for being read; what is beyond is lost, and the next read says so.
const MOST_WAITING: usize = 64 * 1024;

/// Port numbers in use: the first socket has the process's, as on Linux.
static PORTS: SpinLock<BTreeSet<u32>> = SpinLock::new(BTreeSet::new());

/// A socket.
pub(crate) struct Netlink {
    kind: SocketKind,
    /// 0 before it has one.
    port: AtomicU32,
    groups: AtomicU32,
    answers: SpinLock<Answers>,
    watchers: Watchers,
}

#[derive(Default)]
struct Answers {
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
    is_lost: bool,
}

impl Drop for Netlink {
    fn drop(&mut self) {
        PORTS.lock().remove(self.port.get_mut());
    }
}

impl Netlink {
    pub(crate) fn new(kind: SocketKind) -> Self {
        Self {
            kind,
            port: AtomicU32::new(0),
            groups: AtomicU32::new(0),
            answers: SpinLock::default(),
            watchers: Watchers::new(),
        }
    }

    /// Gives it a port, of 0 any that is free, and the groups of a name.
    pub(crate) fn bind(&self, wanted: u32, groups: u32) -> Result<()> {
        let mut ports = PORTS.lock();
        let port = self.port.load(Ordering::Relaxed);
        match (port, wanted) {
            (0, 0) => {
                // Behind the process's number those that no process has, from above.
                let mut free = core::iter::once(PID).chain((1..).map(|it: u32| it.wrapping_neg()));
                let free = free.find(|port| !ports.contains(port));
                let free = free.ok_or(Errno::EADDRINUSE)?;
                ports.insert(free);
                self.port.store(free, Ordering::Relaxed);
            }
            (0, wanted) => {
                if !ports.insert(wanted) {
                    return Err(Errno::EADDRINUSE);
                }
                self.port.store(wanted, Ordering::Relaxed);
            }
            (port, wanted) if wanted != 0 && wanted != port => return Err(Errno::EINVAL),
            _ => {}
        }
        self.groups.store(groups, Ordering::Relaxed);
        Ok(())
    }

    /// Its port, one that is free if it had none.
    fn port(&self) -> Result<u32> {
        if self.port.load(Ordering::Relaxed) == 0 {
            self.bind(0, self.groups.load(Ordering::Relaxed))?;
        }
        Ok(self.port.load(Ordering::Relaxed))
    }

    /// Only the kernel answers.
    pub(crate) fn connect(&self, to: &Address) -> Result<()> {
        match to {
            Address::Netlink { port: 0, .. } => self.port().map(|_| ()),
            Address::Netlink { .. } => Err(Errno::ECONNREFUSED),
            _ => Err(Errno::EINVAL),
        }
    }
}

impl File for Netlink {
    fn read(&self, to: &mut [u8]) -> Result<usize> {
        Ok(self.receive(to, false)?.count)
    }

    fn write(&self, from: &[u8]) -> Result<usize> {
        self.send(from, None)
    }

    fn readable_bytes(&self) -> Result {
        let answers = self.answers.lock();
        Ok(answers.waiting.front().map_or(0, Vec::len) as u64)
    }

    fn endpoint(&self) -> Option<&dyn Endpoint> {
        Some(self)
    }

    fn status(&self) -> Result<Status> {
        Ok(Status {
            mode: S_IFSOCK | 0o777,
            ..Status::anonymous()
        })
    }

    fn ready(&self) -> u32 {
        let answers = self.answers.lock();
        let readable = if answers.waiting.is_empty() {
            0
        } else {
            POLLIN
        };
        let lost = if answers.is_lost { POLLERR } else { 0 };
        POLLOUT | readable | lost
    }

    fn watchers(&self) -> Option<&Watchers> {
        Some(&self.watchers)
    }

    fn name(&self) -> String {
        String::from("socket:[netlink]")
    }
}

impl Endpoint for Netlink {
    fn family(&self) -> u32 {
        AF_NETLINK
    }

    fn kind(&self) -> SocketKind {
        self.kind
    }

    fn listen(&self, _backlog: usize) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    fn is_listening(&self) -> bool {
        false
    }

    fn accept(&self) -> Result<(Arc<dyn File>, Address)> {
        Err(Errno::EOPNOTSUPP)
    }

    fn shutdown(&self, _half: Half) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    fn local(&self) -> Result<Address> {
        Ok(Address::Netlink {
            port: self.port.load(Ordering::Relaxed),
            groups: self.groups.load(Ordering::Relaxed),
        })
    }

    fn peer(&self) -> Result<Address> {
        Ok(Address::KERNEL)
    }

    fn receive(&self, to: &mut [u8], peeks: bool) -> Result<Received> {
        let mut answers = self.answers.lock();
        if core::mem::take(&mut answers.is_lost) {
            return Err(Errno::ENOBUFS);
        }
        let front = answers.waiting.front().ok_or(Errno::EAGAIN)?;
        let length = front.len();
        let count = length.min(to.len());
        to[..count].copy_from_slice(&front[..count]);
        if !peeks {
            answers.waiting.pop_front();
            answers.bytes -= length;
        }
        Ok(Received {
            count,
            length,
            from: Some(Address::KERNEL),
        })
    }

    fn send(&self, from: &[u8], to: Option<&Address>) -> Result<usize> {
        match to {
            None => {}
            Some(to) => self.connect(to)?,
        }
        let port = self.port()?;
        let interfaces = interfaces::all();
        let mut answers = self.answers.lock();
        let room = MOST_WAITING.saturating_sub(answers.bytes);
        for datagram in route::answers(from, port, &interfaces, room) {
            if answers.bytes + datagram.len() > MOST_WAITING {
                answers.is_lost = true;
                break;
            }
            answers.bytes += datagram.len();
            answers.waiting.push_back(datagram);
        }
        drop(answers);
        self.watchers.wake();
        Ok(from.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RTM_GETLINK of all, as rtnetlink(7) has it.
    const LINKS: [u8; 20] = [20, 0, 0, 0, 18, 0, 1, 3, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    #[test]
    fn answers_wait_until_they_are_read() {
        let socket = Netlink::new(SocketKind::Raw);
        let mut bytes = [0; 4096];
        assert_eq!(socket.receive(&mut bytes, false), Err(Errno::EAGAIN));
        assert_eq!(socket.send(&LINKS, Some(&Address::KERNEL)), Ok(20));
        assert_eq!(socket.ready(), POLLIN | POLLOUT);
        let peeked = socket.receive(&mut bytes[..5], true).unwrap();
        assert_eq!(peeked.count, 5);
        let read = socket.receive(&mut bytes, false).unwrap();
        assert_eq!((read.length, read.count), (peeked.length, peeked.length));
        assert_eq!(read.from, Some(Address::KERNEL));
        assert_eq!(socket.ready(), POLLOUT);
        let Ok(Address::Netlink { port, .. }) = socket.local() else {
            panic!("no port");
        };
        assert_eq!(bytes[12..16], port.to_le_bytes());
    }

    #[test]
    fn a_port_is_one_sockets_and_free_when_that_is_closed() {
        let [one, two] = [(); 2].map(|()| Netlink::new(SocketKind::Datagram));
        assert_eq!(one.bind(77_001, 1), Ok(()));
        assert_eq!(two.bind(77_001, 0), Err(Errno::EADDRINUSE));
        assert_eq!(one.bind(77_002, 0), Err(Errno::EINVAL));
        drop(one);
        assert_eq!(two.bind(77_001, 0), Ok(()));
        let to = Address::Netlink { port: 5, groups: 0 };
        assert_eq!(two.send(&LINKS, Some(&to)), Err(Errno::ECONNREFUSED));
    }

    #[test]
    fn unread_answers_are_lost_and_the_next_read_says_so() {
        let socket = Netlink::new(SocketKind::Raw);
        for _ in 0..5000 {
            socket.send(&LINKS, None).unwrap();
        }
        assert_eq!(socket.ready() & POLLERR, POLLERR);
        assert!(socket.answers.lock().bytes <= MOST_WAITING);
        let mut bytes = [0; 4096];
        assert_eq!(socket.receive(&mut bytes, false), Err(Errno::ENOBUFS));
        assert!(socket.receive(&mut bytes, false).is_ok());
    }
}
