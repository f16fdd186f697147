//! User-mode networking: passt on one end of a socket pair.
//!
//! It is started with the machine, or by the first frame that it is for, where it forwards no
//! port ([`tare_passt`]). Started as root it switches to its own user.
//!
//! Two things that passt does not do by itself:
//! - It learns the guest's hardware address from the frames that it receives, and sends to
//!   00:00:00:00:00:00 until then; a connection that arrives before the guest has sent a frame
//!   would be lost. So an ARP request in the guest's name waits in the socket when passt starts
//!   with the machine.
//! - It takes its addresses from the interface with the default route, and refuses to start
//!   without one. There, `-i lo` with a hardware address works.
//!
//! passt connects a guest to whatever address it names, and takes the gateway's for the host's loopback. What
//! the guest may not reach, the gateway too, is dropped before passt sees it (`tare_frames::Filter`, in the
//! monitor). `--no-map-gw` closes the gateway once more, but where a UDP port is published at an IPv4 address:
//! passt shows the guest a client on the host's loopback as the gateway, and by that option would not send the
//! answers back.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{self, Path, PathBuf};

use tare_control::config::{Descriptor, JailUser, PasstStart};
use tare_control::exit::ExitCode;
use tare_host::program::find_program;
use tare_passt::waiter::{self, Task};
use tare_passt::{Invocation, PasstError, Starting};

use crate::arp;
use crate::failure::Explain;
use crate::publish::{Protocol, Publish};
use crate::user::MachineUser;

/// Address of the guest, and the one that `ip=` gives it.
pub(crate) const GUEST: [u8; 4] = [10, 0, 2, 15];
/// Address of passt, the guest's gateway.
pub(crate) const GATEWAY: [u8; 4] = [10, 0, 2, 2];
/// Bits of the network.
pub(crate) const PREFIX: u8 = 24;
/// The guest's IPv6 address where a port is published at one (a network by RFC 4193).
pub(crate) const GUEST_V6: Ipv6Addr = Ipv6Addr::new(0xfd74, 0x6172, 0x6500, 0, 0, 0, 0, 0x15);
/// Address of passt in that network.
pub(crate) const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfd74, 0x6172, 0x6500, 0, 0, 0, 0, 2);
/// Bits of that network.
pub(crate) const PREFIX_V6: u8 = 64;
/// Largest IP packet in bytes.
pub(crate) const MTU: u16 = 1500;
/// The gateway's hardware address where no interface provides one, or the monitor has it too.
pub(crate) const GATEWAY_MAC: [u8; 6] = [0x52, 0x55, 0x0a, 0, 2, 2];

impl Explain for PasstError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Refused(message) if message.contains("bind") => ExitCode::PortInUse,
            _ => ExitCode::Passt,
        }
    }

    fn hint(&self) -> Option<String> {
        matches!(self, Self::Missing).then(|| {
            "install it (Debian: passt), or use --net none, --net tap=NAME, or for published \
             ports alone --net user,outbound=off"
                .to_owned()
        })
    }
}

/// passt, started or not.
#[derive(Debug)]
pub(crate) struct Passt {
    /// The machine's end: frames with a length before each.
    ours: OwnedFd,
    /// When it starts.
    start: PasstStart,
    /// One that may not be ready yet.
    begun: Option<Begun>,
}

/// A started passt. Its end of the socket pair stays open here until it is ready, so that a machine
/// that was started meanwhile sees no closed socket when passt is tried again.
#[derive(Debug)]
struct Begun {
    invocation: Invocation,
    starting: Starting,
    _theirs: OwnedFd,
    _user: Option<PasstUser>,
}

/// The user that passt becomes.
#[derive(Debug)]
pub(crate) struct PasstUser {
    /// User ID.
    pub(crate) uid: u32,
    /// Group ID.
    pub(crate) gid: u32,
    /// Reserves the user, also while passt outlives its machine.
    pub(crate) claim: Option<OwnedFd>,
}

impl PasstUser {
    /// The user of that machine's passt.
    pub(crate) fn of(user: &MachineUser) -> io::Result<Self> {
        let (uid, gid) = user.passt;
        let claim = user.claim.as_ref().map(OwnedFd::try_clone).transpose()?;
        Ok(Self { uid, gid, claim })
    }

