//! Messages of NETLINK_ROUTE (`rtnetlink(7)`): what a program asks of interfaces, addresses and routes,
//! and the answers (kernel net/core/rtnetlink.c, net/netlink/af_netlink.c).

use alloc::vec::Vec;
use core::net::IpAddr;

use linux_raw_sys::net as n;
use linux_raw_sys::netlink as l;

use super::{Interface, QUEUE_LENGTH, Scope, broadcast, network};
use crate::errno::{Errno, Result};

/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Bytes of answers in one datagram, as Linux packs them into a page (`NLMSG_GOODSIZE`).
const DATAGRAM: usize = 3776;
/// Messages of an interface's own kind begin here; those below control the socket.
const FIRST_KIND: u16 = 16;
const NO_LIMIT: u32 = u32::MAX;

/// A request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    length: u32,
    kind: u16,
    flags: u16,
    sequence: u32,
    port: u32,
}

impl Header {
    /// The first message of `bytes`, and what is behind the header; `None` where it does not fit.
    fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let half = |at: usize| Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let header = Self {
            length: word(bytes, 0)?,
            kind: half(4)?,
            flags: half(6)?,
            sequence: word(bytes, 8)?,
            port: word(bytes, 12)?,
        };
        let body = bytes.get(HEADER..header.length as usize)?;
        Some((header, body))
    }

    fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.kind.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.flags.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[12..].copy_from_slice(&self.port.to_le_bytes());
        bytes
    }

    fn has(&self, flags: u32) -> bool {
        u32::from(self.flags) & flags == flags
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The answers to the requests of a datagram, as datagrams; requests behind `most` bytes of answers have
/// none. `port` is the asking socket's.
pub(crate) fn answers(
    requests: &[u8],
    port: u32,
    interfaces: &[Interface],
    most: usize,
) -> Vec<Vec<u8>> {
    let mut datagrams: Vec<Vec<u8>> = Vec::new();
    let mut rest = requests;
    while let Some((header, body)) = Header::parse(rest)
        && datagrams.iter().map(Vec::len).sum::<usize>() <= most
    {
        if header.has(l::NLM_F_REQUEST) && header.kind >= FIRST_KIND {
            let mut answer = Answer::to(&header, port);
            match answer.write(header, body, interfaces) {
                Ok(()) if header.has(l::NLM_F_DUMP) && !body.is_empty() => answer.done(),
                Ok(()) if header.has(l::NLM_F_ACK) => answer.error(&header, 0),
                Ok(()) => {}
                Err(errno) => answer.error(&header, errno.0),
            }
            datagrams.extend(answer.datagrams);
        } else if header.has(l::NLM_F_ACK) {
            let mut answer = Answer::to(&header, port);
            answer.error(&header, 0);
            datagrams.extend(answer.datagrams);
        }
        let next = (header.length as usize).next_multiple_of(4);
        rest = rest.get(next..).unwrap_or_default();
    }
    datagrams
}

/// The answer to one request.
struct Answer {
    datagrams: Vec<Vec<u8>>,
    sequence: u32,
    port: u32,
    flags: u16,
}

impl Answer {
    fn to(request: &Header, port: u32) -> Self {
        let is_dump = request.has(l::NLM_F_DUMP);
        Self {
            datagrams: Vec::new(),
            sequence: request.sequence,
            port,
            flags: if is_dump { l::NLM_F_MULTI as u16 } else { 0 },
        }
    }

    fn write(&mut self, header: Header, body: &[u8], interfaces: &[Interface]) -> Result<()> {
        // A message without a family is taken, and has no answer.
        let Some(&family) = body.first() else {
            return Ok(());
        };
        let family = u32::from(family);
        let is_dump = header.has(l::NLM_F_DUMP);
        match u32::from(header.kind) {
            kind if kind == l::RTM_GETLINK as u32 && is_dump => {
                interfaces.iter().for_each(|it| self.link(it));
            }
            kind if kind == l::RTM_GETLINK as u32 => self.link(wanted(body, interfaces)?),
            kind if kind == l::RTM_GETADDR as u32 && is_dump => {
                for interface in interfaces {
                    self.addresses(interface, family);
                }
            }
            kind if kind == l::RTM_GETROUTE as u32 && is_dump => {
                for interface in interfaces.iter().filter(|it| !it.is_loopback()) {
                    self.routes(interface, family);
                }
            }
            // Neither neighbours nor rules are shown.
            kind if is_dump
                && (kind == l::RTM_GETNEIGH as u32 || kind == l::RTM_GETRULE as u32) => {}
            kind if kind & 3 == l::RTM_GETLINK as u32 & 3 => return Err(Errno::EOPNOTSUPP),
            // What would change something, as of a program in a container.
            _ => return Err(Errno::EPERM),
        }
        Ok(())
    }

    /// RTM_NEWLINK: `struct ifinfomsg` and its attributes.
    fn link(&mut self, interface: &Interface) {
        let mut body = Body::default();
        body.bytes(&[0, 0]);
        body.bytes(&interface.hardware().to_le_bytes());
        body.word(interface.index);
        body.word(interface.flags());
        body.word(0);
        body.text(l::IFLA_IFNAME as u16, interface.name);
        body.attribute(l::IFLA_TXQLEN as u16, &QUEUE_LENGTH.to_le_bytes());
        let state = if interface.is_loopback() {
            n::IF_OPER_UNKNOWN
        } else {
            n::IF_OPER_UP
        };
        body.attribute(l::IFLA_OPERSTATE as u16, &[state as u8]);
        body.attribute(l::IFLA_LINKMODE as u16, &[0]);
        let mtu = u32::from(interface.inner.mtu);
        body.attribute(l::IFLA_MTU as u16, &mtu.to_le_bytes());
        body.attribute(l::IFLA_CARRIER as u16, &[1]);
        body.attribute(l::IFLA_ADDRESS as u16, &interface.mac());
        let all = if interface.is_loopback() { 0 } else { 0xff };
        body.attribute(l::IFLA_BROADCAST as u16, &[all; 6]);
        self.message(l::RTM_NEWLINK as u16, &body.0);
    }

    /// RTM_NEWADDR: `struct ifaddrmsg` and its attributes.
    fn addresses(&mut self, interface: &Interface, family: u32) {
        let networks = interface.inner.networks.iter();
        for it in networks.filter(|it| is_of(it.address, family)) {
            let mut body = Body::default();
            let flags = l::IFA_F_PERMANENT;
            let scope = interface.scope(it) as u8;
            body.bytes(&[
                family_of(it.address) as u8,
                it.prefix_len,
                flags as u8,
                scope,
            ]);
            body.word(interface.index);
            body.address(l::IFA_ADDRESS as u16, it.address);
            if let IpAddr::V4(address) = it.address {
                body.address(l::IFA_LOCAL as u16, it.address);
                if !interface.is_loopback() {
                    let broadcast = broadcast(address, it.prefix_len);
                    body.address(l::IFA_BROADCAST as u16, broadcast.into());
                }
                body.text(l::IFA_LABEL as u16, interface.name);
            }
            body.attribute(l::IFA_FLAGS as u16, &flags.to_le_bytes());
            // Preferred and valid without end; when it was made and changed.
            let times = [NO_LIMIT, NO_LIMIT, 0, 0].map(u32::to_le_bytes);
            body.attribute(l::IFA_CACHEINFO as u16, times.as_flattened());
            self.message(l::RTM_NEWADDR as u16, &body.0);
        }
    }

    /// RTM_NEWROUTE: `struct rtmsg` and its attributes, of the main table.
    fn routes(&mut self, interface: &Interface, family: u32) {
        let routers = interface.inner.routers.iter();
        for router in routers.filter(|router| is_of(**router, family)) {
            let mut body = Body::default();
            body.route(*router, 0, Scope::Universe);
            body.address(l::rtattr_type_t::RTA_GATEWAY as u16, *router);
            body.attribute(
                l::rtattr_type_t::RTA_OIF as u16,
                &interface.index.to_le_bytes(),
            );
            self.message(l::RTM_NEWROUTE as u16, &body.0);
        }
        let networks = interface.inner.networks.iter();
        for it in networks.filter(|it| is_of(it.address, family)) {
            let (scope, is_v4) = match it.address {
                IpAddr::V4(_) => (Scope::Link, true),
                IpAddr::V6(_) => (Scope::Universe, false),
            };
            let mut body = Body::default();
            body.route(it.address, it.prefix_len, scope);
            let to = network(it.address, it.prefix_len);
            body.address(l::rtattr_type_t::RTA_DST as u16, to);
            if is_v4 {
                body.address(l::rtattr_type_t::RTA_PREFSRC as u16, it.address);
            }
            body.attribute(
                l::rtattr_type_t::RTA_OIF as u16,
                &interface.index.to_le_bytes(),
            );
            self.message(l::RTM_NEWROUTE as u16, &body.0);
        }
    }

    /// The end of a list.
    fn done(&mut self) {
        self.message(l::NLMSG_DONE as u16, &[0; 4]);
    }

    /// `struct nlmsgerr`: an error number, or 0 for success, and the request that it is about:
    /// of a failure Linux gives all of it, here its header alone, as with NETLINK_CAP_ACK.
    fn error(&mut self, request: &Header, errno: u32) {
        let mut body = Body::default();
        body.bytes(&(-(errno as i32)).to_le_bytes());
        body.bytes(&request.to_bytes());
        self.flags = l::NLM_F_CAPPED as u16;
        self.message(l::NLMSG_ERROR as u16, &body.0);
    }

    /// Puts a message behind the last one, or into another datagram.
    fn message(&mut self, kind: u16, body: &[u8]) {
        let length = HEADER + body.len();
        let header = Header {
            length: length as u32,
            kind,
            flags: self.flags,
            sequence: self.sequence,
            port: self.port,
        };
        let last = self.datagrams.last();
        if last.is_none_or(|last| last.len() + length > DATAGRAM) {
            self.datagrams.push(Vec::new());
        }
        if let Some(to) = self.datagrams.last_mut() {
            to.extend(header.to_bytes());
            to.extend(body);
            to.resize(to.len().next_multiple_of(4), 0);
        }
    }
}

/// The interface that RTM_GETLINK names, by its number or its name.
fn wanted<'a>(body: &[u8], interfaces: &'a [Interface]) -> Result<&'a Interface> {
    /// Bytes of `struct ifinfomsg`.
    const INFO: usize = 16;
    let index = word(body, 4).ok_or(Errno::EINVAL)?;
    let mut attributes = body.get(INFO..).ok_or(Errno::EINVAL)?;
    let mut name = None;
    while let [l0, l1, k0, k1, ..] = *attributes {
        let length = usize::from(u16::from_le_bytes([l0, l1]));
        let Some(value) = attributes.get(4..length) else {
            break;
        };
        if u32::from(u16::from_le_bytes([k0, k1])) == l::IFLA_IFNAME as u32 {
            name = value.split(|&byte| byte == 0).next();
        }
        let next = length.next_multiple_of(4);
        attributes = attributes.get(next..).unwrap_or_default();
    }
    let is_wanted = |it: &&Interface| match (index, name) {
        (0, Some(name)) => it.name.as_bytes() == name,
        _ => it.index == index,
    };
    if index == 0 && name.is_none() {
        return Err(Errno::EINVAL);
    }
    interfaces.iter().find(is_wanted).ok_or(Errno::ENODEV)
}

