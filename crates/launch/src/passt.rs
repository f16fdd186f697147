//! User-mode networking: passt on one end of a socket pair.
//!
//! passt goes into the background by itself once its ports are bound, so its
//! exit status says whether it started. Then it is not our child any more (no zombie),
//! has its own session (no Ctrl-C), and ends when the machine's end of the socket pair
//! closes. Started as root it switches to the user `nobody`.
//!
//! Two things that passt does not do by itself:
//! - It learns the guest's hardware address from the frames that it receives, and sends to
//!   00:00:00:00:00:00 until then; a connection that arrives before the guest has sent a frame
//!   would be lost. So an ARP request in the guest's name waits in the socket when passt starts.
//! - It takes its addresses from the interface with the default route, and refuses to start
//!   without one. There, `-i lo` with a hardware address works.
//!
//! passt connects a guest to whatever address it names: `--no-map-gw` closes the
//! gateway's alone. What the guest may not reach is dropped before passt sees it
//! (`tare_frames::Filter`, in the monitor).

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::iter;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tare_control::exit::ExitCode;
use tare_host::child::keeps_only;

use crate::arp;
use crate::failure::Explain;
use crate::publish::{Protocol, Publish};

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
/// How long passt may take to bind its ports.
const START_LIMIT: Duration = Duration::from_secs(10);

/// passt did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PasstError {
    /// The program is not installed.
    #[error("passt is not installed")]
    Missing,
    /// The program or its socket cannot be made.
    #[error("cannot start passt")]
    Start(#[source] io::Error),
    /// It refused, and said why.
    #[error("passt did not start: {0}")]
    Refused(String),
    /// It neither failed nor became ready.
    #[error("passt was not ready after {} s", START_LIMIT.as_secs())]
    TimedOut,
}

impl Explain for PasstError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Refused(message) if message.contains("bind") => ExitCode::PortInUse,
            _ => ExitCode::Passt,
        }
    }

    fn hint(&self) -> Option<String> {
        matches!(self, Self::Missing)
            .then(|| "install it (Debian: passt), or use --net none or --net tap=NAME".to_owned())
    }
}

/// A started passt. Its end of the socket pair stays open here until it is ready, so that a machine
/// that was started meanwhile sees no closed socket when passt is tried again.
#[derive(Debug)]
pub(crate) struct Passt {
    forwards: Vec<Publish>,
    network: Network,
    /// The machine's end: frames with a length before each.
    ours: OwnedFd,
    theirs: Option<OwnedFd>,
    template: Template,
    child: Child,
    user: Option<PasstUser>,
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

/// Starts passt for a guest with that hardware address; [`Passt::wait_ready`]
/// waits for it, so that other work can be done in between.
/// It becomes `user`; without one, root's passt becomes `nobody`.
pub(crate) fn start(
    forwards: &[Publish],
    network: Network,
    mac: [u8; 6],
    user: Option<PasstUser>,
) -> Result<Passt, PasstError> {
    let template = if has_default_route() {
        Template::DefaultRoute
    } else {
        Template::Loopback
    };
    let (mut ours, theirs) = UnixStream::pair().map_err(PasstError::Start)?;
    ours.write_all(&arp::announcement(mac, GUEST, GATEWAY))
        .map_err(PasstError::Start)?;
    let theirs = theirs.into();
    Ok(Passt {
        forwards: forwards.to_vec(),
        network,
        ours: ours.into(),
        child: spawn(forwards, network, &theirs, template, user.as_ref())?,
        user,
        theirs: Some(theirs),
        template,
    })
}

impl Passt {
    /// The machine's end of the socket pair.
    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.ours
    }

    /// Waits until passt has bound its ports; returns its output for the run directory. From then
    /// on only passt has its end of the pair.
    pub(crate) fn wait_ready(&mut self) -> Result<String, PasstError> {
        let Some(theirs) = self.theirs.take() else {
            return Ok(String::new());
        };
        match wait(&mut self.child) {
            Err(PasstError::Refused(message)) if message.contains("interface") => self
                .again(&theirs)
                .map_err(|_| PasstError::Refused(message)),
            other => other,
        }
    }

    /// Tries again with the other template.
    fn again(&mut self, theirs: &OwnedFd) -> Result<String, PasstError> {
        let template = match self.template {
            Template::DefaultRoute => Template::Loopback,
            Template::Loopback => Template::DefaultRoute,
        };
        self.child = spawn(
            &self.forwards,
            self.network,
            theirs,
            template,
            self.user.as_ref(),
        )?;
        wait(&mut self.child)
    }
}

