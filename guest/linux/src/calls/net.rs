//! Sockets (`socket(2)` and its kin) of AF_INET, AF_INET6, AF_UNIX and AF_NETLINK.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use linux_raw_sys::general as c;
use linux_raw_sys::net as n;
use tare_libos::time::Instant;
use tare_program::offered::SocketType;

use super::arguments::Arguments;
use super::descriptors::{insert, open as opened};
use super::events::{deadline, put_pair};
use super::files::masked;
use super::io::write_parts;
use super::message::{endpoint, may_receive, named, path, receive, send_message};
use super::time::put_duration;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::endpoint::{Address, Half, Name, Received, SocketKind};
use crate::files::inotify;
use crate::files::netlink::Netlink;
use crate::files::socket::Socket;
use crate::files::tree::Last;
use crate::files::unix::Unix;
use crate::files::{Endpoint, File, Open, Way};
use crate::process::Process;
use crate::signals::Mask;

/// Longest address (`sockaddr_storage`).
const MOST_ADDRESS: u64 = 128;
const KIND: u32 = 0xf;
/// A flag of `recvmmsg`: it waits for the first message only.
const MSG_WAITFORONE: u64 = 0x1_0000;
/// Most messages of `sendmmsg` (`UIO_MAXIOV`).
const MOST_SENT: u64 = 1024;

