//! Options of sockets (`socket(7)`, `tcp(7)`, `ipv6(7)`). Others than those of [`SocketOption`] have no
//! effect; a program reads back what it set. Those that would change what it sends are refused.

use linux_raw_sys::net as n;
use tare_libos::time::Duration;
use tare_program::offered::SocketOption;

use super::arguments::Arguments;
use super::descriptors::open as opened;
use super::time::micros;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::Way;
use crate::files::keep_alive::{Number, Settings};
use crate::files::socket::{Linger, Socket};
use crate::process::PID;

/// Bytes that `SO_SNDBUF` and `SO_RCVBUF` report.
const BUFFER_BYTES: u32 = 212_992;

/// TLS in the kernel (`include/linux/socket.h`).
const SOL_TLS: u32 = 282;
/// Segments of a datagram, one buffer for several (`include/uapi/linux/udp.h`).
const UDP_SEGMENT: u32 = 103;
const UDP_GRO: u32 = 104;

/// Options of any socket that are read back as 0 or 1 (`sk_setsockopt` in Linux's net/core/sock.c).
const SWITCHES: [u32; 5] = [
    n::SO_REUSEADDR,
    n::SO_REUSEPORT,
    n::SO_BROADCAST,
    n::SO_DONTROUTE,
    n::SO_OOBINLINE,
];

/// ENOPROTOOPT, as of a kernel without them, for options by which a program sends other bytes than
/// without: a buffer of several datagrams, plaintext for the kernel to encrypt, memory that it may
/// not change before a report. Taken for hints, they would send what no peer understands.
fn expect_harmless((level, option): (u32, u32)) -> Result<()> {
    const UDP: u32 = n::IPPROTO_UDP as u32;
    const TCP: u32 = n::IPPROTO_TCP as u32;
    match (level, option) {
        (UDP, UDP_SEGMENT | UDP_GRO)
        | (TCP, n::TCP_ULP)
        | (n::SOL_SOCKET, n::SO_ZEROCOPY)
        | (SOL_TLS, _) => Err(Errno::ENOPROTOOPT),
        _ => Ok(()),
    }
}

/// Whether less than a word is a value: of IPv4's options, which may be one byte
/// (`do_ip_setsockopt` in Linux's net/ipv4/ip_sockglue.c), and of texts.
fn may_be_short(key: (u32, u32)) -> bool {
    const IP: u32 = n::IPPROTO_IP as u32;
    const TCP: u32 = n::IPPROTO_TCP as u32;
    matches!(
        key,
        (IP, _) | (n::SOL_SOCKET, n::SO_BINDTODEVICE) | (TCP, n::TCP_CONGESTION)
    )
}

pub(super) fn setsockopt(context: &Context<'_>, a: Arguments) -> Result {
    let [number, level, option, at, length, _] = a;
    let open = opened(context, number)?;
    open.file.endpoint().ok_or(Errno::ENOTSOCK)?;
    let socket = open.file.as_kind::<Socket>();
    let key = (level as u32, option as u32);
    if length < 4 && !may_be_short(key) {
        return Err(Errno::EINVAL);
    }
    let mut word = [0; 4];
    context
        .process
        .read(at, &mut word[..length.min(4) as usize])?;
    let value = u32::from_le_bytes(word);
    let is_on = value != 0;
    expect_harmless(key)?;
    match SocketOption::of(key) {
        Some(option @ (SocketOption::SO_RCVTIMEO | SocketOption::SO_SNDTIMEO)) => {
            if length < 16 {
                return Err(Errno::EINVAL);
            }
            let limit = micros(context, at)?.unwrap_or_default();
            open.set_limit(way(option), limit.as_nanos() as u64);
        }
        Some(SocketOption::SO_LINGER) => {
            if length < 8 {
                return Err(Errno::EINVAL);
            }
            let seconds = context.process.u32(at + 4)?;
            if let Some(socket) = socket {
                socket.set_linger(is_on.then_some(seconds));
            }
        }
        Some(SocketOption::TCP_NODELAY) => {
            if let Some(socket) = socket {
                socket.set_no_delay(is_on);
            }
        }
        Some(SocketOption::TCP_CORK) => {
            if let Some(socket) = socket {
                socket.set_corked(is_on);
            }
        }
        Some(SocketOption::IPV6_V6ONLY) => {
            if let Some(socket) = socket {
                socket.set_only_v6(is_on)?;
            }
        }
        Some(SocketOption::SO_KEEPALIVE) => set_keep_alive(socket, |it| {
            it.is_on = is_on;
            Ok(())
        })?,
        Some(SocketOption::TCP_KEEPIDLE) => {
            set_keep_alive(socket, |it| it.set(Number::Idle, value))?;
        }
        Some(SocketOption::TCP_KEEPINTVL) => {
            set_keep_alive(socket, |it| it.set(Number::Interval, value))?;
        }
        Some(SocketOption::TCP_KEEPCNT) => {
            set_keep_alive(socket, |it| it.set(Number::Probes, value))?;
        }
        Some(SocketOption::TCP_USER_TIMEOUT) => {
            set_keep_alive(socket, |it| it.set(Number::GivenUp, value))?;
        }
        // Read only, or so here in any case.
        Some(
            SocketOption::SO_ERROR
            | SocketOption::SO_TYPE
            | SocketOption::SO_DOMAIN
            | SocketOption::SO_ACCEPTCONN
            | SocketOption::SO_SNDBUF
            | SocketOption::SO_RCVBUF
            | SocketOption::SO_PEERCRED,
        ) => {}
        Some(SocketOption::SO_REUSEADDR) | None => {
            if let Some(socket) = socket {
                let is_switch = level as u32 == n::SOL_SOCKET && SWITCHES.contains(&key.1);
                let value = if is_switch { is_on.into() } else { value };
                socket.set_hint(key, value);
            }
        }
    }
    Ok(0)
}

