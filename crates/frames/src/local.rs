//! The host's own addresses, from the text of two files of /proc.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Prefix;

/// Address ranges that the host delivers to itself, from `/proc/net/fib_trie`
/// (kernel `net/ipv4/fib_trie.c`): a leaf `|-- ADDRESS`, then a line for each
/// of its routes, `/LENGTH SCOPE TYPE`. Loopback and addresses of interfaces
/// have the type LOCAL.
pub fn from_fib_trie(text: &str) -> Vec<Prefix> {
    let mut ranges = Vec::new();
    let mut leaf: Option<Ipv4Addr> = None;
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace();
        match fields.next() {
            Some("|--") => leaf = fields.next().and_then(|text| text.parse().ok()),
            Some(length) if line.ends_with(" LOCAL") => {
                let length = length.strip_prefix('/').and_then(|text| text.parse().ok());
                let range = leaf.zip(length);
                ranges.extend(range.and_then(|(leaf, length)| Prefix::new(leaf.into(), length)));
            }
            _ => {}
        }
    }
    // The file has a trie for each table, and tables may be one.
    ranges.dedup();
    ranges
}

/// The host's IPv6 addresses, from `/proc/net/if_inet6`: 32 hexadecimal digits
/// at the beginning of each line.
pub fn from_if_inet6(text: &str) -> Vec<Prefix> {
    let address = |line: &str| {
        let digits = line.split_ascii_whitespace().next()?;
        let bits = u128::from_str_radix(digits, 16).ok()?;
        Prefix::new(IpAddr::V6(Ipv6Addr::from_bits(bits)), 128)
    };
    text.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIB_TRIE: &str = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 192.168.127.0/24 2 0 2
        +-- 192.168.127.0/28 2 0 2
           |-- 192.168.127.0
              /24 link UNICAST
           |-- 192.168.127.2
              /32 host LOCAL
        |-- 192.168.127.255
           /32 link BROADCAST
Local:
  +-- 127.0.0.0/8 2 0 2
     +-- 127.0.0.0/31 1 0 0
        |-- 127.0.0.0
           /8 host LOCAL
        |-- 127.0.0.1
           /32 host LOCAL
     |-- 127.255.255.255
        /32 link BROADCAST
";

    #[test]
    fn local_routes_are_the_hosts_own_addresses() {
        let ranges: Vec<String> = from_fib_trie(FIB_TRIE)
            .iter()
            .map(Prefix::to_string)
            .collect();
        assert_eq!(ranges, ["192.168.127.2", "127.0.0.0/8", "127.0.0.1"]);
    }

    #[test]
    fn interfaces_ipv6_addresses_are_read() {
        let text = "00000000000000000000000000000001 01 80 10 80       lo\n\
                    fe80000000000000a8aafffffe010203 02 40 20 80     eth0\nnonsense\n";
        let ranges: Vec<String> = from_if_inet6(text).iter().map(Prefix::to_string).collect();
        assert_eq!(ranges, ["::1", "fe80::a8aa:ffff:fe01:203"]);
    }
}
