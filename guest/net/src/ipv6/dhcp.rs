//! Stateless DHCPv6 (RFC 8415, 18.2.6): asks for name servers. Addresses come from
//! router advertisements.

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use crate::neighbours::Mac;

pub(crate) const CLIENT_PORT: u16 = 546;
pub(crate) const SERVER_PORT: u16 = 547;
/// All servers and relays of the link.
pub(crate) const SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);

const REPLY: u8 = 7;
const INFORMATION_REQUEST: u8 = 11;
const OPTION_CLIENT_ID: u16 = 1;
const OPTION_REQUEST: u16 = 6;
const OPTION_ELAPSED: u16 = 8;
/// Name servers (RFC 3646, 3).
const OPTION_NAME_SERVERS: u16 = 23;
/// Name servers that are kept.
const NAME_SERVERS: usize = 3;

/// Numbers a request; 24 bits.
pub(crate) type Transaction = [u8; 3];

/// Asks for name servers.
pub(crate) fn information_request(transaction: Transaction, mac: Mac) -> Vec<u8> {
    let mut message = Vec::from([INFORMATION_REQUEST]);
    message.extend(transaction);
    // A client's identifier that is its hardware address (RFC 8415, 11.4).
    let mut identifier = [0, 3, 0, 1, 0, 0, 0, 0, 0, 0];
    identifier[4..].copy_from_slice(&mac);
    let options: [(u16, &[u8]); 3] = [
        (OPTION_CLIENT_ID, &identifier),
        (OPTION_REQUEST, &OPTION_NAME_SERVERS.to_be_bytes()),
        (OPTION_ELAPSED, &[0, 0]),
    ];
    for (option, value) in options {
        message.extend(option.to_be_bytes());
        message.extend((value.len() as u16).to_be_bytes());
        message.extend(value);
    }
    message
}

/// The name servers in the answer to a request; `None` if it does not answer it.
pub(crate) fn name_servers(message: &[u8], transaction: Transaction) -> Option<Vec<Ipv6Addr>> {
    let (header, mut rest) = message.split_first_chunk::<4>()?;
    if header[0] != REPLY || header[1..] != transaction {
        return None;
    }
    let mut servers = Vec::new();
    while let Some((head, after)) = rest.split_first_chunk::<4>() {
        let option = u16::from_be_bytes([head[0], head[1]]);
        let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let (value, after) = after.split_at_checked(len)?;
        rest = after;
        if option == OPTION_NAME_SERVERS {
            let (octets, _) = value.as_chunks::<16>();
            let addresses = octets.iter().map(|octets| Ipv6Addr::from_octets(*octets));
            servers.extend(addresses.take(NAME_SERVERS));
        }
    }
    servers.truncate(NAME_SERVERS);
    Some(servers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_what_the_standard_says_and_its_answer_is_read() {
        let request = information_request([1, 2, 3], [2, 0, 0, 0, 0, 9]);
        assert_eq!(request[..8], [11, 1, 2, 3, 0, 1, 0, 10]);
        assert_eq!(request[18..], [0, 6, 0, 2, 0, 23, 0, 8, 0, 2, 0, 0]);
        let server: Ipv6Addr = "2001:db8::53".parse().unwrap();
        let mut reply = Vec::from([7, 1, 2, 3, 0, 2, 0, 1, 9, 0, 23, 0, 16]);
        reply.extend(server.octets());
        assert_eq!(name_servers(&reply, [1, 2, 3]), Some(Vec::from([server])));
        assert_eq!(name_servers(&reply, [1, 2, 4]), None);
        reply.pop();
        assert_eq!(name_servers(&reply, [1, 2, 3]), None);
    }
}