    /// The same for a program that inherits the claim under its number.
    pub(crate) fn jail_user(&self) -> JailUser {
        JailUser {
            uid: self.uid,
            gid: self.gid,
            claim: self.claim.as_ref().map(|lock| Descriptor(lock.as_raw_fd())),
        }
    }
}

/// What kind of network it provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    /// Whether the guest has IPv6.
    pub(crate) has_ipv6: bool,
    /// The gateway's hardware address.
    pub(crate) beside: Hardware,
}

/// The gateway's hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hardware {
    /// passt's own.
    Own,
    /// [`GATEWAY_MAC`], which the monitor has too.
    Shared,
}

/// The interface whose addresses passt uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Template {
    DefaultRoute,
    Loopback,
}

/// A passt for a guest.
#[derive(Debug)]
pub(crate) struct PasstChoice<'a> {
    /// The ports that it forwards.
    pub(crate) forwards: &'a [Publish],
    /// What it provides.
    pub(crate) network: Network,
    /// The user that it becomes; without one, root's passt becomes `nobody`.
    pub(crate) user: Option<PasstUser>,
}

impl PasstChoice<'_> {
    /// Starts it for a guest with that hardware address; [`Passt::wait_ready`]
    /// waits for it, so that other work can be done in between.
    pub(crate) fn start(self, mac: [u8; 6]) -> Result<Passt, PasstError> {
        let program = find()?;
        let (mut ours, theirs) = UnixStream::pair().map_err(PasstError::Start)?;
        ours.write_all(&arp::announcement(mac, GUEST, GATEWAY))
            .map_err(PasstError::Start)?;
        let user = self.user.as_ref();
        let runas = user.map(|user| format!("--runas={}:{}", user.uid, user.gid));
        let invocation = self.invocation(program, &theirs, runas);
        Ok(Passt {
            ours: ours.into(),
            start: PasstStart::Started,
            begun: Some(Begun {
                starting: invocation.begin()?,
                invocation,
                _theirs: theirs.into(),
                _user: self.user,
            }),
        })
    }

    /// Lets a process wait that starts it when the guest's first frame for it is in the socket. Its output
    /// goes into `log` then. `monitor` is the waiter's program.
    ///
    /// A waiter is passt's user already. Where passt is a program that only root reaches, it is started
    /// at once.
    pub(crate) fn wait(
        self,
        mac: [u8; 6],
        monitor: &Path,
        log: impl FnOnce() -> io::Result<File>,
    ) -> Result<Passt, PasstError> {
        let program = find()?;
        if self.user.is_some() && !is_open_to_all(&program) {
            return self.start(mac);
        }
        let (ours, theirs) = UnixStream::pair().map_err(PasstError::Start)?;
        let task = Task {
            passt: self.invocation(program, &theirs, None),
            user: self.user.as_ref().map(PasstUser::jail_user),
        };
        log()
            .and_then(|log| waiter::start(monitor, &task, log))
            .map_err(PasstError::Start)?;
        Ok(Passt {
            ours: ours.into(),
            start: PasstStart::WhenNeeded,
            begun: None,
        })
    }

    fn invocation(
        &self,
        program: PathBuf,
        theirs: &UnixStream,
        runas: Option<String>,
    ) -> Invocation {
        let claim = self.user.as_ref().and_then(|user| user.claim.as_ref());
        let arguments = |template| {
            let mut all = arguments(self.forwards, self.network, template);
            all.extend(runas.clone());
            all
        };
        let [first, second] = if has_default_route() {
            [Template::DefaultRoute, Template::Loopback]
        } else {
            [Template::Loopback, Template::DefaultRoute]
        };
        Invocation {
            program,
            socket: theirs.as_raw_fd(),
            kept: claim.map(AsRawFd::as_raw_fd).into_iter().collect(),
            first: arguments(first),
            second: arguments(second),
        }
    }
}

/// passt's program.
fn find() -> Result<PathBuf, PasstError> {
    let program = find_program("passt").map_err(|_| PasstError::Missing)?;
    // A waiter has another working directory.
    path::absolute(program).map_err(PasstError::Start)
}

/// Whether users other than root can execute a program at that path.
fn is_open_to_all(program: &Path) -> bool {
    program
        .ancestors()
        .all(|path| fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o001 != 0))
}

