//! [`Random`]: numbers that no peer can predict, from the secret of this boot.

use siphasher::sip::SipHasher24;

/// What the numbers are for: each use has its own key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Wire,
    Loopback,
    UdpPorts,
    Dhcpv6,
}

/// SipHash-2-4 of a counter.
pub(crate) struct Random {
    hasher: SipHasher24,
    drawn: u64,
}

impl Random {
    pub(crate) fn new(secret: &[u8; 16], of: Use) -> Self {
        let of_secret = SipHasher24::new_with_key(secret);
        let half = |which| of_secret.hash(&[b'k', of as u8, which]);
        Self {
            hasher: SipHasher24::new_with_keys(half(0), half(1)),
            drawn: 0,
        }
    }

    /// The next number.
    pub(crate) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.hasher.hash(&self.drawn.to_le_bytes())
    }
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
        for secret in &secrets {
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