/// The kind of a new socket, from its family, its type and flags.
fn kind(family: u32, word: u32) -> Result<SocketKind> {
    if word & !(KIND | c::O_CLOEXEC | c::O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    match SocketKind::parse(word & KIND).ok_or(Errno::EPROTONOSUPPORT)? {
        // As on Linux (`unix_create`).
        SocketKind::Raw if family == n::AF_UNIX => Ok(SocketKind::Datagram),
        kind => Ok(kind),
    }
}

/// Whether there is this protocol for a kind of socket (`inet_create` of Linux's
/// net/ipv4/af_inet.c, `unix_create` of net/unix/af_unix.c, `netlink_create` of
/// net/netlink/af_netlink.c).
fn expect_protocol(family: u32, kind: SocketKind, protocol: u32) -> Result<()> {
    const MOST: u32 = n::IPPROTO_MAX as u32;
    const TCP: u32 = n::IPPROTO_TCP as u32;
    const UDP: u32 = n::IPPROTO_UDP as u32;
    match (family, kind, protocol) {
        (n::AF_NETLINK, SocketKind::Stream | SocketKind::Packets, _) => Err(Errno::ESOCKTNOSUPPORT),
        (_, _, 0)
        | (n::AF_UNIX, _, n::AF_UNIX)
        | (n::AF_INET | n::AF_INET6, SocketKind::Stream, TCP)
        | (n::AF_INET | n::AF_INET6, SocketKind::Datagram, UDP) => Ok(()),
        (n::AF_INET | n::AF_INET6, _, MOST..) => Err(Errno::EINVAL),
        _ => Err(Errno::EPROTONOSUPPORT),
    }
}

pub(super) fn socket(context: &Context<'_>, family: u64, word: u64, protocol: u64) -> Result {
    let (family, word) = (family as u32, word as u32);
    let families = [n::AF_INET, n::AF_INET6, n::AF_UNIX, n::AF_NETLINK];
    if !families.contains(&family) {
        return Err(Errno::EAFNOSUPPORT);
    }
    let kind = kind(family, word)?;
    expect_protocol(family, kind, protocol as u32)?;
    let file: Arc<dyn File> = match SocketType::of((family, kind.word())) {
        Some(SocketType::UnixStream | SocketType::UnixDatagram | SocketType::UnixPackets) => {
            Arc::new(Unix::new(kind))
        }
        Some(SocketType::Tcp | SocketType::Udp | SocketType::Tcp6 | SocketType::Udp6) => {
            Arc::new(Socket::new(family, kind))
        }
        Some(SocketType::NetlinkRaw | SocketType::NetlinkDatagram) => Arc::new(Netlink::new(kind)),
        None => return Err(Errno::EPROTONOSUPPORT),
    };
    let flags = c::O_RDWR | word & c::O_NONBLOCK;
    insert(context, Open::new(file, flags), word)
}

pub(super) fn socketpair(context: &Context<'_>, a: Arguments) -> Result {
    let [family, word, protocol, to, ..] = a;
    let kind = kind(family as u32, word as u32)?;
    expect_protocol(family as u32, kind, protocol as u32)?;
    match family as u32 {
        n::AF_UNIX => {}
        n::AF_INET | n::AF_INET6 | n::AF_NETLINK => return Err(Errno::EOPNOTSUPP),
        _ => return Err(Errno::EAFNOSUPPORT),
    }
    let (one, two) = Unix::pair(kind);
    let kept = word as u32 & c::O_NONBLOCK | c::O_RDWR;
    let ends = [
        Open::new(Arc::new(one), kept),
        Open::new(Arc::new(two), kept),
    ];
    put_pair(context, to, ends, word as u32)
}

fn address(context: &Context<'_>, at: u64, length: u64) -> Result<Address> {
    if length > MOST_ADDRESS {
        return Err(Errno::EINVAL);
    }
    Address::parse(&context.process.bytes(at, length as usize)?)
}

/// Writes an address, and its length; nothing of none (`move_addr_to_user` in Linux's net/socket.c).
fn put_address(
    context: &Context<'_>,
    to: u64,
    length_at: u64,
    address: Option<&Address>,
) -> Result<()> {
    let room = context.process.u32(length_at)? as i32;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    let bytes = address.map(Address::to_bytes).unwrap_or_default();
    context.process.write(to, &bytes[..room.min(bytes.len())])?;
    context.process.put_u32(length_at, bytes.len() as u32)
}

pub(super) fn bind(context: &Context<'_>, number: u64, at: u64, length: u64) -> Result {
    let open = opened(context, number)?;
    endpoint(&open)?;
    let address = address(context, at, length)?;
    if let Some(socket) = open.file.as_kind::<Socket>() {
        return socket.bind(&address).map(|()| 0);
    }
    if let Some(socket) = open.file.as_kind::<Netlink>() {
        let Address::Netlink { port, groups } = address else {
            return Err(Errno::EINVAL);
        };
        return socket.bind(port, groups).map(|()| 0);
    }
    let socket = open.file.as_kind::<Unix>().ok_or(Errno::ENOTSOCK)?;
    let Address::Unix(name) = address else {
        return Err(Errno::EINVAL);
    };
    bind_unix(context, socket, &name)
}

fn bind_unix(context: &Context<'_>, socket: &Unix, name: &Name) -> Result {
    match name.first() {
        None => bind_to_any(context, socket),
        Some(0) => {
            let mut names = context.process.abstract_names.lock();
            // Names go with their sockets: here, where new ones come.
            names.retain(|_, named| named.is_open());
            if names.contains_key(name) {
                return Err(Errno::EADDRINUSE);
            }
            let named = socket.bind(name.clone())?;
            names.insert(name.clone(), named);
            Ok(0)
        }
        Some(_) => {
            let path = path(context, name)?;
            let (above, last) = context.process.tree.find_above(&path, Last::Keep)?;
            if last.is_empty() || above.child(&last)?.is_some() {
                return Err(Errno::EADDRINUSE);
            }
            let named = socket.bind(name.clone())?;
            let added = above.bind(&last, masked(context, 0o777), named);
            added.map_err(|errno| match errno {
                Errno::EEXIST => Errno::EADDRINUSE,
                other => other,
            })?;
            inotify::notify_entry(&above, &last, c::IN_CREATE);
            Ok(0)
        }
    }
}

/// Gives a socket an abstract name that is free, of five digits as Linux makes them; one that
/// has a name keeps it.
fn bind_to_any(context: &Context<'_>, socket: &Unix) -> Result {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const MOST: u32 = 0x10_0000;
    if matches!(socket.local(), Ok(Address::Unix(own)) if !own.is_empty()) {
        return Ok(0);
    }
    for _ in 0..MOST {
        let number = NEXT.fetch_add(1, Ordering::Relaxed) % MOST;
        let name = alloc::format!("\0{number:05x}");
        match bind_unix(context, socket, &name.as_bytes().into()) {
            Err(Errno::EADDRINUSE) => {}
            bound => return bound,
        }
    }
    Err(Errno::ENOSPC)
}

pub(super) fn listen(context: &Context<'_>, number: u64, backlog: u64) -> Result {
    let open = opened(context, number)?;
    // Below zero is as much as there may be.
    let backlog = (backlog as u32).min(4096) as usize;
    endpoint(&open)?.listen(backlog).map(|()| 0)
}

pub(super) fn accept(
    context: &Context<'_>,
    number: u64,
    to: u64,
    length_at: u64,
    flags: u64,
) -> Result {
    let open = opened(context, number)?;
    let listener = endpoint(&open)?;
    let flags = flags as u32;
    if flags & !(c::O_NONBLOCK | c::O_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    // First, so that no connection is taken for nothing.
    context.process.files.lock().first_free(0)?;
    open.note_read();
    let deadline = open.deadline(Way::Read);
    let accepted = context.attempt(&open, open.may_wait(), deadline, || listener.accept());
    let (socket, peer) = accepted.map_err(|errno| {
        // That it is shut down only a call that may wait finds.
        let is_shut = errno == Errno::EINVAL && listener.is_listening();
        let is_unix = listener.family() == n::AF_UNIX;
        if is_shut && is_unix && !open.may_wait() {
            Errno::EAGAIN
        } else {
            errno
        }
    })?;
    if to != 0 {
        put_address(context, to, length_at, Some(&peer))?;
    }
    let accepted = Open::new(socket, c::O_RDWR | flags & c::O_NONBLOCK);
    insert(context, accepted, flags)
}

pub(super) fn connect(context: &Context<'_>, number: u64, at: u64, length: u64) -> Result {
    let open = opened(context, number)?;
    endpoint(&open)?;
    let deadline = open.deadline(Way::Write);
    if let Some(socket) = open.file.as_kind::<Unix>() {
        let address = address(context, at, length)?;
        let peer = named(context, &address)?;
        let watched = peer.watched()?;
        let connect = || socket.connect(&peer.socket()?);
        return match connect() {
            Err(Errno::EAGAIN) if open.may_wait() => context.wait(&[&watched], deadline, connect),
            result => result,
        }
        .map(|()| 0);
    }
    let family: [u8; 2] = context.process.array(at)?;
    let ends = u32::from(u16::from_le_bytes(family)) == n::AF_UNSPEC;
    if let Some(socket) = open.file.as_kind::<Netlink>() {
        if ends {
            return Ok(0);
        }
        return socket.connect(&address(context, at, length)?).map(|()| 0);
    }
    let socket = open.file.as_kind::<Socket>().ok_or(Errno::ENOTSOCK)?;
    if ends {
        return socket.disconnect().map(|()| 0);
    }
    match socket.connect(&address(context, at, length)?) {
        // EALREADY: a signal interrupted the call, which is made again.
        Err(Errno::EINPROGRESS | Errno::EALREADY) if open.may_wait() => {
            let opened = context.attempt(&open, true, deadline, || socket.opened());
            opened.map_err(|errno| match errno {
                Errno::EAGAIN => Errno::EINPROGRESS,
                errno => errno,
            })?;
            Ok(0)
        }
        result => result.map(|()| 0),
    }
}

pub(super) fn shutdown(context: &Context<'_>, number: u64, how: u64) -> Result {
    let open = opened(context, number)?;
    let endpoint = endpoint(&open)?;
    let half = match how {
        0 => Half::Read,
        1 => Half::Write,
        2 => Half::Both,
        _ => return Err(Errno::EINVAL),
    };
    endpoint.shutdown(half).map(|()| 0)
}

pub(super) fn name(
    context: &Context<'_>,
    number: u64,
    to: u64,
    length_at: u64,
    which: Which,
) -> Result {
    let open = opened(context, number)?;
    let socket = endpoint(&open)?;
    let address = match which {
        Which::Local => socket.local(),
        Which::Peer => socket.peer(),
    }?;
    put_address(context, to, length_at, Some(&address))?;
    Ok(0)
}

/// Whose address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Local,
    Peer,
}

pub(super) fn sendto(context: &mut Context<'_>, a: Arguments) -> Result {
    let [number, from, length, flags, to, to_length] = a;
    let open = opened(context, number)?;
    let to = match to {
        0 => None,
        at => Some(address(context, at, to_length)?),
    };
    Process::is_own(from, length)?;
    let parts = [(from, length as usize)];
    send(context, &open, &parts, to.as_ref(), flags as u32)
}

fn send(
    context: &mut Context<'_>,
    open: &Open,
    parts: &[(u64, usize)],
    to: Option<&Address>,
    flags: u32,
) -> Result {
    let may_wait = open.may_wait() && flags & n::MSG_DONTWAIT == 0;
    if endpoint(open)?.kind() != SocketKind::Stream {
        return send_message(context, open, parts, to, may_wait);
    }
    if let (Some(socket), Some(_)) = (open.file.as_kind::<Unix>(), to) {
        let is_connected = socket.peer().is_ok();
        return Err(if is_connected {
            Errno::EISCONN
        } else {
            Errno::EOPNOTSUPP
        });
    }
    let before = context.thread.pending.bits();
    let has_more = flags & n::MSG_MORE != 0;
    let socket = open.file.as_kind::<Socket>().filter(|_| has_more);
    let sent = Socket::with_more(socket, || write_parts(context, open, parts, may_wait));
    if sent == Err(Errno::EPIPE) && flags & n::MSG_NOSIGNAL != 0 {
        // Only this one: another may have waited before.
        if before & Mask::of(c::SIGPIPE).0 == 0 {
            context.thread.pending.take(c::SIGPIPE);
        }
    }
    sent
}

/// The first words of a `struct msghdr`, all of which is there: a name and its length, a vector and
/// its parts.
fn header(context: &Context<'_>, message: u64) -> Result<[u64; 4]> {
    let bytes: [u8; 56] = context.process.array(message)?;
    let (words, _) = bytes.as_chunks::<8>();
    let mut header = [0; 4];
    for (to, word) in header.iter_mut().zip(words) {
        *to = u64::from_le_bytes(*word);
    }
    Ok(header)
}

pub(super) fn sendmsg(context: &mut Context<'_>, number: u64, message: u64, flags: u64) -> Result {
    let open = opened(context, number)?;
    let [to, to_length, parts, count] = header(context, message)?;
    let to = match to {
        0 => None,
        at => Some(address(context, at, u64::from(to_length as u32))?),
    };
    let parts = context.process.parts(parts, count)?;
    send(context, &open, &parts, to.as_ref(), flags as u32)
}

/// `sendmmsg(2)`: entries of 64 bytes, a `msghdr` and the bytes sent. Waits until all are sent.
pub(super) fn sendmmsg(context: &mut Context<'_>, mut a: Arguments) -> Result {
    a[2] = u64::from(a[2] as u32).min(MOST_SENT);
    a[3] &= !MSG_WAITFORONE;
    each_message(context, a, sendmsg, None)
}

/// `recvmmsg(2)`: waits until all came, with MSG_WAITFORONE for the first only. The time that it may
/// take is looked at behind each message, so that one that never comes is waited for, as on Linux
/// (`do_recvmmsg` in net/socket.c); what is left of it is written back.
pub(super) fn recvmmsg(context: &mut Context<'_>, a: Arguments) -> Result {
    let deadline = deadline(context, a[4])?;
    each_message(context, a, recvmsg, deadline)
}

/// Sends or receives by `act` until one fails: an error of the first is the call's.
fn each_message(
    context: &mut Context<'_>,
    [number, messages, count, mut flags, timeout, _]: Arguments,
    act: fn(&mut Context<'_>, u64, u64, u64) -> Result,
    deadline: Option<Instant>,
) -> Result {
    const ENTRY_BYTES: u64 = 64;
    let open = opened(context, number)?;
    endpoint(&open)?;
    let mut done = 0;
    while done < u64::from(count as u32) {
        let at = messages.wrapping_add(done * ENTRY_BYTES);
        let acted = act(context, number, at, flags & !MSG_WAITFORONE)
            .and_then(|bytes| context.process.put_u32(at.wrapping_add(56), bytes as u32));
        match acted {
            Ok(()) => done += 1,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
        if flags & MSG_WAITFORONE != 0 {
            flags |= u64::from(n::MSG_DONTWAIT);
        }
        if let Some(deadline) = deadline {
            let rest = deadline.duration_since(Instant::now());
            put_duration(context, timeout, rest)?;
            if rest.is_zero() {
                break;
            }
        }
    }
    Ok(done)
}

/// What a call gives for what was received: with MSG_TRUNC a message's whole length.
fn given(open: &Open, received: &Received, flags: u32) -> Result {
    let is_whole = flags & n::MSG_TRUNC != 0 && endpoint(open)?.kind() != SocketKind::Stream;
    Ok(if is_whole {
        received.length
    } else {
        received.count
    } as u64)
}

/// Who sent it: of a socket of AF_UNIX without a name nothing is written, as on Linux.
fn sender(received: &Received) -> Option<&Address> {
    let from = received.from.as_ref();
    from.filter(|from| !matches!(from, Address::Unix(name) if name.is_empty()))
}

pub(super) fn recvfrom(context: &mut Context<'_>, a: Arguments) -> Result {
    let [number, to, length, flags, from_at, length_at] = a;
    let open = opened(context, number)?;
    Process::is_own(to, length)?;
    let parts = [(to, length as usize)];
    may_receive(context, &open, &parts)?;
    let received = receive(context, &open, &parts, flags as u32)?;
    if from_at != 0 {
        put_address(context, from_at, length_at, sender(&received))?;
    }
    given(&open, &received, flags as u32)
}

pub(super) fn recvmsg(context: &mut Context<'_>, number: u64, message: u64, flags: u64) -> Result {
    let open = opened(context, number)?;
    let process = context.process;
    let [name, _, parts, count] = header(context, message)?;
    let parts = process.parts(parts, count)?;
    may_receive(context, &open, &parts)?;
    let received = receive(context, &open, &parts, flags as u32)?;
    if name != 0 {
        put_address(context, name, message.wrapping_add(8), sender(&received))?;
    }
    // No control data.
    process.put_u64(message.wrapping_add(40), 0)?;
    let is_cut = received.length > received.count;
    let cut = if is_cut { n::MSG_TRUNC } else { 0 };
    process.put_u32(message.wrapping_add(48), cut)?;
    given(&open, &received, flags as u32)
}
