//! QEMU in the jail of `tare run`'s machines (ADR 43) for guests that are not such machines: the kernel
//! that `tare tailor` proves, the application that `tare profile --in-guest` observes (ADR 55).
//!
//! Such a guest has no name, run directory or control socket, and ends with the thread that started
//! it. Its network leads only from ports of this host into the guest: QEMU's user network is
//! restricted, and listens in a separate namespace, into which a process without privileges
//! forwards connections (`forward`).
//!
//! Without the capabilities for that it is done by way of a user namespace.
//!
//! Limits: where the kernel grants no namespaces QEMU keeps the host's; its restriction is what
//! holds the guest then, and [`RunningGuest::warning`] says so.

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::net::getsockname;
use rustix::process::Signal;
use tare_control::config::JailUser;
use tare_daemon::jail::Emptied;
use tare_host::child::{apart_from_terminal, ended_within, keeps_only};
use tare_host::process::{ProcessHandle, inside_of, start_time};
use tare_qemu::{Accelerator, CommandLine, GuestSystem, HostForward, MachineType};

use crate::confined::{self, Jailed};
use crate::forward::{self, ForwardedPort, Forwarding};
use crate::hold::Hold;
use crate::ports;
use crate::publish::{Protocol, Publish};
use crate::qemu::draft::Draft;
use crate::user::{self, MachineUser, UserChoice};

/// For a guest with ports that only QEMU restricts.
const SHARED: &str = "this host grants QEMU no namespaces: the guest reaches nothing, \
    and its QEMU is held by a system call filter only (docs/security.md)";

/// How long a killed QEMU may take to let go of its memory.
const END_LIMIT: Duration = Duration::from_secs(2);

/// A guest that is to be started.
#[derive(Debug)]
pub struct JailedGuest {
    draft: Draft,
    user: Option<MachineUser>,
    accelerator: Accelerator,
    ports: Vec<BoundPort>,
}

/// A port of this host that leads to a guest's.
#[derive(Debug)]
struct BoundPort {
    protocol: Protocol,
    socket: OwnedFd,
    /// Where QEMU listens.
    qemus: u16,
}

/// A port of this host that cannot be published.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {address} ({protocol})")]
struct PortError {
    address: SocketAddr,
    protocol: Protocol,
    source: io::Error,
}

impl JailedGuest {
    /// A guest of `cpus` vCPUs, in QEMU's sandbox. Root's QEMU becomes a separate user.
    pub fn new(
        machine_type: MachineType,
        accelerator: Accelerator,
        guest: GuestSystem,
        cpus: u8,
    ) -> io::Result<Self> {
        let mut line = CommandLine::new(machine_type, accelerator, guest, cpus);
        line.sandbox();
        Ok(Self {
            draft: Draft::of(line, 0),
            user: user::choose(UserChoice::Auto).map_err(io::Error::other)?,
            accelerator,
            ports: Vec::new(),
        })
    }

    /// QEMU's command line, which must not contain a path of this host.
    pub fn line(&mut self) -> &mut CommandLine {
        &mut self.draft.line
    }

    /// A path at which QEMU opens a file for reading. Keep the file open until the start.
    pub fn readable(&mut self, file: &File) -> io::Result<PathBuf> {
        self.draft.readable(file, self.user.as_ref())
    }

    /// A path at which QEMU uses an open file as it is.
    pub fn handed_path(&mut self, file: &File) -> io::Result<String> {
        self.draft.set(&[file])
    }

    /// A path at which QEMU reads and writes a disk, which is open for both.
    pub fn disk(&mut self, file: &File) -> io::Result<String> {
        self.draft.disk(file)
    }

    /// The number of a descriptor that QEMU inherits. Keep it open until the start.
    pub fn hand(&mut self, fd: &impl AsFd) -> io::Result<RawFd> {
        self.draft.hand(fd)
    }

    /// Adds a network card, and ports of this host that lead to the guest's; returns their numbers
    /// here. The guest cannot connect anywhere.
    pub fn publish(&mut self, ports: &[Publish]) -> io::Result<Vec<u16>> {
        let mut numbers = Vec::new();
        let mut forwards = Vec::new();
        // Open until all are chosen, so that no two are the same.
        let mut free = Vec::new();
        for port in ports {
            let (socket, number) = listen(port.protocol, (port.address, port.host).into())
                .map_err(io::Error::other)?;
            let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let (chosen, qemus) = listen(port.protocol, any).map_err(io::Error::other)?;
            free.push(chosen);
            numbers.push(number);
            forwards.push(HostForward {
                protocol: port.protocol.name(),
                ..HostForward::loopback(qemus, port.guest)
            });
            self.ports.push(BoundPort {
                protocol: port.protocol,
                socket,
                qemus,
            });
        }
        self.draft.line.user_network(&forwards, true);
        Ok(numbers)
    }