fn family_of(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => n::AF_INET,
        IpAddr::V6(_) => n::AF_INET6,
    }
}

/// Whether a request for a family, or for all, asks for an address.
fn is_of(address: IpAddr, family: u32) -> bool {
    family == n::AF_UNSPEC || family == family_of(address)
}

/// What is behind a message's header.
#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    fn word(&mut self, word: u32) {
        self.bytes(&word.to_le_bytes());
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = 4 + value.len() as u16;
        self.bytes(&length.to_le_bytes());
        self.bytes(&kind.to_le_bytes());
        self.bytes(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn text(&mut self, kind: u16, text: &str) {
        let mut value = Vec::from(text);
        value.push(0);
        self.attribute(kind, &value);
    }

    fn address(&mut self, kind: u16, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.attribute(kind, &address.octets()),
            IpAddr::V6(address) => self.attribute(kind, &address.octets()),
        }
    }

    /// `struct rtmsg`, and the table again as its attribute.
    fn route(&mut self, of: IpAddr, destination_len: u8, scope: Scope) {
        let table = l::rt_class_t::RT_TABLE_MAIN as u32;
        let by = if destination_len == 0 {
            l::RTPROT_BOOT
        } else {
            l::RTPROT_KERNEL
        };
        self.bytes(&[family_of(of) as u8, destination_len, 0, 0]);
        self.bytes(&[table as u8, by as u8, scope as u8, l::RTN_UNICAST as u8]);
        self.word(0);
        self.attribute(l::rtattr_type_t::RTA_TABLE as u16, &table.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::two;
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    const MOST: usize = 65_536;
    const DUMP: u32 = l::NLM_F_REQUEST | l::NLM_F_DUMP;

    fn request(kind: u32, flags: u32, body: &[u8]) -> Vec<u8> {
        let header = Header {
            length: (HEADER + body.len()) as u32,
            kind: kind as u16,
            flags: flags as u16,
            sequence: 7,
            port: 0,
        };
        [&header.to_bytes()[..], body].concat()
    }

    /// Kinds and bodies of all messages of all datagrams.
    fn messages(datagrams: &[Vec<u8>]) -> Vec<(u32, Vec<u8>)> {
        let mut messages = Vec::new();
        for datagram in datagrams {
            assert!(datagram.len() <= DATAGRAM);
            let mut rest = &datagram[..];
            while !rest.is_empty() {
                let (header, body) = Header::parse(rest).unwrap();
                assert_eq!((header.sequence, header.port), (7, 42));
                messages.push((u32::from(header.kind), body.to_vec()));
                rest = &rest[(header.length as usize).next_multiple_of(4)..];
            }
        }
        messages
    }

    fn asked(kind: u32, flags: u32, body: &[u8]) -> Vec<(u32, Vec<u8>)> {
        messages(&answers(&request(kind, flags, body), 42, &two(), MOST))
    }

    fn attribute(body: &[u8], from: usize, kind: u32) -> Option<Vec<u8>> {
        let mut rest = &body[from..];
        while rest.len() >= 4 {
            let length = usize::from(u16::from_le_bytes([rest[0], rest[1]]));
            if u32::from(u16::from_le_bytes([rest[2], rest[3]])) == kind {
                return Some(rest[4..length].to_vec());
            }
            rest = &rest[length.next_multiple_of(4)..];
        }
        None
    }

    #[test]
    fn links_are_listed_and_found_by_number_and_name() {
        let links = asked(l::RTM_GETLINK as u32, DUMP, &[0; 16]);
        let kinds: Vec<u32> = links.iter().map(|link| link.0).collect();
        let new = l::RTM_NEWLINK as u32;
        assert_eq!(kinds, [new, new, l::NLMSG_DONE]);
        let names = links[..2].iter();
        let names = names.map(|link| attribute(&link.1, 16, l::IFLA_IFNAME as u32).unwrap());
        assert_eq!(names.collect::<Vec<_>>(), [&b"lo\0"[..], b"eth0\0"]);
        let mac = attribute(&links[1].1, 16, l::IFLA_ADDRESS as u32);
        assert_eq!(mac.unwrap(), [2, 0, 0, 0, 0, 5]);

        let mut by_index = [0; 16];
        by_index[4] = 2;
        let mut by_name = [0; 16].to_vec();
        by_name.extend([9, 0, 3, 0]);
        by_name.extend(b"eth0\0\0\0\0");
        for body in [&by_index[..], &by_name] {
            let found = asked(l::RTM_GETLINK as u32, l::NLM_F_REQUEST, body);
            assert_eq!(found, links[1..2], "{body:?}");
        }
        by_index[4] = 9;
        let none = asked(l::RTM_GETLINK as u32, l::NLM_F_REQUEST, &by_index);
        assert_eq!(none[0].0, l::NLMSG_ERROR);
        assert_eq!(
            word(&none[0].1, 0).unwrap() as i32,
            -(Errno::ENODEV.0 as i32)
        );
    }

    #[test]
    fn addresses_are_listed_by_family() {
        let count = |family: u8| asked(l::RTM_GETADDR as u32, DUMP, &[family]).len() - 1;
        assert_eq!((count(0), count(2), count(10), count(7)), (5, 2, 3, 0));
        let v4 = asked(l::RTM_GETADDR as u32, DUMP, &[2]);
        let (_, eth0) = &v4[1];
        assert_eq!(eth0[..8], [2, 24, 0x80, 0, 2, 0, 0, 0]);
        let value = |kind| attribute(eth0, 8, kind).unwrap();
        assert_eq!(value(l::IFA_LOCAL as u32), [10, 0, 2, 15]);
        assert_eq!(value(l::IFA_BROADCAST as u32), [10, 0, 2, 255]);
    }

    #[test]
    fn routes_are_those_of_the_main_table() {
        let v4 = asked(l::RTM_GETROUTE as u32, DUMP, &[2]);
        assert_eq!(v4.len(), 3);
        let gateway = attribute(&v4[0].1, 12, l::rtattr_type_t::RTA_GATEWAY as u32);
        assert_eq!(gateway.unwrap(), [10, 0, 2, 2]);
        let to = attribute(&v4[1].1, 12, l::rtattr_type_t::RTA_DST as u32);
        assert_eq!((v4[1].1[1], to.unwrap()), (24, vec![10, 0, 2, 0]));
        let v6 = asked(l::RTM_GETROUTE as u32, DUMP, &[10]);
        assert_eq!(v6.len(), 4);
    }

    #[test]
    fn what_is_not_offered_is_an_error_and_an_acknowledgement_comes_when_asked() {
        let errno = |kind, flags| {
            let answers = asked(kind, l::NLM_F_REQUEST | flags, &[0; 16]);
            assert_eq!((answers.len(), answers[0].0), (1, l::NLMSG_ERROR));
            -(word(&answers[0].1, 0).unwrap() as i32) as u32
        };
        assert_eq!(errno(l::RTM_NEWADDR as u32, 0), Errno::EPERM.0);
        assert_eq!(errno(l::RTM_DELLINK as u32, l::NLM_F_ACK), Errno::EPERM.0);
        assert_eq!(
            errno(l::RTM_GETQDISC as u32, l::NLM_F_DUMP),
            Errno::EOPNOTSUPP.0
        );
        assert_eq!(errno(9999, 0), Errno::EPERM.0);
        // A message that controls the socket.
        assert_eq!(errno(1, l::NLM_F_ACK), 0);
        assert!(asked(l::RTM_GETLINK as u32, 0, &[0; 16]).is_empty());
        assert!(asked(l::RTM_GETLINK as u32, l::NLM_F_REQUEST, &[]).is_empty());
    }

    #[test]
    fn all_requests_of_a_datagram_are_answered() {
        let mut both = request(l::RTM_GETLINK as u32, DUMP, &[0]);
        both.resize(both.len().next_multiple_of(4), 0);
        both.extend(request(l::RTM_GETADDR as u32, DUMP, &[0]));
        // A message that says more than there is ends it.
        both.extend([200, 0, 0, 0, 18, 0, 1, 3]);
        let ends = messages(&answers(&both, 42, &two(), MOST));
        let ends = ends.iter().filter(|it| it.0 == l::NLMSG_DONE);
        assert_eq!(ends.count(), 2);
    }

    #[test]
    fn a_long_list_takes_several_datagrams() {
        let mut interfaces = two();
        let network = interfaces[1].inner.networks[0];
        interfaces[1].inner.networks = vec![network; 200];
        let asked = request(l::RTM_GETADDR as u32, DUMP, &[2]);
        let datagrams = answers(&asked, 42, &interfaces, MOST);
        assert!(datagrams.len() > 3);
        assert_eq!(messages(&datagrams).len(), 202);
    }

    #[test]
    fn many_requests_in_a_datagram_have_bounded_answers() {
        let one = request(l::RTM_GETADDR as u32, DUMP, &[0; 4]);
        let datagrams = answers(&one.repeat(3000), 42, &two(), MOST);
        let bytes: usize = datagrams.iter().map(Vec::len).sum();
        assert!((MOST..MOST + DATAGRAM).contains(&bytes), "{bytes}");
    }

    proptest! {
        #[test]
        fn any_bytes_have_answers_that_fit(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for datagram in answers(&bytes, 42, &two(), MOST) {
                prop_assert!(datagram.len() <= DATAGRAM);
            }
        }
    }
}