pub(super) fn getsockopt(context: &Context<'_>, a: Arguments) -> Result {
    let [number, level, option, to, length_at, _] = a;
    let open = opened(context, number)?;
    let endpoint = open.file.endpoint().ok_or(Errno::ENOTSOCK)?;
    let socket = open.file.as_kind::<Socket>();
    let key = (level as u32, option as u32);
    expect_harmless(key)?;
    let word = match SocketOption::of(key) {
        Some(SocketOption::SO_ERROR) => endpoint.take_error(),
        Some(SocketOption::SO_TYPE) => endpoint.kind().word(),
        Some(SocketOption::SO_DOMAIN) => endpoint.family(),
        Some(SocketOption::SO_ACCEPTCONN) => endpoint.is_listening().into(),
        Some(SocketOption::SO_SNDBUF | SocketOption::SO_RCVBUF) => BUFFER_BYTES,
        Some(SocketOption::SO_PEERCRED) => {
            // The process, root and its group.
            let mut bytes = [0; 12];
            bytes[..4].copy_from_slice(&PID.to_le_bytes());
            return put(context, to, length_at, &bytes);
        }
        Some(option @ (SocketOption::SO_RCVTIMEO | SocketOption::SO_SNDTIMEO)) => {
            let limit = Duration::from_nanos(open.limit_ns(way(option)));
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&limit.as_secs().to_le_bytes());
            bytes[8..].copy_from_slice(&u64::from(limit.subsec_micros()).to_le_bytes());
            return put(context, to, length_at, &bytes);
        }
        Some(SocketOption::SO_LINGER) => {
            let Linger { is_on, seconds } = socket.map(Socket::linger).unwrap_or_default();
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&u32::from(is_on).to_le_bytes());
            bytes[4..].copy_from_slice(&seconds.to_le_bytes());
            return put(context, to, length_at, &bytes);
        }
        Some(SocketOption::TCP_NODELAY) => socket.is_some_and(Socket::no_delay).into(),
        Some(SocketOption::TCP_CORK) => socket.is_some_and(Socket::corked).into(),
        Some(SocketOption::IPV6_V6ONLY) => socket.is_some_and(Socket::only_v6).into(),
        Some(SocketOption::SO_KEEPALIVE) => keep_alive(socket).is_on.into(),
        Some(SocketOption::TCP_KEEPIDLE) => keep_alive(socket).get(Number::Idle),
        Some(SocketOption::TCP_KEEPINTVL) => keep_alive(socket).get(Number::Interval),
        Some(SocketOption::TCP_KEEPCNT) => keep_alive(socket).get(Number::Probes),
        Some(SocketOption::TCP_USER_TIMEOUT) => keep_alive(socket).get(Number::GivenUp),
        Some(SocketOption::SO_REUSEADDR) | None => {
            let hint = socket.and_then(|socket| socket.hint(key));
            hint.unwrap_or(0)
        }
    };
    put(context, to, length_at, &word.to_le_bytes())
}

/// The direction that a limit of time is for.
fn way(option: SocketOption) -> Way {
    match option {
        SocketOption::SO_RCVTIMEO => Way::Read,
        _ => Way::Write,
    }
}

/// What a socket does about a silent peer. A Unix socket has Linux's first settings, and takes no others.
fn keep_alive(socket: Option<&Socket>) -> Settings {
    socket.map(Socket::keep_alive).unwrap_or_default()
}

fn set_keep_alive(
    socket: Option<&Socket>,
    set: impl FnOnce(&mut Settings) -> Result<()>,
) -> Result<()> {
    let mut settings = keep_alive(socket);
    set(&mut settings)?;
    if let Some(socket) = socket {
        socket.set_keep_alive(settings);
    }
    Ok(())
}

fn put(context: &Context<'_>, to: u64, length_at: u64, bytes: &[u8]) -> Result {
    let room = context.process.u32(length_at)? as i32;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    let count = room.min(bytes.len());
    context.process.write(to, &bytes[..count])?;
    context.process.put_u32(length_at, count as u32)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_change_what_is_sent_are_refused() {
        // QUIC's datagrams in one buffer, TLS in the kernel, sending without a copy.
        for key in [(17, 103), (17, 104), (6, 31), (282, 1), (282, 2), (1, 60)] {
            assert_eq!(expect_harmless(key), Err(Errno::ENOPROTOOPT), "{key:?}");
            assert_eq!(SocketOption::of(key), None);
        }
        for key in [(1, 6), (1, 15), (6, 1), (6, 4), (0, 1), (17, 1)] {
            assert_eq!(expect_harmless(key), Ok(()), "{key:?}");
        }
    }
}
