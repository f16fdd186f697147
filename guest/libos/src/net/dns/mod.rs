//! Name resolution: a stub resolver (RFC 1034, 5.3.1) with a cache.
//!
//! Servers come from DHCP, from router advertisements, or from `dns=ADDRESS[,...]`
//! on the command line. Each question has a random number and leaves from a random
//! port that only its server can answer to (RFC 5452). Truncated answers are asked
//! for again over TCP. There is no `/etc/hosts`, no search list and no DNSSEC.

mod cache;
mod wire;

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

use cache::Cache;
use wire::{Answer, Name, RecordType};

use super::system::{self, lock};
use super::{TcpStream, UdpSocket};
use crate::io::{Error, ErrorKind, Read, Result, Write};
use crate::sync::SpinLock;
use crate::time::Instant;

const PORT: u16 = 53;
/// How long a server has for an answer, in each of the rounds.
const TIMEOUTS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];
/// How long addresses of one family are kept where the other's question had no answer, s.
const ONE_FAMILY_S: u32 = 60;
/// Largest answer over UDP: the limit without EDNS.
const UDP_BYTES: usize = 512;
/// Largest answer over TCP that is read.
const TCP_BYTES: usize = 16 * 1024;

const NO_SERVER: Error = Error::new(ErrorKind::NetworkUnreachable, "no name server is known");
const BAD_NAME: Error = Error::new(ErrorKind::InvalidInput, "not a host name");
const NO_SUCH_NAME: Error = Error::new(ErrorKind::NotFound, "no such host name");
const NO_ANSWER: Error = Error::new(ErrorKind::TimedOut, "no name server answers");
const REFUSED: Error = Error::new(ErrorKind::Other, "the name servers cannot answer");

static CACHE: SpinLock<Cache> = SpinLock::new(Cache::new());

/// The addresses of a host, as far as this side can reach them: IPv6 before IPv4. An
/// address in text is itself; `localhost` is this machine (RFC 6761, 6.3).
///
/// Fails with `NotFound` if there is no such name, with `TimedOut` if no server
/// answers, and with `NetworkUnreachable` if none is known.
pub fn lookup_host(name: &str) -> Result<Vec<IpAddr>> {
    if let Ok(address) = name.parse() {
        return Ok(vec![address]);
    }
    if name.trim_end_matches('.').eq_ignore_ascii_case("localhost") {
        return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
    }
    let wire = Name::parse(name).ok_or(BAD_NAME)?;
    let known = CACHE.lock().get(name, Instant::now());
    let addresses = match known {
        Some(addresses) => addresses,
        None => resolve(name, &wire)?,
    };
    if addresses.is_empty() {
        return Err(NO_SUCH_NAME);
    }
    Ok(addresses)
}

/// Asks the servers, and keeps what they say.
fn resolve(name: &str, wire: &Name) -> Result<Vec<IpAddr>> {
    let (servers, kinds) = {
        let stack = lock();
        let ipv6 = stack.has_global_ipv6().then_some(RecordType::Aaaa);
        let kinds: Vec<_> = [RecordType::A].into_iter().chain(ipv6).collect();
        (stack.name_servers(system::now()), kinds)
    };
    if servers.is_empty() {
        return Err(NO_SERVER);
    }
    let mut addresses = Vec::new();
    let mut lifetime = u32::MAX;
    let mut failure = None;
    for kind in kinds {
        // With addresses of one family, no long wait for a server that drops the other's questions
        // (RFC 8305, 3).
        let timeouts = if addresses.is_empty() {
            &TIMEOUTS[..]
        } else {
            &TIMEOUTS[..1]
        };
        match ask_all(&servers, wire, kind, timeouts) {
            Ok(Answer::Addresses(found, seconds)) => {
                lifetime = lifetime.min(seconds);
                // Those of IPv6 first.
                addresses.splice(..0, found);
            }
            Ok(Answer::NoSuchName(seconds)) => lifetime = lifetime.min(seconds),
            Ok(Answer::Truncated | Answer::Failed) => failure = Some(REFUSED),
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        // One family may do without the other.
        Some(error) if addresses.is_empty() => return Err(error),
        Some(_) => lifetime = lifetime.min(ONE_FAMILY_S),
        None => {}
    }
    CACHE.lock().put(name, &addresses, lifetime, Instant::now());
    Ok(addresses)
}

/// The first useful answer: each server in turn, with growing time limits.
fn ask_all(
    servers: &[IpAddr],
    name: &Name,
    kind: RecordType,
    timeouts: &[Duration],
) -> Result<Answer> {
    let mut last = Err(NO_ANSWER);
    for &timeout in timeouts {
        for server in servers {
            match ask(SocketAddr::new(*server, PORT), name, kind, timeout) {
                Ok(Answer::Failed) => last = Ok(Answer::Failed),
                Ok(answer) => return Ok(answer),
                Err(_) => {}
            }
        }
        if last.is_ok() {
            break;
        }
    }
    last
}

fn ask(server: SocketAddr, name: &Name, kind: RecordType, timeout: Duration) -> Result<Answer> {
    let mut id = [0; 2];
    crate::random::fill(&mut id);
    let question = wire::question(u16::from_ne_bytes(id), name, kind);
    let local: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((local, 0))?;
    socket.connect(server)?;
    socket.send(&question)?;
    let deadline = Instant::now() + timeout;
    let mut buf = [0; UDP_BYTES];
    loop {
        let left = deadline.duration_since(Instant::now());
        if left.is_zero() {
            return Err(NO_ANSWER);
        }
        socket.set_read_timeout(Some(left))?;
        let n = socket.recv(&mut buf)?;
        match wire::answer(&buf[..n], &question, kind) {
            Some(Answer::Truncated) => return ask_by_tcp(server, &question, kind, timeout),
            Some(answer) => return Ok(answer),
            // Not an answer to this question: go on waiting.
            None => {}
        }
    }
}

/// The same question in a stream, with its length before it (RFC 7766, 8).
fn ask_by_tcp(
    server: SocketAddr,
    question: &[u8],
    kind: RecordType,
    timeout: Duration,
) -> Result<Answer> {
    let deadline = Instant::now() + timeout;
    let mut stream = TcpStream::connect_timeout(&server, timeout)?;
    stream.set_write_timeout(Some(timeout))?;
    let mut message = (question.len() as u16).to_be_bytes().to_vec();
    message.extend(question);
    stream.write_all(&message)?;
    let mut len = [0; 2];
    read_until(&mut stream, &mut len, deadline)?;
    let len = usize::from(u16::from_be_bytes(len));
    if len > TCP_BYTES {
        return Err(REFUSED);
    }
    let mut answer = Vec::new();
    answer.try_reserve_exact(len).map_err(|_| REFUSED)?;
    answer.resize(len, 0);
    read_until(&mut stream, &mut answer, deadline)?;
    wire::answer(&answer, question, kind).ok_or(REFUSED)
}

/// Fills `buf` before `deadline`, however the server spreads its bytes over time.
fn read_until(stream: &mut TcpStream, mut buf: &mut [u8], deadline: Instant) -> Result<()> {
    while !buf.is_empty() {
        let left = deadline.duration_since(Instant::now());
        if left.is_zero() {
            return Err(NO_ANSWER);
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(buf)? {
            0 => return Err(REFUSED),
            n => buf = &mut buf[n..],
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
