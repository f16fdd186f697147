//! Sockets (`socket(2)` and its kin), for IPv4.

use alloc::sync::Arc;
use core::net::{Ipv4Addr, SocketAddrV4};

use linux_raw_sys::general as c;
use linux_raw_sys::net as n;
use tare_libos::net::Shutdown;

use super::files::insert;
use super::io::{gather, open as opened, with_buffer, write_all};
use crate::errno::{Errno, Result};
use crate::files::Open;
use crate::files::socket::Socket;
use crate::signals::Mask;
use crate::thread::Context;

/// Most bytes that one call receives.
const STEP: usize = 128 * 1024;
const KIND: u32 = 0xf;
const SOL_TCP: u32 = 6;

fn with_socket<R>(open: &Open, act: impl FnOnce(&Socket) -> Result<R>) -> Result<R> {
    act(open.file.as_kind::<Socket>().ok_or(Errno::ENOTSOCK)?)
}

pub(super) fn socket(context: &Context<'_>, family: u64, kind: u64) -> Result {
    let kind = kind as u32;
    if family as u32 != n::AF_INET {
        return Err(Errno::EAFNOSUPPORT);
    }
    let socket = match kind & KIND {
        n::SOCK_STREAM => Socket::stream(),
        n::SOCK_DGRAM => Socket::datagram(),
        _ => return Err(Errno::EPROTONOSUPPORT),
    };
    let flags = c::O_RDWR | kind & c::O_NONBLOCK;
    insert(context, Open::new(Arc::new(socket), flags), kind)
}

fn address(context: &Context<'_>, at: u64, length: u64) -> Result<SocketAddrV4> {
    if length < 16 {
        return Err(Errno::EINVAL);
    }
    let bytes: [u8; 16] = context.process.array(at)?;
    if u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) != n::AF_INET {
        return Err(Errno::EAFNOSUPPORT);
    }
    let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
    Ok(SocketAddrV4::new(
        ip,
        u16::from_be_bytes([bytes[2], bytes[3]]),
    ))
}

/// Writes an address where the program wants one.
fn put_address(
    context: &Context<'_>,
    to: u64,
    length_at: u64,
    address: SocketAddrV4,
) -> Result<()> {
    if to == 0 || length_at == 0 {
        return Ok(());
    }
    let room = context.process.u32(length_at)? as usize;
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&(n::AF_INET as u16).to_le_bytes());
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    bytes[4..8].copy_from_slice(&address.ip().octets());
    context.process.write(to, &bytes[..room.min(16)])?;
    context.process.put_u32(length_at, 16)
}

pub(super) fn bind(context: &Context<'_>, number: u64, at: u64, length: u64) -> Result {
    let open = opened(context, number)?;
    let address = address(context, at, length)?;
    with_socket(&open, |socket| socket.bind(address)).map(|()| 0)
}

pub(super) fn listen(context: &Context<'_>, number: u64, backlog: u64) -> Result {
    let open = opened(context, number)?;
    let backlog = (backlog as u32 as i32).clamp(1, 4096) as usize;
    with_socket(&open, |socket| socket.listen(backlog)).map(|()| 0)
}

pub(super) fn accept(
    context: &Context<'_>,
    number: u64,
    to: u64,
    length_at: u64,
    flags: u64,
) -> Result {
    let open = opened(context, number)?;
    open.note_read();
    let flags = flags as u32;
    let (socket, peer) = context.attempt(&open, open.may_wait(), || {
        with_socket(&open, Socket::accept)
    })?;
    put_address(context, to, length_at, peer)?;
    let accepted = Open::new(Arc::new(socket), c::O_RDWR | flags & c::O_NONBLOCK);
    insert(context, accepted, flags)
}

pub(super) fn connect(context: &Context<'_>, number: u64, at: u64, length: u64) -> Result {
    let open = opened(context, number)?;
    let address = address(context, at, length)?;
    match with_socket(&open, |socket| socket.connect(address)) {
        // EALREADY: a signal interrupted the call, which is made again.
        Err(Errno::EINPROGRESS | Errno::EALREADY) if open.may_wait() => {
            context.attempt(&open, true, || with_socket(&open, Socket::opened))?;
            Ok(0)
        }
        result => result.map(|()| 0),
    }
}

pub(super) fn shutdown(context: &Context<'_>, number: u64, how: u64) -> Result {
    let open = opened(context, number)?;
    let how = match how {
        0 => Shutdown::Read,
        1 => Shutdown::Write,
        2 => Shutdown::Both,
        _ => return Err(Errno::EINVAL),
    };
    with_socket(&open, |socket| socket.shutdown(how)).map(|()| 0)
}

pub(super) fn name(
    context: &Context<'_>,
    number: u64,
    to: u64,
    length_at: u64,
    which: Which,
) -> Result {
    let open = opened(context, number)?;
    let address = with_socket(&open, |socket| match which {
        Which::Local => socket.local(),
        Which::Peer => socket.peer(),
    })?;
    put_address(context, to, length_at, address)?;
    Ok(0)
}

/// Whose address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Local,
    Peer,
}

pub(super) fn sendto(context: &mut Context<'_>, a: super::Arguments) -> Result {
    let [number, from, length, flags, to, to_length] = a;
    let open = opened(context, number)?;
    let to = match to {
        0 => None,
        at => Some(address(context, at, to_length)?),
    };
    let part = (length as usize).min(STEP);
    with_buffer(context, part, |context, buffer| {
        context.process.read(from, &mut buffer[..part])?;
        send(context, &open, &buffer[..part], to, flags as u32)
    })
}

