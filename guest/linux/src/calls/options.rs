//! Options of sockets (`socket(7)`, `tcp(7)`, `ipv6(7)`): those that are more than hints.

use linux_raw_sys::net as n;
use tare_libos::time::Duration;

use super::arguments::Arguments;
use super::descriptors::open as opened;
use super::time::micros;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::Way;
use crate::files::socket::Socket;
use crate::process::PID;

const SOL_TCP: u32 = n::IPPROTO_TCP as u32;
const SOL_IPV6: u32 = n::IPPROTO_IPV6 as u32;
/// Bytes that `SO_SNDBUF` and `SO_RCVBUF` report.
const BUFFER_BYTES: u32 = 212_992;

pub(super) fn setsockopt(context: &Context<'_>, a: Arguments) -> Result {
    let [number, level, option, at, length, _] = a;
    let open = opened(context, number)?;
    open.file.endpoint().ok_or(Errno::ENOTSOCK)?;
    let socket = open.file.as_kind::<Socket>();
    let (level, option) = (level as u32, option as u32);
    if length < 4 {
        return Err(Errno::EINVAL);
    }
    let is_on = context.process.u32(at)? != 0;
    match (level, option, socket) {
        (n::SOL_SOCKET, n::SO_RCVTIMEO | n::SO_SNDTIMEO, _) => {
            if length < 16 {
                return Err(Errno::EINVAL);
            }
            let way = match option {
                n::SO_RCVTIMEO => Way::Read,
                _ => Way::Write,
            };
            let limit = micros(context, at)?.unwrap_or_default();
            open.set_limit(way, limit.as_nanos() as u64);
        }
        (SOL_TCP, n::TCP_NODELAY, Some(socket)) => socket.set_no_delay(is_on),
        (SOL_IPV6, n::IPV6_V6ONLY, Some(socket)) => socket.set_only_v6(is_on)?,
        // Others are hints, or what is so here in any case (SO_REUSEADDR).
        _ => {}
    }
    Ok(0)
}

pub(super) fn getsockopt(context: &Context<'_>, a: Arguments) -> Result {
    let [number, level, option, to, length_at, _] = a;
    let open = opened(context, number)?;
    let endpoint = open.file.endpoint().ok_or(Errno::ENOTSOCK)?;
    let socket = open.file.as_kind::<Socket>();
    let word = match (level as u32, option as u32) {
        (n::SOL_SOCKET, n::SO_ERROR) => endpoint.take_error(),
        (n::SOL_SOCKET, n::SO_TYPE) => endpoint.kind().word(),
        (n::SOL_SOCKET, n::SO_DOMAIN) => endpoint.family(),
        (n::SOL_SOCKET, n::SO_ACCEPTCONN) => endpoint.is_listening().into(),
        (n::SOL_SOCKET, n::SO_SNDBUF | n::SO_RCVBUF) => BUFFER_BYTES,
        (n::SOL_SOCKET, n::SO_PEERCRED) => {
            // The process, root and its group.
            let mut bytes = [0; 12];
            bytes[..4].copy_from_slice(&PID.to_le_bytes());
            return put(context, to, length_at, &bytes);
        }
        (n::SOL_SOCKET, option @ (n::SO_RCVTIMEO | n::SO_SNDTIMEO)) => {
            let way = match option {
                n::SO_RCVTIMEO => Way::Read,
                _ => Way::Write,
            };
            let limit = Duration::from_nanos(open.limit_ns(way));
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&limit.as_secs().to_le_bytes());
            bytes[8..].copy_from_slice(&u64::from(limit.subsec_micros()).to_le_bytes());
            return put(context, to, length_at, &bytes);
        }
        (SOL_TCP, n::TCP_NODELAY) => socket.is_some_and(Socket::no_delay).into(),
        (SOL_IPV6, n::IPV6_V6ONLY) => socket.is_some_and(Socket::only_v6).into(),
        _ => 0,
    };
    put(context, to, length_at, &word.to_le_bytes())
}

fn put(context: &Context<'_>, to: u64, length_at: u64, bytes: &[u8]) -> Result {
    let room = context.process.u32(length_at)? as i32;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    let count = room.min(bytes.len());
    context.process.write(to, &bytes[..count])?;
    context.process.put_u32(length_at, count as u32)?;
    Ok(0)
}