fn spawn(
    forwards: &[Publish],
    network: Network,
    theirs: &OwnedFd,
    template: Template,
    user: Option<&PasstUser>,
) -> Result<Child, PasstError> {
    let claim = user.and_then(|user| user.claim.as_ref());
    let inherited = iter::once(theirs)
        .chain(claim)
        .map(AsRawFd::as_raw_fd)
        .collect();
    // What the monitor or QEMU will inherit is open across execve by now, including the machine's
    // end of this network, which passt would then never see closed.
    let mut command = Command::new("passt");
    keeps_only(&mut command, inherited)
        .args(["--fd", &theirs.as_raw_fd().to_string()])
        .args(arguments(forwards, network, template))
        .args(user.map(|user| format!("--runas={}:{}", user.uid, user.gid)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0);
    command.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => PasstError::Missing,
        _ => PasstError::Start(source),
    })
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
    arguments.extend([
        "--quiet".to_owned(),
        "--no-map-gw".to_owned(),
        "--address".to_owned(),
        ip(GUEST),
        "--netmask".to_owned(),
        PREFIX.to_string(),
        "--gateway".to_owned(),
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

/// passt's output, once it serves.
fn wait(child: &mut Child) -> Result<String, PasstError> {
    let said = read_until_detached(child);
    if matches!(said, Err(PasstError::TimedOut)) {
        let _ = child.kill();
    }
    let status = child.wait().map_err(PasstError::Start)?;
    let log = without_noise(&said?);
    if status.success() {
        return Ok(log);
    }
    Err(PasstError::Refused(if log.is_empty() {
        status.to_string()
    } else {
        log.lines().collect::<Vec<_>>().join("; ")
    }))
}

/// Reads passt's standard error until passt closes it, which it does by ending or by going into the
/// background.
fn read_until_detached(child: &mut Child) -> Result<String, PasstError> {
    let mut bytes = Vec::new();
    let Some(mut stderr) = child.stderr.take() else {
        return Ok(String::new());
    };
    let begin = Instant::now();
    loop {
        let left = START_LIMIT.saturating_sub(begin.elapsed());
        let timeout = Timespec::try_from(left).ok();
        let mut fds = [PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::IN)];
        let ready = poll(&mut fds, timeout.as_ref());
        match ready {
            Ok(0) => return Err(PasstError::TimedOut),
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(PasstError::Start(errno.into())),
            Ok(_) => {}
        }
        let mut chunk = [0; 4096];
        match stderr.read(&mut chunk).map_err(PasstError::Start)? {
            0 => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            n if bytes.len() < 64 * 1024 => bytes.extend_from_slice(&chunk[..n]),
            _ => {}
        }
    }
}

/// The useful lines: without the complaint about a missing system logger before each line, and
/// without what every start as root prints.
fn without_noise(said: &str) -> String {
    said.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .filter(|line| !line.starts_with("Failed to send ") || !line.ends_with(" to syslog"))
        .filter(|line| !line.starts_with("Don't run as root"))
        .collect::<Vec<_>>()
        .join("\n")
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
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    fn of(forwards: &[Publish]) -> Network {
        Network {
            has_ipv6: uses_ipv6(forwards),
            beside: Hardware::Own,
        }
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
    fn the_message_is_what_remains_without_noise() {
        let said = "Failed to send 47 bytes to syslog\nDon't run as root. Changing to nobody...\n\
                    Failed to send 67 bytes to syslog\n\
                    Failed to bind any port for '-t 127.0.0.1/1:1', exiting\n\n";
        assert_eq!(
            without_noise(said),
            "Failed to bind any port for '-t 127.0.0.1/1:1', exiting"
        );
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
        if tare_host::program::find_program("passt").is_err() {
            eprintln!("SKIP: passt is not installed");
            return;
        }
        let port = tare_vmtest::free_port();
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("a port");
        let forwards = [format!("{port}:80").parse().expect("a forward")];
        let ready = || {
            let mut passt = start(&forwards, of(&forwards), [2, 0, 0, 0, 0, 1], None)?;
            passt.wait_ready().map(|_| passt)
        };
        let error = ready().expect_err("the port is taken");
        assert_eq!(error.code(), ExitCode::PortInUse, "{error}");
        drop(taken);
        drop(ready().expect("passt starts on a free port"));
    }

    /// A TCP segment without data that opens a connection, from the guest, with its
    /// length before it.
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
        [&(frame.len() as u32).to_be_bytes()[..], &frame].concat()
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
        let mut passt = start(&[], of(&[]), mac, None).expect("passt");
        let (mut guest, ours) = UnixStream::pair().expect("a pair");
        let network = passt.socket().try_clone().expect("a copy");
        passt.wait_ready().expect("passt is ready");
        crate::relay::start(ours, network.into(), filter).expect("a relay");
        let port = victim.local_addr().expect("its address").port();
        for to in [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED] {
            guest.write_all(&syn(mac, to, port)).expect("sent");
        }
        let open = TcpListener::bind("127.0.0.2:0").expect("a port");
        let port = open.local_addr().expect("its address").port();
        let to = Ipv4Addr::new(127, 0, 0, 2);
        guest.write_all(&syn(mac, to, port)).expect("sent");
        open.accept().expect("frames arrive in order");
        victim.accept().is_ok()
    }

    #[test]
    fn a_frame_to_the_hosts_loopback_opens_no_connection() {
        if tare_host::program::find_program("passt").is_err() {
            eprintln!("SKIP: passt is not installed");
            return;
        }
        let allowing = |range: &str| tare_frames::Rules {
            allow: vec![range.parse().expect("a range")],
            ..Default::default()
        };
        assert!(!reaches_loopback(allowing("127.0.0.2")));
        assert!(reaches_loopback(allowing("127.0.0.0/8")), "the control");
    }
}