fn send(
    context: &mut Context<'_>,
    open: &Open,
    bytes: &[u8],
    to: Option<SocketAddrV4>,
    flags: u32,
) -> Result {
    let may_wait = open.may_wait() && flags & n::MSG_DONTWAIT == 0;
    let is_datagram = with_socket(open, |socket| Ok(socket.is_datagram()));
    if is_datagram == Ok(true) {
        let sent = with_socket(open, |socket| socket.send(bytes, to))?;
        return Ok(sent as u64);
    }
    let before = context
        .thread
        .pending
        .load(core::sync::atomic::Ordering::Relaxed);
    let sent = write_all(context, open, bytes, may_wait);
    if sent == Err(Errno::EPIPE) && flags & n::MSG_NOSIGNAL != 0 {
        // Only this one: others may have come meanwhile.
        let own = Mask::of(c::SIGPIPE).0 & !before;
        context
            .thread
            .pending
            .fetch_and(!own, core::sync::atomic::Ordering::Relaxed);
    }
    sent
}

pub(super) fn sendmsg(context: &mut Context<'_>, number: u64, message: u64, flags: u64) -> Result {
    let open = opened(context, number)?;
    let word = |at: u64| context.process.u64(message.wrapping_add(at));
    let to = match word(0)? {
        0 => None,
        at => Some(address(context, at, u64::from(word(8)? as u32))?),
    };
    let parts = context.process.parts(word(16)?, word(24)?)?;
    let bytes = gather(context, &parts)?;
    send(context, &open, &bytes, to, flags as u32)
}

/// Receives up to `length` bytes into the thread's buffer, then calls `put` with them.
fn receive(
    context: &mut Context<'_>,
    open: &Open,
    length: usize,
    flags: u32,
    put: impl FnOnce(&Context<'_>, &[u8], Option<SocketAddrV4>) -> Result<()>,
) -> Result {
    let may_wait = open.may_wait() && flags & n::MSG_DONTWAIT == 0;
    let peeks = flags & n::MSG_PEEK != 0;
    let waits_for_all = may_wait && flags & n::MSG_WAITALL != 0 && !peeks;
    let part = length.min(STEP);
    with_buffer(context, part, |context, buffer| {
        let mut done = 0;
        let mut from = None;
        loop {
            open.note_read();
            let received =
                context.attempt(open, may_wait, || match open.file.as_kind::<Socket>() {
                    Some(socket) => socket.receive(&mut buffer[done..part], peeks),
                    None => open
                        .file
                        .read(&mut buffer[done..part])
                        .map(|count| (count, None)),
                });
            match received {
                Ok((count, sender)) => {
                    done += count;
                    from = sender;
                    if count == 0 || done == part || !waits_for_all {
                        break;
                    }
                }
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        put(context, &buffer[..done], from)?;
        Ok(done as u64)
    })
}

pub(super) fn recvfrom(context: &mut Context<'_>, a: super::Arguments) -> Result {
    let [number, to, length, flags, from_at, length_at] = a;
    let open = opened(context, number)?;
    receive(
        context,
        &open,
        length as usize,
        flags as u32,
        |context, bytes, from| {
            context.process.write(to, bytes)?;
            match from {
                Some(from) => put_address(context, from_at, length_at, from),
                None => Ok(()),
            }
        },
    )
}

pub(super) fn recvmsg(context: &mut Context<'_>, number: u64, message: u64, flags: u64) -> Result {
    let open = opened(context, number)?;
    let word = |at: u64| context.process.u64(message.wrapping_add(at));
    let (name, parts) = (word(0)?, context.process.parts(word(16)?, word(24)?)?);
    let length = parts
        .iter()
        .map(|(_, length)| *length)
        .fold(0, usize::saturating_add);
    receive(
        context,
        &open,
        length,
        flags as u32,
        |context, bytes, from| {
            let mut done = 0;
            for (base, length) in parts {
                let count = length.min(bytes.len() - done);
                context.process.write(base, &bytes[done..done + count])?;
                done += count;
            }
            if let Some(from) = from.filter(|_| name != 0) {
                put_address(context, name, message.wrapping_add(8), from)?;
            }
            // No control data, no flags.
            context.process.put_u64(message.wrapping_add(40), 0)?;
            context.process.put_u32(message.wrapping_add(48), 0)
        },
    )
}

pub(super) fn setsockopt(context: &Context<'_>, a: super::Arguments) -> Result {
    let [number, level, option, value, length, _] = a;
    let open = opened(context, number)?;
    if length < 4 {
        return Err(Errno::EINVAL);
    }
    let value = context.process.u32(value)?;
    with_socket(&open, |socket| {
        if level as u32 == SOL_TCP && option as u32 == n::TCP_NODELAY {
            socket.set_no_delay(value != 0);
        }
        // Others are hints, or what is so here in any case (SO_REUSEADDR).
        Ok(0)
    })
}

pub(super) fn getsockopt(context: &Context<'_>, a: super::Arguments) -> Result {
    let [number, level, option, to, length_at, _] = a;
    let open = opened(context, number)?;
    let value = with_socket(&open, |socket| {
        Ok(match (level as u32, option as u32) {
            (n::SOL_SOCKET, n::SO_ERROR) => socket.take_error(),
            (n::SOL_SOCKET, n::SO_TYPE) if socket.is_datagram() => n::SOCK_DGRAM,
            (n::SOL_SOCKET, n::SO_TYPE) => n::SOCK_STREAM,
            (n::SOL_SOCKET, n::SO_SNDBUF | n::SO_RCVBUF) => 212_992,
            (n::SOL_SOCKET, n::SO_DOMAIN) => n::AF_INET,
            _ => 0,
        })
    })?;
    let room = context.process.u32(length_at)?.min(4) as usize;
    context.process.write(to, &value.to_le_bytes()[..room])?;
    context.process.put_u32(length_at, room as u32)?;
    Ok(0)
}
