//! Which Unix sockets are connected: `unix_diag` (`linux/unix_diag.h`,
//! `linux/sock_diag.h`).

use std::collections::HashMap;
use std::io;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, netlink, recv, send, socket};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const AF_UNIX: u8 = 1;
const SHOW_PEER: u32 = 4;
const PEER: u16 = 2;
/// Bytes of `struct nlmsghdr`, `struct unix_diag_msg` and `struct nlattr`.
const HEADER: usize = 16;
const MESSAGE: usize = 16;
const ATTRIBUTE: usize = 4;
/// More replies than any host has sockets for.
const MOST_REPLIES: usize = 100_000;

/// Inodes of all connected Unix sockets of this network namespace, each with its peer's.
pub(super) fn peers() -> io::Result<HashMap<u32, u32>> {
    let protocol = Some(netlink::SOCK_DIAG);
    let socket = socket(AddressFamily::NETLINK, SocketType::RAW, protocol)?;
    send(&socket, &request(), SendFlags::empty())?;
    let mut found = HashMap::new();
    let mut buffer = vec![0; 1 << 16];
    for _ in 0..MOST_REPLIES {
        let (length, _) = recv(&socket, buffer.as_mut_slice(), RecvFlags::empty())?;
        match read(&buffer[..length], &mut found) {
            Dump::GoesOn => {}
            Dump::Ended => break,
            // A kernel without unix_diag.
            Dump::Refused => return Err(io::ErrorKind::Unsupported.into()),
        }
    }
    Ok(found)
}

/// A dump of all sockets with their peers.
fn request() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(40_u32.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([AF_UNIX, 0, 0, 0]);
    // All states, any inode, any cookie.
    for word in [u32::MAX, 0, SHOW_PEER, u32::MAX, u32::MAX] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

#[derive(Debug, PartialEq, Eq)]
enum Dump {
    GoesOn,
    Ended,
    Refused,
}

/// Reads the messages of one reply.
fn read(mut bytes: &[u8], found: &mut HashMap<u32, u32>) -> Dump {
    while let (Some(length), Some(kind)) = (word(bytes, 0), half(bytes, 4)) {
        let length = length as usize;
        if kind == NLMSG_ERROR {
            return Dump::Refused;
        }
        if kind == NLMSG_DONE || length < HEADER {
            return Dump::Ended;
        }
        let message = bytes.get(HEADER..length.min(bytes.len()));
        if let Some((inode, peer)) = message.and_then(pair) {
            found.insert(inode, peer);
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Dump::GoesOn
}

/// The inode of a `unix_diag_msg` and that of its peer.
fn pair(message: &[u8]) -> Option<(u32, u32)> {
    let inode = word(message, 4)?;
    let mut attributes = message.get(MESSAGE..)?;
    loop {
        let (length, kind) = (half(attributes, 0)?, half(attributes, 2)?);
        if kind == PEER {
            return Some((inode, word(attributes, ATTRIBUTE)?));
        }
        let length = usize::from(length).max(ATTRIBUTE);
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn inode(socket: &UnixStream) -> u32 {
        let stat = rustix::fs::fstat(socket.as_fd()).unwrap();
        u32::try_from(stat.st_ino).unwrap()
    }

    #[test]
    fn two_ends_of_a_socket_are_each_other_s_peers() {
        let (one, other) = UnixStream::pair().unwrap();
        let Ok(peers) = peers() else {
            tare_vmtest::lacks("this kernel has no unix_diag");
            return;
        };
        if peers.is_empty() {
            tare_vmtest::lacks("this kernel has no unix_diag");
            return;
        }
        assert_eq!(peers.get(&inode(&one)), Some(&inode(&other)));
        assert_eq!(peers.get(&inode(&other)), Some(&inode(&one)));
    }

    #[test]
    fn replies_that_are_cut_give_nothing() {
        let mut reply = Vec::new();
        reply.extend(40_u32.to_ne_bytes());
        reply.extend([20, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        reply.extend([1, 1, 1, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        reply.extend([8, 0, 2, 0, 9, 0, 0, 0]);
        let parse = |bytes: &[u8]| {
            let mut found = HashMap::new();
            (read(bytes, &mut found), found)
        };
        assert_eq!(parse(&reply).1, HashMap::from([(7, 9)]));
        for end in 0..reply.len() {
            assert_eq!(parse(&reply[..end]).1, HashMap::new(), "{end}");
        }
        reply[0] = 3;
        assert_eq!(parse(&reply).0, Dump::Ended);
        reply[4] = 2;
        assert_eq!(parse(&reply).0, Dump::Refused);
    }
}
