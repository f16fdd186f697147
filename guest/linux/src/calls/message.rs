//! What sockets send and receive, by whichever call.

use linux_raw_sys::general::POLLIN;
use linux_raw_sys::net as n;
use tare_program::names;

use super::files::{AT_FDCWD, absolute};
use super::parts::{STEP, gather, scatter, total, with_buffer};
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::endpoint::{Address, Name, Received, SocketKind};
use crate::files::pipe::Pipe;
use crate::files::socket::Socket;
use crate::files::tree::{Last, NodeKind};
use crate::files::unix::{self, Named, Unix};
use crate::files::{Endpoint, Open, Way};

/// Most bytes of a datagram over IPv4.
const MOST_DATAGRAM: usize = 65_507;

pub(super) fn endpoint(open: &Open) -> Result<&dyn Endpoint> {
    open.file.endpoint().ok_or(Errno::ENOTSOCK)
}

/// Whether each read takes, and each write gives, one message.
pub(super) fn carries_messages(open: &Open) -> bool {
    let endpoint = open.file.endpoint();
    endpoint.is_some_and(|endpoint| endpoint.kind() != SocketKind::Stream)
}

/// How many bytes a read takes away; at least 1 of what does not know, `None` for nothing.
fn bytes_there(open: &Open) -> Option<usize> {
    let file = &open.file;
    let is_stream = file
        .endpoint()
        .is_some_and(|endpoint| endpoint.kind() == SocketKind::Stream);
    if is_stream || file.as_kind::<Pipe>().is_some() || file.as_kind::<Unix>().is_some() {
        let bytes = file.readable_bytes().unwrap_or_default();
        return (bytes > 0).then_some(bytes as usize);
    }
    let is_there = file.ready() & POLLIN != 0;
    is_there.then(|| file.readable_bytes().unwrap_or(1).max(1) as usize)
}

/// Whether a read takes something away.
pub(super) fn has_data(open: &Open) -> bool {
    bytes_there(open).is_some()
}

/// Sends one message, whole.
pub(super) fn send_message(
    context: &mut Context<'_>,
    open: &Open,
    parts: &[(u64, usize)],
    to: Option<&Address>,
    may_wait: bool,
) -> Result {
    let unix = open.file.as_kind::<Unix>();
    let most = if unix.is_some() {
        unix::MOST_MESSAGE
    } else {
        MOST_DATAGRAM
    };
    let length = Some(total(parts)).filter(|&length| length <= most);
    let length = length.ok_or(Errno::EMSGSIZE)?;
    let is_datagram = endpoint(open)?.kind() == SocketKind::Datagram;
    if let Some(socket) = unix {
        socket.may_send_messages()?;
    }
    let peer = match (unix, to) {
        // Packets go to the peer, whatever name is given.
        (Some(_), Some(to)) if is_datagram => Some(named(context, to)?),
        _ => None,
    };
    let watched = match &peer {
        Some(peer) => Some(peer.watched()?),
        None => None,
    };
    let deadline = open.deadline(Way::Write);
    let sent = with_buffer(context, length, |context, buffer| {
        if gather(context, parts, 0, &mut buffer[..length])? < length {
            return Err(Errno::EFAULT);
        }
        let bytes = &buffer[..length];
        let act = || {
            open.send(|| match (unix, &peer) {
                (Some(socket), Some(peer)) => socket.send_to(bytes, &peer.socket()?),
                _ => endpoint(open)?.send(bytes, to),
            })
        };
        match (act(), &watched) {
            (Err(Errno::EAGAIN), Some(watched)) if may_wait => {
                context.wait(&[watched], deadline, act)
            }
            (Err(Errno::EAGAIN), None) => context.attempt(open, may_wait, deadline, act),
            (sent, _) => sent,
        }
    })?;
    Ok(sent as u64)
}