    /// Starts QEMU with the standard streams that `streams` sets, and the guest once the jail is
    /// complete. `tare` is the program that confines: it calls [`confined::become_program`]. Ctrl-C
    /// on a terminal does not reach QEMU.
    pub fn start(
        self,
        tare: &Path,
        program: &Path,
        streams: impl FnOnce(&mut Command),
    ) -> io::Result<RunningGuest> {
        let Self {
            draft,
            user,
            accelerator,
            ports,
        } = self;
        let mut jailed = Jailed::qemu(program, accelerator, user.as_ref())?;
        if !ports.is_empty() {
            jailed = jailed.that_listens();
        }
        let mut command = confined::command(tare, &jailed)?;
        draft.line.apply(&mut command);
        streams(&mut command);
        apart_from_terminal(&mut command);
        let (hold, qemus_end) = Hold::of(&mut command)?;
        // Inherits nothing of another guest, which another thread may be starting.
        let mut inherited = draft.numbers;
        inherited.push(qemus_end.as_raw_fd());
        let carrier = user.as_ref().map(|user| JailUser {
            uid: user.passt.0,
            gid: user.passt.1,
            claim: None,
        });
        let mut running = RunningGuest {
            qemu: keeps_only(&mut command, inherited).spawn()?,
            forwarder: None,
            shares_network: false,
            _user: user,
            _thread: PhantomData,
        };
        drop(qemus_end);
        hold.release(|| {
            let qemu = running.qemu.id();
            let emptied = confined::empty_root_of(tare, &jailed, qemu)?;
            if !ports.is_empty() {
                running.shares_network = emptied == Emptied::NoRoot;
                let enters = jailed.enters();
                let task = Forwarding {
                    qemu: jailed.jail.namespaces.then_some(qemu),
                    // QEMU's user is the only one in its own user namespace.
                    user: if enters.is_some() { None } else { carrier },
                    enters,
                    ports: ports.iter().map(BoundPort::forwarded).collect(),
                };
                running.forwarder = Some(forward::command(tare, &task)?.spawn()?);
            }
            Ok(())
        })?;
        Ok(running)
    }
}

impl BoundPort {
    fn forwarded(&self) -> ForwardedPort {
        ForwardedPort {
            protocol: self.protocol,
            socket: self.socket.as_raw_fd(),
            port: self.qemus,
        }
    }
}

/// A socket that listens at an address, and its port.
fn listen(protocol: Protocol, address: SocketAddr) -> Result<(OwnedFd, u16), PortError> {
    let bound = || {
        let socket = ports::bound(address, protocol)?;
        let port = SocketAddr::try_from(getsockname(&socket)?)?.port();
        Ok((socket, port))
    };
    bound().map_err(|source| PortError {
        address,
        protocol,
        source,
    })
}

/// A running guest. It ends when this value is dropped, and with the thread that started it.
#[derive(Debug)]
pub struct RunningGuest {
    qemu: Child,
    forwarder: Option<Child>,
    /// Whether it has ports and QEMU uses this host's network namespace.
    shares_network: bool,
    /// Reserved for this machine as long as QEMU runs.
    _user: Option<MachineUser>,
    /// The parent's death is that of the thread which started it (`prctl(2)`).
    _thread: PhantomData<*const ()>,
}

impl RunningGuest {
    /// QEMU's process, a child of the one that was started where it has a PID namespace.
    pub fn id(&self) -> u32 {
        inside_of(self.qemu.id())
    }

    /// A warning about a weaker jail, if there is one.
    pub const fn warning(&self) -> Option<&'static str> {
        if self.shares_network {
            Some(SHARED)
        } else {
            None
        }
    }

    /// How QEMU ended, if it has.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.qemu.try_wait()
    }
}

impl Drop for RunningGuest {
    fn drop(&mut self) {
        // What was started ends once it has collected QEMU, which has let go of its files by then.
        let (started, qemu) = (self.qemu.id(), self.id());
        let inside = (qemu != started)
            .then(|| ProcessHandle::open(qemu, start_time(qemu)?))
            .flatten();
        if let Some(inside) = inside {
            let _ = inside.signal(Signal::KILL);
            ended_within(&mut self.qemu, END_LIMIT);
        }
        for child in self.forwarder.iter_mut().chain([&mut self.qemu]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_guest_reaches_nothing_from_its_card_and_listens_in_its_own_namespace() {
        let mut guest =
            JailedGuest::new(MachineType::Q35, Accelerator::Tcg, GuestSystem::Linux, 1).unwrap();
        let ports = ["127.0.0.1:1:80", "127.0.0.1:1:53/udp"].map(|text| Publish {
            host: 0,
            ..text.parse().unwrap()
        });
        let numbers = guest.publish(&ports).unwrap();
        assert!(numbers.iter().all(|port| *port != 0));
        let line: Vec<_> = guest
            .draft
            .line
            .args()
            .iter()
            .filter_map(|it| it.to_str())
            .collect();
        let network = line.iter().find(|it| it.starts_with("user,")).unwrap();
        let [tcp, udp] = &guest.ports[..] else {
            panic!()
        };
        let (tcp, udp) = (tcp.qemus, udp.qemus);
        assert_eq!(
            *network,
            format!(
                "user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{tcp}-:80,\
                 hostfwd=udp:127.0.0.1:{udp}-:53"
            )
        );
        assert!(line.contains(&"-sandbox"));
        assert!(!numbers.contains(&tcp), "what is published leads there");
    }

    #[test]
    fn a_port_that_is_taken_is_named() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = taken.local_addr().unwrap();
        let mut guest =
            JailedGuest::new(MachineType::Q35, Accelerator::Tcg, GuestSystem::Linux, 1).unwrap();
        let port = format!("{address}:80").parse().unwrap();
        let error = guest.publish(&[port]).unwrap_err();
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}
