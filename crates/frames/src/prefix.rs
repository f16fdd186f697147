//! An address range: `192.0.2.0/24`, `fd00::/8`, or one address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A range of IPv4 or IPv6 addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// Text that is not an address range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid address range {0:?}: give ADDRESS or ADDRESS/BITS, such as 192.0.2.0/24")]
pub struct PrefixError(String);

impl Prefix {
    /// The range of the addresses that share the first `length` bits with
    /// `address`; `None` if the address has fewer bits.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        (length <= bits(address)).then_some(Self { address, length })
    }

    /// Whether `address` is in the range. An IPv4 address is never in an IPv6
    /// range or the other way round.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing
                    .checked_shr(32 - u32::from(self.length))
                    .unwrap_or(0)
                    == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing
                    .checked_shr(128 - u32::from(self.length))
                    .unwrap_or(0)
                    == 0
            }
            _ => false,
        }
    }
}

impl From<Ipv4Addr> for Prefix {
    fn from(address: Ipv4Addr) -> Self {
        Self {
            address: address.into(),
            length: 32,
        }
    }
}

impl From<Ipv6Addr> for Prefix {
    fn from(address: Ipv6Addr) -> Self {
        Self {
            address: address.into(),
            length: 128,
        }
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let parse = || {
            let (address, length) = match text.split_once('/') {
                Some((address, length)) => (address, Some(length.parse().ok()?)),
                None => (text, None),
            };
            let address: IpAddr = address.parse().ok()?;
            Self::new(address, length.unwrap_or(bits(address)))
        };
        parse().ok_or_else(|| PrefixError(text.to_owned()))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.length == bits(self.address) {
            self.address.fmt(f)
        } else {
            write!(f, "{}/{}", self.address, self.length)
        }
    }
}

impl TryFrom<String> for Prefix {
    type Error = PrefixError;

    fn try_from(text: String) -> Result<Self, PrefixError> {
        text.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(range: &str, address: &str) -> bool {
        let range: Prefix = range.parse().expect("a range");
        range.contains(address.parse().expect("an address"))
    }

    #[test]
    fn a_range_contains_the_addresses_that_share_its_bits() {
        assert!(contains("192.0.2.7", "192.0.2.7"));
        assert!(!contains("192.0.2.7", "192.0.2.6"));
        assert!(contains("192.0.2.0/23", "192.0.3.255"));
        assert!(!contains("192.0.2.0/23", "192.0.4.0"));
        assert!(contains("0.0.0.0/0", "255.1.2.3"));
        assert!(contains("fd00::/8", "fdff::1"));
        assert!(contains("::/0", "ff02::1"));
        assert!(!contains("::/0", "1.2.3.4"));
        assert!(!contains("0.0.0.0/0", "::1"));
    }

    #[test]
    fn text_that_is_not_a_range_is_refused() {
        for text in ["", "1.2.3", "1.2.3.4/33", "::/129", "1.2.3.4/", "a/8"] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_range_prints_as_it_is_written() {
        for text in ["192.0.2.7", "192.0.2.0/24", "fd00::/8", "::1"] {
            let range: Prefix = text.parse().expect("a range");
            assert_eq!(range.to_string(), text);
        }
    }
}
