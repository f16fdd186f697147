//! [`Random`]: numbers that no peer can predict, from the secret of this boot.

use siphasher::sip::SipHasher24;

/// What the numbers are for: each use has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Wire,
    Loopback,
    UdpPorts,
    Dhcpv6,
}

/// SipHash-2-4 of a counter.
pub(crate) struct Random {
    secret: [u8; 16],
    of: Use,
    drawn: u64,
}

impl Random {
    pub(crate) const fn new(secret: [u8; 16], of: Use) -> Self {
        Self {
            secret,
            of,
            drawn: 0,
        }
    }

    /// The next number.
    pub(crate) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        let mut input = [self.of as u8; 9];
        input[1..].copy_from_slice(&self.drawn.to_le_bytes());
        hash(&self.secret, &input)
    }
}

/// SipHash-2-4. Once in an image: its rounds are long.
#[inline(never)]
pub(crate) fn hash(key: &[u8; 16], bytes: &[u8]) -> u64 {
    SipHasher24::new_with_key(key).hash(bytes)
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_differ_and_follow_from_the_secret() {
        let secrets = [[1; 16], [2; 16]];
        let uses = [Use::Wire, Use::Loopback, Use::UdpPorts, Use::Dhcpv6];
        let mut all = BTreeSet::new();
        for secret in secrets {
            for of in uses {
                let (mut one, mut again) = (Random::new(secret, of), Random::new(secret, of));
                for _ in 0..100 {
                    let number = one.draw();
                    assert_eq!(number, again.draw());
                    assert!(all.insert(number), "{number} twice");
                }
            }
        }
    }
}
