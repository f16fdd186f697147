//! Forwards connections from ports of this host to QEMU, which listens for its guest in a separate
//! network namespace.
//!
//! `tare` starts itself for it ([`command`]). The process enters QEMU's namespace, through QEMU's
//! user namespace unless root started it; root's process becomes an unprivileged user. Without
//! capabilities, and protected from tracing, it accepts on inherited sockets and connects only
//! within the namespace. It does not parse the data that it forwards, and ends with the thread that
//! started it.
//!
//! Limits: [`MOST_CONNECTIONS`], [`MOST_PEERS`]; only the sockets buffer datagrams.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::iter;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{DumpableBehavior, Pid, Signal, set_dumpable_behavior};
use rustix::thread::set_no_new_privs;
use serde::{Deserialize, Serialize};
use tare_control::config::{Jail, JailUser};
use tare_daemon::{confine, jail};
use tare_host::child::{ParentDeath, ends_with_us, keeps_only, take_inherited};

use crate::attempt::read_task;
use crate::publish::Protocol;

/// First argument of such a command line; no verb begins like this.
pub(crate) const WORD: &str = "--forward-into";
/// Connections at a time, of two descriptors each; further ones are closed.
const MOST_CONNECTIONS: usize = 480;
/// Clients that receive answers to datagrams; a further one replaces the oldest.
const MOST_PEERS: usize = 64;
/// Longest datagram in bytes.
const LONGEST: usize = 1 << 16;
/// Pause after an error that may pass, such as too many open files.
const PAUSE: Duration = Duration::from_millis(10);

/// What is forwarded where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Forwarding {
    /// The QEMU whose namespace the process enters; `None` if it has none.
    pub(crate) qemu: Option<u32>,
    /// The user that enters it and forwards; `None` for the user that starts it.
    pub(crate) enters: Option<JailUser>,
    /// The user that forwards afterwards; `None` for the user that entered.
    pub(crate) user: Option<JailUser>,
    /// From where to where.
    pub(crate) ports: Vec<ForwardedPort>,
}

/// One socket of this host, and the port at which QEMU listens for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForwardedPort {
    /// What the socket is for.
    pub(crate) protocol: Protocol,
    /// The socket, inherited.
    pub(crate) socket: RawFd,
    /// QEMU's port, on a loopback interface.
    pub(crate) port: u16,
}

/// A process that forwards, and ends with the calling thread. Ctrl-C on a terminal does not reach
/// it.
pub(crate) fn command(tare: &Path, task: &Forwarding) -> io::Result<Command> {
    let sockets = task.ports.iter().map(|port| port.socket).collect();
    let mut command = Command::new(tare);
    keeps_only(ends_with_us(&mut command, Signal::KILL), sockets)
        .arg(WORD)
        .arg(serde_json::to_string(task)?)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    Ok(command)
}

/// Forwards as an argument describes; returns only on failure. To be called by a process of one
/// thread.
pub(crate) fn forward(word: Option<OsString>) -> io::Result<()> {
    let tie = ParentDeath::read()?;
    let task: Forwarding = read_task(word)?;
    if let Some(user) = &task.enters {
        jail::become_for_good(user).map_err(io::Error::other)?;
    }
    // QEMU may next be the same user in the same user namespace, and may not trace a process with
    // the host's root (`ptrace(2)`).
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let sockets: Vec<Socket> = task
        .ports
        .iter()
        .map(Socket::take)
        .collect::<Result<_, _>>()?;
    if let Some(qemu) = task.qemu {
        let qemu = i32::try_from(qemu)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or(io::ErrorKind::InvalidInput)?;
        jail::enter_network_of(qemu).map_err(io::Error::other)?;
    }
    let user = Jail {
        namespaces: false,
        user: task.user,
    };
    let entering = jail::Entering::alone(tie);
    jail::enter_rest(&user, &entering).map_err(io::Error::other)?;
    confine::drop_capabilities(&[])?;
    set_no_new_privs(true)?;
    thread::scope(|scope| {
        for socket in &sockets {
            thread::Builder::new().spawn_scoped(scope, move || socket.carry())?;
        }
        Ok(())
    })
}

