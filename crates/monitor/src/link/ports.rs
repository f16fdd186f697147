//! [`PortSocket`]s: the host's sockets of published ports. [`DatagramPorts`]: those of UDP.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recvfrom, sendto};
use tare_forward::{Answer, DatagramClient, Stream, Table};
use tare_tcp::time::Instant;

use super::all_addresses;
use crate::poll::{Interest, Poll};

/// A socket of a published port, and the guest's port behind it.
#[derive(Debug)]
pub(crate) struct PortSocket {
    pub(crate) socket: OwnedFd,
    pub(crate) port: u16,
    /// For UDP: bound to all addresses of the host, and each datagram says which it was sent to.
    pub(crate) all_addresses: bool,
}

/// Datagrams that are received from one socket before others have their turn.
const RECEIVED_AT_ONCE: usize = 64;

/// The sockets. Each is watched once, by edges: one that has said that it is ready is read until it is not, or until
/// there is no room for more.
#[derive(Debug)]
pub(crate) struct DatagramPorts {
    ports: Vec<PortSocket>,
    /// Those that may have something, by the number of the port.
    ready: Vec<bool>,
    /// Longer than any datagram.
    buffer: Box<[u8]>,
}

impl DatagramPorts {
    pub(crate) fn new(ports: Vec<PortSocket>) -> Self {
        // Its pages are used as datagrams fill them.
        let longest = if ports.is_empty() { 0 } else { 1 << 16 };
        Self {
            ready: vec![false; ports.len()],
            ports,
            buffer: vec![0; longest].into_boxed_slice(),
        }
    }

    /// Adds them to a set, with tokens from `first` on.
    pub(crate) fn watch(&self, poll: &Poll, first: u64) -> io::Result<()> {
        for (token, port) in (first..).zip(&self.ports) {
            poll.change_edges(&port.socket, token, Interest::default(), Interest::READ)?;
        }
        Ok(())
    }

    /// A socket has become ready.
    pub(crate) fn set_ready(&mut self, number: usize) {
        if let Some(ready) = self.ready.get_mut(number) {
            *ready = true;
        }
    }

    /// Whether one may have something.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.contains(&true)
    }

    /// Receives what is there, as far as the table has room.
    pub(crate) fn receive<S: Stream>(&mut self, table: &mut Table<S>, now: Instant) {
        let numbered = (0..).zip(&self.ports).zip(&mut self.ready);
        for ((number, port), ready) in numbered.filter(|(_, ready)| **ready) {
            for _ in 0..RECEIVED_AT_ONCE {
                if !table.has_datagram_room() {
                    return;
                }
                // What is cut fills the buffer, and is too long for the table.
                match receive(port, &mut self.buffer) {
                    Ok(received) => {
                        if let Some(address) = received.client {
                            let client = DatagramClient {
                                port: number,
                                host: received.host,
                                address,
                            };
                            let bytes = &self.buffer[..received.length];
                            table.datagram(client, port.port, bytes, now);
                        }
                    }
                    Err(Errno::AGAIN) => {
                        *ready = false;
                        break;
                    }
                    // An error of an earlier datagram (udp(7)).
                    Err(_) => {}
                }
            }
        }
    }

    /// Sends an answer; whether the socket took it.
    pub(crate) fn send(&self, answer: Answer<'_>) -> bool {
        let DatagramClient {
            port,
            host,
            address,
        } = answer.client;
        let Some(port) = self.ports.get(usize::from(port)) else {
            return false;
        };
        match host {
            Some(host) => all_addresses::send(&port.socket, &answer.bytes, host, address),
            None => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                sendto(&port.socket, &answer.bytes, flags, &address).is_ok()
            }
        }
    }
}

/// A datagram in a buffer.
pub(super) struct Received {
    pub(super) length: usize,
    /// The host's address that it was sent to, where its socket says so.
    pub(super) host: Option<IpAddr>,
    pub(super) client: Option<SocketAddr>,
}

fn receive(port: &PortSocket, buffer: &mut [u8]) -> Result<Received, Errno> {
    if port.all_addresses {
        return all_addresses::receive(&port.socket, buffer);
    }
    let (length, _, client) = recvfrom(&port.socket, buffer, RecvFlags::DONTWAIT)?;
    Ok(Received {
        length,
        host: None,
        client: client.and_then(|client| SocketAddr::try_from(client).ok()),
    })
}