impl Passt {
    /// The machine's end of the socket pair.
    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.ours
    }

    /// Whether it is started by the guest's first frame for it.
    pub(crate) fn start(&self) -> PasstStart {
        self.start
    }

    /// Waits until passt has bound its ports, unless it is started later; returns its output for the run
    /// directory. From then on only passt has its end of the pair.
    pub(crate) fn wait_ready(&mut self) -> Result<String, PasstError> {
        match self.begun.take() {
            Some(begun) => begun.invocation.finish(begun.starting),
            None => Ok(String::new()),
        }
    }
}

/// Whether a port is published at an IPv6 address. Otherwise the guest has no IPv6, since an unused
/// network only wakes it.
pub(crate) fn uses_ipv6(forwards: &[Publish]) -> bool {
    forwards.iter().any(|forward| forward.address.is_ipv6())
}

fn arguments(forwards: &[Publish], network: Network, template: Template) -> Vec<String> {
    let ip = |address: [u8; 4]| std::net::Ipv4Addr::from(address).to_string();
    let mut arguments = if network.has_ipv6 {
        vec![
            "--address".to_owned(),
            GUEST_V6.to_string(),
            "--gateway".to_owned(),
            GATEWAY_V6.to_string(),
        ]
    } else {
        vec!["--ipv4-only".to_owned()]
    };
    if !forwards.iter().any(answers_by_gateway) {
        arguments.push("--no-map-gw".to_owned());
    }
    arguments.extend([
        "--quiet".to_owned(),
        "--address".to_owned(),
        ip(GUEST),
        "--netmask".to_owned(),
        PREFIX.to_string(),
        "--gateway".to_owned(),
        ip(GATEWAY),
        // The guest's resolver: passt asks the host's, which may be a service on its loopback.
        "--dns-forward".to_owned(),
        ip(GATEWAY),
        "--mtu".to_owned(),
        MTU.to_string(),
    ]);
    if template == Template::Loopback {
        arguments.extend(["--interface", "lo"].map(str::to_owned));
    }
    if template == Template::Loopback || network.beside == Hardware::Shared {
        let mac = GATEWAY_MAC.map(|byte| format!("{byte:02x}")).join(":");
        arguments.extend(["--mac-addr".to_owned(), mac]);
    }
    for forward in forwards {
        let option = match forward.protocol {
            Protocol::Tcp => "--tcp-ports",
            Protocol::Udp => "--udp-ports",
        };
        arguments.push(option.to_owned());
        arguments.push(format!(
            "{}/{}:{}",
            forward.address, forward.host, forward.guest
        ));
    }
    arguments
}

/// Whether a client of that port may be the gateway for the guest, and only passt knows which client.
fn answers_by_gateway(forward: &Publish) -> bool {
    forward.protocol == Protocol::Udp && forward.address.is_ipv4()
}

fn has_default_route() -> bool {
    fs::read_to_string("/proc/net/route").is_ok_and(|table| lists_default_route(&table))
}

