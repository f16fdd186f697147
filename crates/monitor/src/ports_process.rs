//! The network of a machine in QEMU: a process that is the other end of QEMU's network socket, with the link
//! that a machine of this monitor has in itself: published ports ([`ForwardLink`](crate::link::ForwardLink)) and
//! passt behind its filter, or passt alone. QEMU has no such link, and what parses a guest's frames belongs in a
//! jail.
//!
//! No process collects it. It ends when QEMU's end of the socket closes.

use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::chdir;
use rustix::thread::set_name;
use tare_control::config::{Descriptor, NetBackend, PortsConfig};
use tare_control::exit::ExitCode;
use tare_control::sentence::chain;
use tare_daemon::jail;
use tare_devices::blk::{Clock as _, MonotonicClock};
use tare_devices::net::{Link, LinkError, RxOffload};

use crate::complaint::complain;
use crate::confine::{ConfineError, Files, OnViolation, confine, install_violation_handler};
use crate::heap;
use crate::inherit::{InheritError, Inherited};
use crate::link::{OpenLinkError, StreamLink, forward, stream};
use crate::poll::{Interest, Poll, Wait};
use crate::run::role_of_io;

/// The process's name: who looks for what works for a machine finds it.
const NAME: &CStr = c"tare-ports";
/// Longest frame that is looked at; a longer one ends the network.
const LONGEST_FRAME: usize = 65_550;
/// Tokens.
const GUEST: u64 = 0;
const NETWORK: u64 = 1;

