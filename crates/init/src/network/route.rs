//! The kernel's routing socket.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, sendto, socket};

use super::message;

/// An open routing socket.
pub(super) struct Route(OwnedFd);

impl Route {
    pub(super) fn open() -> Result<Self, Errno> {
        // Protocol 0 is NETLINK_ROUTE.
        socket(AddressFamily::NETLINK, SocketType::RAW, None).map(Self)
    }

    pub(super) fn up(&self, index: u32) -> Result<(), Errno> {
        self.ask(&message::up(index))
    }

    pub(super) fn add_address(
        &self,
        index: u32,
        address: Ipv4Addr,
        prefix: u8,
    ) -> Result<(), Errno> {
        self.ask(&message::add_address(index, address, prefix))
    }

    pub(super) fn add_default(&self, gateway: Ipv4Addr) -> Result<(), Errno> {
        self.ask(&message::add_default(gateway))
    }

    fn ask(&self, request: &[u8]) -> Result<(), Errno> {
        sendto(
            &self.0,
            request,
            SendFlags::empty(),
            &SocketAddrNetlink::new(0, 0),
        )?;
        let mut answer = [0; 1024];
        let (bytes, _) = recv(&self.0, &mut answer, RecvFlags::empty())?;
        match message::acknowledged(&answer[..bytes.min(answer.len())]) {
            Some(0) => Ok(()),
            Some(errno) => Err(Errno::from_raw_os_error(errno)),
            None => Err(Errno::BADMSG),
        }
    }
}