/// Receives into the parts of a vector: a message, or what a stream has, up to [`STEP`] or
/// with MSG_WAITALL all.
pub(super) fn receive(
    context: &mut Context<'_>,
    open: &Open,
    parts: &[(u64, usize)],
    flags: u32,
) -> Result<Received> {
    let may_wait = open.may_wait() && flags & n::MSG_DONTWAIT == 0;
    let peeks = flags & n::MSG_PEEK != 0;
    let socket = endpoint(open)?;
    let is_stream = socket.kind() == SocketKind::Stream;
    let is_inet = open.file.as_kind::<Socket>().is_some();
    if flags & n::MSG_ERRQUEUE != 0 && is_inet {
        // There is no queue of errors.
        return Err(Errno::EAGAIN);
    }
    // Nor urgent data, which datagrams of the network do not ask for.
    match (flags & n::MSG_OOB != 0, is_stream, is_inet) {
        (true, true, _) => return Err(Errno::EINVAL),
        (true, false, false) => return Err(Errno::EOPNOTSUPP),
        _ => {}
    }
    let is_datagram = socket.kind() == SocketKind::Datagram;
    let waits_for_all = is_stream && may_wait && flags & n::MSG_WAITALL != 0 && !peeks;
    let length = total(parts);
    let most = if is_stream { STEP } else { unix::MOST_MESSAGE };
    let deadline = open.deadline(Way::Read);
    let mut all = Received::default();
    loop {
        let part = (length - all.count).min(most);
        let received = with_buffer(context, part, |context, buffer| {
            let to = &mut buffer[..part];
            open.note_read();
            let received =
                context.attempt(open, may_wait, deadline, || socket.receive(to, peeks))?;
            if is_datagram && !may_wait && received.from.is_none() {
                // Shut down, which only a call that may wait finds.
                return Err(Errno::EAGAIN);
            }
            scatter(context, parts, all.count, &to[..received.count])?;
            Ok(received)
        });
        let received = match received {
            Ok(received) => received,
            Err(errno) if all.count == 0 => return Err(errno),
            Err(_) => return Ok(all),
        };
        all.count += received.count;
        all.length += received.length;
        all.from = received.from;
        if received.count == 0 || all.count == length || !waits_for_all {
            return Ok(all);
        }
    }
}

/// Reads one message into the parts of a vector.
pub(super) fn receive_parts(
    context: &mut Context<'_>,
    open: &Open,
    parts: &[(u64, usize)],
) -> Result {
    may_receive(context, open, parts)?;
    let received = receive(context, open, parts, 0)?;
    Ok(received.count as u64)
}

/// Refuses a destination that cannot be written to before something is taken for it.
pub(super) fn may_receive(
    context: &Context<'_>,
    open: &Open,
    parts: &[(u64, usize)],
) -> Result<()> {
    let Some(mut there) = bytes_there(open) else {
        return Ok(());
    };
    for (base, length) in parts {
        let part = there.min(*length);
        if context.process.writable(*base, part) < part {
            return Err(Errno::EFAULT);
        }
        there -= part;
    }
    Ok(())
}

pub(super) fn path(context: &Context<'_>, name: &Name) -> Result<alloc::string::String> {
    absolute(context, AT_FDCWD as u64, names::text(name.to_vec()))
}

/// The socket of AF_UNIX that an address names, not held: closing it ends a wait for it.
pub(super) fn named(context: &Context<'_>, address: &Address) -> Result<Named> {
    let Address::Unix(name) = address else {
        return Err(Errno::EINVAL);
    };
    match name.first() {
        None => Err(Errno::EINVAL),
        Some(0) => {
            let names = context.process.abstract_names.lock();
            names.get(name).cloned().ok_or(Errno::ECONNREFUSED)
        }
        Some(_) => {
            let path = path(context, name)?;
            match &context.process.tree.find(&path, Last::Follow)?.kind {
                NodeKind::Socket { named, .. } => Ok(named.clone()),
                _ => Err(Errno::ECONNREFUSED),
            }
        }
    }
}