/// Columns: interface, destination, gateway, flags, three counters, mask.
fn lists_default_route(table: &str) -> bool {
    table.lines().skip(1).any(|line| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        columns.get(1) == Some(&"00000000") && columns.get(7) == Some(&"00000000")
    })
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, UdpSocket};

    use rustix::event::{PollFd, PollFlags, poll};
    use tare_devices::net::{Link as _, NetHeader};
    use tare_monitor::link::StreamLink;

    use super::*;

    const LONGEST_FRAME: usize = 14 + MTU as usize;

    /// The link to passt that a machine has, once passt is ready.
    fn link(passt: &mut Passt, filter: tare_frames::Rules) -> StreamLink {
        let socket = passt.socket().try_clone().expect("a copy");
        passt.wait_ready().expect("passt is ready");
        StreamLink::new(socket, LONGEST_FRAME, filter).expect("a link")
    }

    fn send(link: &mut StreamLink, frame: &[u8]) {
        let room = link.reserve(frame.len()).expect("a passt").expect("room");
        room.copy_from_slice(frame);
        link.commit(&NetHeader::default()).expect("a passt");
        link.flush().expect("a passt");
    }

    fn of(forwards: &[Publish]) -> Network {
        Network {
            has_ipv6: uses_ipv6(forwards),
            beside: Hardware::Own,
        }
    }

    fn choice(forwards: &[Publish]) -> PasstChoice<'_> {
        PasstChoice {
            forwards,
            network: of(forwards),
            user: None,
        }
    }

    #[test]
    fn a_program_in_a_closed_directory_is_not_open_to_all() {
        let place = tempfile::tempdir().expect("a directory");
        let program = place.path().join("passt");
        fs::write(&program, "").expect("a file");
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
        };
        mode(&program, 0o755);
        mode(place.path(), 0o700);
        assert!(!is_open_to_all(&program));
        mode(place.path(), 0o755);
        assert!(is_open_to_all(&program));
        mode(&program, 0o700);
        assert!(!is_open_to_all(&program));
    }

    #[test]
    fn forwards_name_address_and_both_ports() {
        let forwards =
            ["18080:80", "0.0.0.0:53:5353/udp"].map(|text| text.parse().expect("a forward"));
        let arguments = arguments(&forwards, of(&forwards), Template::DefaultRoute).join(" ");
        assert!(
            arguments.ends_with("--tcp-ports 127.0.0.1/18080:80 --udp-ports 0.0.0.0/53:5353"),
            "{arguments}"
        );
        assert!(!arguments.contains("--interface"), "{arguments}");
        assert!(arguments.contains("--ipv4-only"), "{arguments}");
    }

    #[test]
    fn the_gateway_stands_for_the_host_only_where_a_udp_port_needs_it() {
        for (published, stands) in [
            ("18080:80", false),
            ("5353:53/udp", true),
            ("0.0.0.0:5353:53/udp", true),
            ("[::1]:5353:53/udp", false),
        ] {
            let forwards = [published.parse().expect("a forward")];
            let arguments = arguments(&forwards, of(&forwards), Template::DefaultRoute);
            let closed = arguments.iter().any(|argument| argument == "--no-map-gw");
            assert_eq!(closed, !stands, "{published}");
        }
    }

    #[test]
    fn a_port_at_an_ipv6_address_gives_the_guest_ipv6() {
        let forwards = [
            "[::1]:18080:80".parse().expect("a forward"),
            "18080:80".parse().expect("a forward"),
        ];
        let arguments = arguments(&forwards, of(&forwards), Template::DefaultRoute).join(" ");
        assert!(!arguments.contains("--ipv4-only"), "{arguments}");
        for part in ["--address fd74:6172:6500::15", "--tcp-ports ::1/18080:80"] {
            assert!(arguments.contains(part), "{arguments}");
        }
    }

    #[test]
    fn a_default_route_is_recognised() {
        let head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n";
        let default = "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\n";
        let subnet = "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\n";
        assert!(lists_default_route(&format!("{head}{subnet}{default}")));
        assert!(!lists_default_route(&format!("{head}{subnet}")));
    }

    #[test]
    fn two_starts_on_one_port_fail_with_passts_message() {
        if !tare_vmtest::installed("passt") {
            tare_vmtest::lacks("passt is not installed");
            return;
        }
        let port = tare_vmtest::free_port();
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("a port");
        let forwards = [format!("{port}:80").parse().expect("a forward")];
        let ready = || {
            let mut passt = choice(&forwards).start([2, 0, 0, 0, 0, 1])?;
            passt.wait_ready().map(|_| passt)
        };
        let error = ready().expect_err("the port is taken");
        assert_eq!(error.code(), ExitCode::PortInUse, "{error}");
        drop(taken);
        drop(ready().expect("passt starts on a free port"));
    }

    /// A TCP segment without data that opens a connection, from the guest.
    fn syn(mac: [u8; 6], to: Ipv4Addr, port: u16) -> Vec<u8> {
        let mut frame = vec![0xff; 6];
        frame.extend(mac);
        frame.extend([0x08, 0x00]);
        let mut ip = vec![0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0];
        ip.extend(GUEST);
        ip.extend(to.octets());
        let mut tcp = 40_000_u16.to_be_bytes().to_vec();
        tcp.extend(port.to_be_bytes());
        tcp.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0]);
        let pseudo = [&ip[12..20], &[0, 6, 0, 20], &tcp].concat();
        let checksum = internet_checksum(&pseudo);
        tcp[16..18].copy_from_slice(&checksum);
        let checksum = internet_checksum(&ip);
        ip[10..12].copy_from_slice(&checksum);
        frame.extend(ip);
        frame.extend(tcp);
        frame
    }

    /// RFC 1071.
    fn internet_checksum(bytes: &[u8]) -> [u8; 2] {
        let words = bytes.chunks(2);
        let sum: u32 = words
            .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
            .sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        (!(((folded & 0xffff) + (folded >> 16)) as u16)).to_be_bytes()
    }

    /// Sends segments to a listener on the host's loopback through the filter and passt, then one
    /// to a listener that is open; returns whether the first saw a connection.
    fn reaches_loopback(filter: tare_frames::Rules) -> bool {
        let mac = [2, 0, 0, 0, 0, 1];
        let victim = TcpListener::bind("127.0.0.1:0").expect("a port");
        victim.set_nonblocking(true).expect("a mode");
        let mut passt = choice(&[]).start(mac).expect("passt");
        let mut link = link(&mut passt, filter);
        let port = victim.local_addr().expect("its address").port();
        for to in [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED] {
            send(&mut link, &syn(mac, to, port));
        }
        let open = TcpListener::bind("127.0.0.2:0").expect("a port");
        let port = open.local_addr().expect("its address").port();
        let to = Ipv4Addr::new(127, 0, 0, 2);
        send(&mut link, &syn(mac, to, port));
        open.accept().expect("frames arrive in order");
        victim.accept().is_ok()
    }

    #[test]
    fn a_frame_to_the_hosts_loopback_opens_no_connection() {
        if !tare_vmtest::installed("passt") {
            tare_vmtest::lacks("passt is not installed");
            return;
        }
        let allowing = |range: &str| tare_frames::Rules {
            allow: vec![range.parse().expect("a range")],
            ..Default::default()
        };
        assert!(!reaches_loopback(allowing("127.0.0.2")));
        assert!(reaches_loopback(allowing("127.0.0.0/8")), "the control");
    }

    /// The next UDP packet for the guest, with its Ethernet header.
    fn datagram(link: &mut StreamLink) -> Vec<u8> {
        loop {
            let Some(frame) = link.peek().expect("a passt") else {
                poll(&mut [PollFd::new(&*link, PollFlags::IN)], None).expect("a frame");
                continue;
            };
            let frame = frame.bytes.to_vec();
            link.consume();
            if frame.get(12..14) == Some(&[0x08, 0x00]) && frame[23] == 17 {
                return frame;
            }
        }
    }

    /// The answer to a UDP packet, with the same bytes, to `port`.
    fn answer(question: &[u8], port: [u8; 2]) -> Vec<u8> {
        let mut frame = question.to_vec();
        for (at, from, bytes) in [(0, 6, 6), (6, 0, 6), (26, 30, 4), (30, 26, 4), (34, 36, 2)] {
            frame[at..at + bytes].copy_from_slice(&question[from..from + bytes]);
        }
        frame[36..38].copy_from_slice(&port);
        // No checksum (RFC 768).
        frame[40..42].fill(0);
        frame
    }

    #[test]
    fn a_udp_port_answers_a_client_on_the_hosts_loopback_and_no_other_program_there() {
        if !tare_vmtest::installed("passt") {
            tare_vmtest::lacks("passt is not installed");
            return;
        }
        let port = tare_vmtest::free_port();
        let forwards = [format!("{port}:53/udp").parse().expect("a forward")];
        let mut passt = choice(&forwards).start([2, 0, 0, 0, 0, 1]).expect("passt");
        let rules = crate::frame_rules::of_this_host(Vec::new());
        let mut link = link(&mut passt, rules);
        let local = || {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
            // A bound for an answer that is lost.
            let limit = std::time::Duration::from_secs(20);
            socket.set_read_timeout(Some(limit)).expect("a limit");
            socket
        };
        let (client, victim) = (local(), local());
        client
            .send_to(b"who", (Ipv4Addr::LOCALHOST, port))
            .expect("sent");
        let question = datagram(&mut link);
        assert_eq!(&question[26..30], GATEWAY, "the client's address");
        let victims = victim.local_addr().expect("its address").port();
        send(&mut link, &answer(&question, victims.to_be_bytes()));
        let clients = question[34..36].try_into().expect("two bytes");
        send(&mut link, &answer(&question, clients));
        let mut bytes = [0; 8];
        let (length, from) = client.recv_from(&mut bytes).expect("an answer");
        assert_eq!(&bytes[..length], b"who");
        assert_eq!(from.port(), port);
        // Frames arrive in order.
        victim.set_nonblocking(true).expect("a mode");
        assert!(victim.recv_from(&mut bytes).is_err());
    }
}