/// A socket of this host, and the target of what arrives on it.
#[derive(Debug)]
enum Socket {
    Tcp(TcpListener, SocketAddr),
    Udp(UdpSocket, SocketAddr),
}

impl Socket {
    fn take(port: &ForwardedPort) -> io::Result<Self> {
        let socket: OwnedFd = take_inherited(port.socket)?;
        let qemu = SocketAddr::from((Ipv4Addr::LOCALHOST, port.port));
        Ok(match port.protocol {
            Protocol::Tcp => Self::Tcp(socket.into(), qemu),
            Protocol::Udp => Self::Udp(socket.into(), qemu),
        })
    }

    fn carry(&self) {
        match self {
            Self::Tcp(listener, qemu) => carry_connections(listener, *qemu),
            Self::Udp(socket, qemu) => carry_datagrams(socket, *qemu),
        }
    }
}

fn carry_connections(listener: &TcpListener, qemu: SocketAddr) {
    let open = Arc::new(());
    loop {
        let Ok((outside, _)) = listener.accept() else {
            thread::sleep(PAUSE);
            continue;
        };
        if Arc::strong_count(&open) > MOST_CONNECTIONS {
            continue;
        }
        let one = Arc::clone(&open);
        // A connection for which no thread or no QEMU is available is closed.
        let _ = thread::Builder::new().spawn(move || {
            let _ = carry(&outside, qemu);
            drop(one);
        });
    }
}

/// Forwards a connection until both ends have sent all.
fn carry(outside: &TcpStream, qemu: SocketAddr) -> io::Result<()> {
    let inside = TcpStream::connect(qemu)?;
    // Small writes go on without delay.
    outside.set_nodelay(true)?;
    inside.set_nodelay(true)?;
    thread::scope(|scope| {
        thread::Builder::new().spawn_scoped(scope, || pass_on(outside, &inside))?;
        pass_on(&inside, outside);
        Ok(())
    })
}

/// Forwards until `from` has sent all. An error ends the connection both ways.
fn pass_on(mut from: &TcpStream, mut to: &TcpStream) {
    // Either end may have closed already.
    if io::copy(&mut from, &mut to).is_ok() {
        let _ = to.shutdown(Shutdown::Write);
    } else {
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }
}

/// A client of a UDP port, and the socket that represents it in QEMU's namespace.
type Peer = (SocketAddr, UdpSocket);

fn carry_datagrams(outside: &UdpSocket, qemu: SocketAddr) {
    let mut peers: VecDeque<Peer> = VecDeque::new();
    let mut datagram = vec![0; LONGEST];
    // A datagram that is ready may turn out damaged: then no read must block.
    let _ = outside.set_nonblocking(true);
    loop {
        if carry_ready(outside, &mut peers, qemu, &mut datagram).is_err() {
            thread::sleep(PAUSE);
        }
    }
}

/// Waits for datagrams, and forwards one from each socket that has some. A datagram that cannot be
/// sent is lost, as in a network.
fn carry_ready(
    outside: &UdpSocket,
    peers: &mut VecDeque<Peer>,
    qemu: SocketAddr,
    datagram: &mut [u8],
) -> io::Result<()> {
    let ready = {
        let sockets = iter::once(outside).chain(peers.iter().map(|(_, inside)| inside));
        let mut polled: Vec<PollFd<'_>> = sockets
            .map(|socket| PollFd::new(socket, PollFlags::IN))
            .collect();
        poll(&mut polled, None)?;
        let ready = polled.iter().map(|fd| !fd.revents().is_empty());
        ready.collect::<Vec<bool>>()
    };
    let mut ready = ready.into_iter();
    let asked = ready.next() == Some(true);
    for ((peer, inside), _) in peers.iter().zip(ready).filter(|(_, ready)| *ready) {
        // An error means that nothing listens.
        if let Ok(length) = inside.recv(datagram) {
            let _ = outside.send_to(&datagram[..length], peer);
        }
    }
    if asked {
        let (length, peer) = outside.recv_from(datagram)?;
        let _ = inside_of(peers, peer, qemu)?.send(&datagram[..length]);
    }
    Ok(())
}

