//! What a guest may not reach through user-mode networking: the addresses of this host when the
//! machine starts, and the special ones.

use std::fs;
use std::net::Ipv4Addr;

use tare_frames::{Prefix, Rules, from_fib_trie, from_if_inet6};

use crate::passt;

/// The rules for a guest that may reach `allow` in spite of them.
pub(crate) fn of_this_host(allow: Vec<Prefix>) -> Rules {
    // A kernel without one of the protocols has no such file.
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let mut host = from_fib_trie(&read("/proc/net/fib_trie"));
    host.extend(from_if_inet6(&read("/proc/net/if_inet6")));
    Rules {
        host,
        allow,
        gateways: vec![
            Ipv4Addr::from(passt::GATEWAY).into(),
            passt::GATEWAY_V6.into(),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_loopback_is_among_its_addresses() {
        let rules = of_this_host(Vec::new());
        let loopback = Ipv4Addr::LOCALHOST.into();
        assert!(rules.host.iter().any(|range| range.contains(loopback)));
    }
}