/// Why a machine has no network.
#[derive(Debug, thiserror::Error)]
enum PortsError {
    #[error("the configuration of QEMU's network is not valid JSON for this version")]
    Parse,
    #[error("the configuration is wrong: QEMU serves a tap itself")]
    Tap,
    #[error(transparent)]
    Inherit(#[from] InheritError),
    #[error(transparent)]
    Open(#[from] OpenLinkError),
    #[error("the process of QEMU's network could not enter its jail")]
    Jail(#[from] jail::JailError),
    #[error("the process of QEMU's network could not confine itself")]
    Confine(#[from] ConfineError),
    #[error("the process of QEMU's network failed")]
    Io(#[from] io::Error),
    #[error("the network is down")]
    Link(#[from] LinkError),
}

/// Serves the network that such a command line describes, until the machine ends; `None` for any other.
pub fn from_args(mut args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if args.next()? != OsStr::new(PortsConfig::OPTION) {
        return None;
    }
    heap::share();
    Some(match serve(args.next()) {
        Ok(()) => ExitCode::Success,
        Err(error) => {
            complain(chain(&error));
            ExitCode::Passt
        }
    })
}

fn serve(word: Option<OsString>) -> Result<(), PortsError> {
    // Before any descriptor is opened.
    let mut inherited = Inherited::all()?;
    let config = word
        .and_then(|word| word.into_string().ok())
        .and_then(|text| serde_json::from_str::<PortsConfig>(&text).ok())
        .ok_or(PortsError::Parse)?;
    set_name(NAME).map_err(io::Error::from)?;
    chdir("/").map_err(io::Error::from)?;
    let mut take = |fd: Descriptor| -> Result<OwnedFd, InheritError> { inherited.take(fd) };
    match &config.net.backend {
        NetBackend::Forward(ports) => {
            let network = forward(&config.net, ports, &mut take)?;
            serve_with(network, &config, inherited)
        }
        NetBackend::Stream(passt) => {
            let network = stream(&config.net, passt, take(passt.fd)?)?;
            serve_with(network, &config, inherited)
        }
        NetBackend::Tap { .. } => Err(PortsError::Tap),
    }
}

/// Serves this network from within the jail.
fn serve_with(
    network: impl Link + AsFd,
    config: &PortsConfig,
    mut inherited: Inherited,
) -> Result<(), PortsError> {
    let guest = StreamLink::to_guest(inherited.take(config.guest)?, LONGEST_FRAME)?;
    if let Some(claim) = config.jail.user.and_then(|user| user.claim) {
        // The user belongs to this process as long as it lives.
        std::mem::forget(inherited.take(claim)?);
    }
    inherited.close_rest();
    let mut bridge = Bridge::new(guest, network)?;
    install_violation_handler(OnViolation {
        program: "tare-monitor",
        restore: || {},
    })
    .map_err(io::Error::from)?;
    jail::enter(&config.jail)?;
    confine(role_of_io(Some(&config.net)), Files::none()?)?;
    bridge.run()
}

/// The two ends, and what is waited for.
struct Bridge<N> {
    guest: StreamLink,
    network: N,
    poll: Poll,
    /// What the ends are watched for.
    guest_watched: Interest,
    network_watched: Interest,
}

/// Whether all frames of one end were taken by the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passed {
    All,
    /// The other end has no room.
    Some,
}

/// The same of both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BothPassed {
    to_network: Passed,
    to_guest: Passed,
}

impl<N: Link + AsFd> Bridge<N> {
    fn new(guest: StreamLink, network: N) -> io::Result<Self> {
        Ok(Self {
            guest,
            network,
            poll: Poll::new()?,
            guest_watched: Interest::default(),
            network_watched: Interest::default(),
        })
    }

    /// Passes frames on, until the guest's end closes.
    fn run(&mut self) -> Result<(), PortsError> {
        // QEMU does not say when its guest's driver begins; frames before that are lost as on a wire.
        self.network.set_offload(RxOffload::default())?;
        let mut ready = Vec::new();
        loop {
            let passed = match self.pass_both_ways() {
                Err(LinkError::Closed) => return Ok(()),
                passed => passed?,
            };
            self.watch(passed)?;
            self.poll.wait(&mut ready, self.wait())?;
            if ready.contains(&NETWORK) {
                self.network.ready();
            }
        }
    }

    /// Whether each end took all frames of the other. `Closed` is the guest's end, or that of a passt without ports
    /// beside it, which has said so.
    fn pass_both_ways(&mut self) -> Result<BothPassed, LinkError> {
        let to_network = pass(&mut self.guest, &mut self.network)?;
        self.network.flush()?;
        let to_guest = pass(&mut self.network, &mut self.guest)?;
        self.guest.flush()?;
        Ok(BothPassed {
            to_network,
            to_guest,
        })
    }

    /// An end that had no room for the other's frames is watched for that, also if all that it had has gone since,
    /// and the other one not for more.
    fn watch(&mut self, passed: BothPassed) -> io::Result<()> {
        let guest = Interest {
            readable: passed.to_network == Passed::All,
            writable: passed.to_guest == Passed::Some || self.guest.has_unsent(),
        };
        let network = if self.network.is_set() {
            Interest::READ
        } else {
            Interest {
                readable: passed.to_guest == Passed::All,
                writable: passed.to_network == Passed::Some || self.network.has_unsent(),
            }
        };
        let old = std::mem::replace(&mut self.guest_watched, guest);
        self.poll.change(self.guest.as_fd(), GUEST, old, guest)?;
        let old = std::mem::replace(&mut self.network_watched, network);
        self.poll
            .change(self.network.as_fd(), NETWORK, old, network)
    }

    fn wait(&self) -> Wait {
        match self.network.deadline_ns() {
            Some(deadline) => {
                Wait::Nanoseconds(deadline.saturating_sub(MonotonicClock.now_ns()).max(1))
            }
            None => Wait::Forever,
        }
    }
}

/// Gives one end the frames of the other, as far as it has room. A longer frame than it takes is dropped.
fn pass(from: &mut impl Link, to: &mut impl Link) -> Result<Passed, LinkError> {
    let longest = to.features().max_frame;
    while let Some(frame) = from.peek()? {
        if frame.bytes.len() <= longest {
            let Some(room) = to.reserve(frame.bytes.len())? else {
                return Ok(Passed::Some);
            };
            room.copy_from_slice(frame.bytes);
            to.commit(&frame.header)?;
        }
        from.consume();
    }
    Ok(Passed::All)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::fd::BorrowedFd;
    use std::os::unix::net::UnixStream;
    use std::thread;

    use tare_control::config::{Descriptor, ForwardConfig, ForwardedPort, NetConfig, Protocol};
    use tare_devices::net::{LinkFeatures, NetHeader, RxFrame};
    use tare_frames::Rules;
    use tare_vmtest::IO_TIMEOUT;

    use super::*;
    use crate::link::ForwardLink;

    const GUEST: [u8; 4] = [10, 0, 2, 15];
    const GATEWAY: [u8; 4] = [10, 0, 2, 2];

    /// A network with port 80 of the guest at `listener`.
    fn network(listener: TcpListener) -> ForwardLink {
        listener.set_nonblocking(true).unwrap();
        let ports = ForwardConfig {
            ports: vec![ForwardedPort {
                fd: Descriptor(0),
                protocol: Protocol::Tcp,
                guest: 80,
                all_addresses: false,
            }],
            gateway_mac: [2, 0, 0, 0, 0, 2],
            guest: GUEST.into(),
            gateway: GATEWAY.into(),
            v6: None,
            passt: None,
        };
        let config = NetConfig {
            mac: [2, 0, 0, 0, 0, 15],
            mtu: 1500,
            frames_per_s: 0,
            bytes_per_s: 0,
            backend: NetBackend::Forward(ports.clone()),
        };
        let mut listener = Some(listener.into());
        forward(&config, &ports, &mut |fd| {
            listener.take().ok_or(InheritError::NotInherited(fd.0))
        })
        .unwrap()
    }

    fn read_frame(from: &mut UnixStream) -> Vec<u8> {
        let mut prefix = [0; 4];
        from.read_exact(&mut prefix).unwrap();
        let mut frame = vec![0; u32::from_be_bytes(prefix) as usize];
        from.read_exact(&mut frame).unwrap();
        frame
    }

    fn write_frame(to: &mut UnixStream, frame: &[u8]) {
        to.write_all(&(frame.len() as u32).to_be_bytes()).unwrap();
        to.write_all(frame).unwrap();
    }

    #[test]
    fn frames_pass_both_ways_until_qemu_ends() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let network = network(listener);
        let (mut qemu, ours) = UnixStream::pair().unwrap();
        qemu.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
        let guest = StreamLink::to_guest(ours.into(), LONGEST_FRAME).unwrap();
        let bridge = thread::spawn(move || Bridge::new(guest, network).unwrap().run());
        let _client = TcpStream::connect(address).unwrap();
        let syn = read_frame(&mut qemu);
        assert_eq!(syn[23], 6);
        assert_eq!(syn[30..34], GUEST);
        assert_eq!((syn[36..38].to_vec(), syn[47]), (vec![0, 80], 2));
        // Longer than the network's frames: dropped, and what follows is answered.
        write_frame(&mut qemu, &[7; 2000]);
        write_frame(&mut qemu, &question(GATEWAY));
        let answer = read_frame(&mut qemu);
        assert_eq!(answer[12..14], [8, 6]);
        assert_eq!(answer[28..32], GATEWAY);
        drop(qemu);
        bridge.join().unwrap().unwrap();
    }

    /// An ARP request for `target`.
    fn question(target: [u8; 4]) -> Vec<u8> {
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, 15, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        frame.extend([2, 0, 0, 0, 0, 15]);
        frame.extend(GUEST);
        frame.extend([0; 6]);
        frame.extend(target);
        frame
    }

    /// The far end of a link, and its near one.
    fn socket() -> (UnixStream, UnixStream) {
        let (far, near) = UnixStream::pair().unwrap();
        far.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
        (far, near)
    }

    #[test]
    fn passt_alone_gets_what_its_filter_lets_pass_until_either_end_closes() {
        let (loopback, gateway) = (question([127, 0, 0, 1]), question(GATEWAY));
        for passt_ends in [false, true] {
            let ((mut qemu, to_qemu), (mut passt, to_passt)) = (socket(), socket());
            let guest = StreamLink::to_guest(to_qemu.into(), LONGEST_FRAME).unwrap();
            let network = StreamLink::new(to_passt.into(), 1514, Rules::default()).unwrap();
            let bridge = thread::spawn(move || Bridge::new(guest, network).unwrap().run());
            write_frame(&mut qemu, &loopback);
            // Longer than the network's frames.
            write_frame(&mut qemu, &[7; 2000]);
            write_frame(&mut qemu, &gateway);
            assert_eq!(read_frame(&mut passt), gateway);
            write_frame(&mut passt, &loopback);
            assert_eq!(read_frame(&mut qemu), loopback, "what comes in passes");
            let (ends, sees) = if passt_ends {
                (passt, &mut qemu)
            } else {
                (qemu, &mut passt)
            };
            drop(ends);
            assert_eq!(sees.read(&mut [0]).unwrap(), 0);
            bridge.join().unwrap().unwrap();
        }
    }

    /// A link that refuses every second time, and has nothing unsent then.
    struct Refusing {
        link: StreamLink,
        refuses: bool,
    }

    impl AsFd for Refusing {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.link.as_fd()
        }
    }

    impl Link for Refusing {
        fn features(&self) -> LinkFeatures {
            self.link.features()
        }

        fn peek(&mut self) -> Result<Option<RxFrame<'_>>, LinkError> {
            self.link.peek()
        }

        fn consume(&mut self) {
            self.link.consume();
        }

        fn reserve(&mut self, len: usize) -> Result<Option<&mut [u8]>, LinkError> {
            self.refuses = !self.refuses;
            if self.refuses {
                return Ok(None);
            }
            self.link.reserve(len)
        }

        fn commit(&mut self, header: &NetHeader) -> Result<(), LinkError> {
            self.link.commit(header)
        }

        fn flush(&mut self) -> Result<(), LinkError> {
            self.link.flush()
        }

        fn has_unsent(&self) -> bool {
            self.link.has_unsent()
        }
    }

    #[test]
    fn a_frame_that_was_refused_needs_no_other_to_go() {
        let ((mut qemu, to_qemu), (mut passt, to_passt)) = (socket(), socket());
        let guest = StreamLink::to_guest(to_qemu.into(), LONGEST_FRAME).unwrap();
        let network = Refusing {
            link: StreamLink::new(to_passt.into(), 1514, Rules::default()).unwrap(),
            refuses: false,
        };
        let bridge = thread::spawn(move || Bridge::new(guest, network).unwrap().run());
        let frames = [question(GATEWAY), question([10, 0, 2, 3])];
        for frame in &frames {
            write_frame(&mut qemu, frame);
        }
        for frame in &frames {
            assert_eq!(read_frame(&mut passt), *frame);
        }
        drop(qemu);
        bridge.join().unwrap().unwrap();
    }

    #[test]
    fn a_frame_that_qemu_never_sends_ends_the_network() {
        let network = network(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let (mut qemu, ours) = UnixStream::pair().unwrap();
        let guest = StreamLink::to_guest(ours.into(), LONGEST_FRAME).unwrap();
        qemu.write_all(&u32::MAX.to_be_bytes()).unwrap();
        let ended = Bridge::new(guest, network).unwrap().run();
        assert!(matches!(ended, Err(PortsError::Link(_))), "{ended:?}");
    }
}
