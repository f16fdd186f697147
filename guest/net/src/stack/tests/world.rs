//! Two stacks, `server` 10.0.0.1 and `client` 10.0.0.2, and their clock.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use smoltcp::time::{Duration, Instant};
use tare_io::{ErrorKind, IoSlice, Result};

use super::super::{ConnectionId, ListenerId, Progress, Seeds, Setup, Stack};
use super::cable::{End, Sleeper, cable};

pub(super) type TestStack = Stack<End, Sleeper>;

pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(super) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(super) const HTTP: SocketAddrV4 = SocketAddrV4::new(SERVER, 80);

/// Frames that a stack sends when it takes its address.
pub(super) const CLAIMS: u64 = 2;

pub(super) struct World {
    pub(super) server: TestStack,
    pub(super) client: TestStack,
    pub(super) now: Instant,
}

pub(super) fn seeds(general: u64) -> Seeds {
    Seeds {
        general,
        secret: [general as u8; 16],
    }
}

fn with_address(address: Ipv4Addr) -> Setup {
    Setup::Static {
        address: smoltcp::wire::Ipv4Cidr::new(address, 24),
        gateway: None,
    }
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let now = Instant::from_millis(1);
        let (left, right) = cable(seed);
        Self {
            server: Stack::new(left, with_address(SERVER), seeds(seed), now),
            client: Stack::new(right, with_address(CLIENT), seeds(seed ^ 0xffff), now),
            now,
        }
    }

    /// Lets everything happen that does not need time.
    pub(super) fn run_until_quiet(&mut self) {
        for _ in 0..10_000 {
            let server = self.server.poll(self.now, 16);
            let client = self.client.poll(self.now, 16);
            let quiet = |stack: &mut TestStack| stack.link().is_quiet();
            if server == Progress::Idle
                && client == Progress::Idle
                && quiet(&mut self.server)
                && quiet(&mut self.client)
            {
                return;
            }
        }
        panic!("the network does not come to rest");
    }

    /// Lets `duration` pass, stopping at every deadline on the way.
    pub(super) fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        self.run_until_quiet();
        while let Some(next) = self.next_deadline().filter(|next| *next <= end) {
            self.now = next.max(self.now + Duration::from_micros(1));
            self.run_until_quiet();
        }
        self.now = end;
        self.run_until_quiet();
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let deadlines = [self.server.deadline(), self.client.deadline()];
        deadlines.into_iter().flatten().min()
    }

    pub(super) fn listen(&mut self, backlog: usize) -> ListenerId {
        self.server
            .listen(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 80), backlog)
            .unwrap()
    }

    /// An open connection: the server's end and the client's.
    pub(super) fn connect(&mut self, listener: ListenerId) -> (ConnectionId, ConnectionId) {
        let client = self.client.connect(HTTP, self.now).unwrap();
        self.run_until_quiet();
        self.client.connected(client).unwrap();
        (self.server.accept(listener).unwrap().0, client)
    }
}

/// Writes as much of `data` as there is room for.
pub(super) fn write(
    stack: &mut TestStack,
    id: ConnectionId,
    data: &[u8],
    now: Instant,
) -> Result<usize> {
    match stack.write(id, &[IoSlice::new(data)], now) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}

/// Reads what is there; whether the end was reached.
pub(super) fn read_into(
    stack: &mut TestStack,
    id: ConnectionId,
    into: &mut Vec<u8>,
    now: Instant,
) -> Result<bool> {
    let mut buf = [0; 1000];
    loop {
        match stack.read(id, &mut buf, now) {
            Ok(0) => return Ok(true),
            Ok(n) => into.extend_from_slice(&buf[..n]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}
