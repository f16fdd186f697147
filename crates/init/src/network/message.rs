//! Requests to the kernel's routing socket, byte by byte.
//!
//! Reference: Linux `include/uapi/linux/rtnetlink.h`, `netlink.h`, rtnetlink(7).

use std::net::Ipv4Addr;

const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const NLM_F_REQUEST_ACK: u16 = 0x5;
const NLM_F_REPLACE_CREATE: u16 = 0x500;
const AF_INET: u8 = 2;
const IFF_UP: u32 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_GATEWAY: u16 = 5;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_BOOT: u8 = 3;
const RTN_UNICAST: u8 = 1;

/// Sets the interface up.
pub(super) fn up(index: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(index.to_ne_bytes());
    body.extend(IFF_UP.to_ne_bytes());
    body.extend(IFF_UP.to_ne_bytes());
    request(RTM_NEWLINK, 0, &body)
}

/// Gives the interface an address.
pub(super) fn add_address(index: u32, address: Ipv4Addr, prefix: u8) -> Vec<u8> {
    let mut body = vec![AF_INET, prefix, 0, 0];
    body.extend(index.to_ne_bytes());
    attribute(IFA_LOCAL, &address.octets(), &mut body);
    attribute(IFA_ADDRESS, &address.octets(), &mut body);
    request(RTM_NEWADDR, NLM_F_REPLACE_CREATE, &body)
}

/// Sends everything else to `gateway`.
pub(super) fn add_default(gateway: Ipv4Addr) -> Vec<u8> {
    let (scope, flags) = (0, [0; 4]);
    let mut body = vec![
        AF_INET,
        0,
        0,
        0,
        RT_TABLE_MAIN,
        RTPROT_BOOT,
        scope,
        RTN_UNICAST,
    ];
    body.extend(flags);
    attribute(RTA_GATEWAY, &gateway.octets(), &mut body);
    request(RTM_NEWROUTE, NLM_F_REPLACE_CREATE, &body)
}

/// The errno of an acknowledgement, 0 for success.
pub(super) fn acknowledged(answer: &[u8]) -> Option<i32> {
    let errno = answer.get(16..20)?;
    let errno = i32::from_ne_bytes(errno.try_into().ok()?);
    Some(errno.wrapping_neg())
}

fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = 16 + body.len() as u32;
    let mut bytes = Vec::with_capacity(length as usize);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST_ACK | flags).to_ne_bytes());
    // Sequence and port: one request at a time, the kernel fills the port.
    bytes.extend([0; 8]);
    bytes.extend(body);
    bytes
}

fn attribute(kind: u16, value: &[u8; 4], body: &mut Vec<u8>) {
    body.extend(8_u16.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_say_their_length() {
        let requests = [
            up(2),
            add_address(2, Ipv4Addr::LOCALHOST, 8),
            add_default(Ipv4Addr::LOCALHOST),
        ];
        for (request, bytes) in requests.iter().zip([32, 40, 36]) {
            assert_eq!(request.len(), bytes);
            assert_eq!(request[..4], (bytes as u32).to_ne_bytes());
        }
    }

    #[test]
    fn an_acknowledgement_has_the_errno_negated() {
        let mut answer = vec![0; 36];
        assert_eq!(acknowledged(&answer), Some(0));
        answer[16..20].copy_from_slice(&(-17_i32).to_ne_bytes());
        assert_eq!(acknowledged(&answer), Some(17));
        assert_eq!(acknowledged(&answer[..18]), None);
    }
}