fn inside_of(
    peers: &mut VecDeque<Peer>,
    peer: SocketAddr,
    qemu: SocketAddr,
) -> io::Result<&UdpSocket> {
    let known = peers.iter().position(|(known, _)| *known == peer);
    let at = match known {
        Some(at) => at,
        None => {
            let inside = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            inside.connect(qemu)?;
            inside.set_nonblocking(true)?;
            if peers.len() == MOST_PEERS {
                peers.pop_front();
            }
            peers.push_back((peer, inside));
            peers.len() - 1
        }
    };
    Ok(&peers[at].1)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use tare_vmtest::IO_TIMEOUT;

    use super::*;

    const ANY: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

    /// A port that leads to `qemu`. What carries ends with the test.
    fn tcp(qemu: SocketAddr) -> TcpStream {
        let listener = TcpListener::bind(ANY).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || carry_connections(&listener, qemu));
        let client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
        client
    }

    #[test]
    fn a_connection_is_carried_both_ways_and_ended_one_way_at_a_time() {
        let qemu = TcpListener::bind(ANY).unwrap();
        let mut client = tcp(qemu.local_addr().unwrap());
        client.write_all(b"question").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let (mut inside, _) = qemu.accept().unwrap();
        inside.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
        let mut asked = String::new();
        inside.read_to_string(&mut asked).unwrap();
        assert_eq!(asked, "question");
        inside.write_all(b"answer").unwrap();
        drop(inside);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "answer");
    }

    #[test]
    fn a_connection_to_a_port_without_a_listener_is_closed() {
        let free = TcpListener::bind(ANY).unwrap().local_addr().unwrap();
        let mut client = tcp(free);
        let read = client.read(&mut [0]);
        assert!(
            matches!(&read, Ok(0))
                || matches!(&read, Err(e) if e.kind() == io::ErrorKind::ConnectionReset),
            "{read:?}"
        );
    }

    #[test]
    fn each_client_of_a_udp_port_gets_its_own_answers() {
        let (qemu, outside) = (UdpSocket::bind(ANY).unwrap(), UdpSocket::bind(ANY).unwrap());
        qemu.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
        let (to, address) = (qemu.local_addr().unwrap(), outside.local_addr().unwrap());
        thread::spawn(move || carry_datagrams(&outside, to));
        // One more than the limit.
        for name in 0..=MOST_PEERS {
            let client = UdpSocket::bind(ANY).unwrap();
            client.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
            client.connect(address).unwrap();
            for turn in 0..2 {
                let question = format!("{name} {turn}");
                client.send(question.as_bytes()).unwrap();
                let mut datagram = [0; 16];
                let (length, peer) = qemu.recv_from(&mut datagram).unwrap();
                assert_eq!(&datagram[..length], question.as_bytes());
                qemu.send_to(&datagram[..length], peer).unwrap();
                let length = client.recv(&mut datagram).unwrap();
                assert_eq!(&datagram[..length], question.as_bytes());
            }
        }
    }

    #[test]
    fn a_task_is_read_as_it_was_written() {
        let task = Forwarding {
            qemu: Some(7),
            enters: None,
            user: None,
            ports: vec![ForwardedPort {
                protocol: Protocol::Udp,
                socket: 3,
                port: 80,
            }],
        };
        let word = serde_json::to_string(&task).unwrap();
        assert_eq!(read_task::<Forwarding>(Some(word.into())).unwrap(), task);
    }
}
