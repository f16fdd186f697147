//! Random numbers: a ChaCha20 generator that forgets its key with each use,
//! seeded from virtio-rng at boot and again after each mebibyte.
//!
//! Without virtio-rng the seed is the clock's: good enough for ports and
//! sequence numbers, not for secrets ([`source`] tells). RDRAND is not used:
//! where KVM emulates the guest's instructions it ends the machine, and CPUID
//! does not tell.

mod chacha;
mod device;

use tare_hal::virtio::Transport;

use crate::sync::SpinLock;
use chacha::Stream;
use device::Entropy;

/// Bytes between two looks at the source.
const RESEED: usize = 1 << 20;

/// Where the seed came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The host's generator, through virtio-rng.
    Device,
    /// The clock: guessable.
    Clock,
}

struct State {
    device: Option<Entropy>,
    generator: Option<Generator>,
    source: Source,
    left: usize,
}

static STATE: SpinLock<State> = SpinLock::new(State {
    device: None,
    generator: None,
    source: Source::Clock,
    left: 0,
});

/// Fills `out` with random bytes.
///
/// ```
/// let (mut one, mut two) = ([0; 16], [0; 16]);
/// tare_libos::random::fill(&mut one);
/// tare_libos::random::fill(&mut two);
/// assert_ne!(one, two);
/// ```
pub fn fill(out: &mut [u8]) {
    let mut state = STATE.lock();
    if state.left < out.len() || state.generator.is_none() {
        state.reseed();
    }
    state.left = state.left.saturating_sub(out.len());
    if let Some(generator) = &mut state.generator {
        generator.fill(out);
    }
}

/// Where the random numbers come from.
pub fn source() -> Source {
    let mut state = STATE.lock();
    if state.generator.is_none() {
        state.reseed();
    }
    state.source
}

/// A number for generators that only need to differ at each boot.
pub(crate) fn seed() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// Takes a virtio-rng device over.
pub(crate) fn attach(transport: Transport) {
    match Entropy::new(transport) {
        Ok(device) => {
            let mut state = STATE.lock();
            state.device = Some(device);
            state.left = 0;
        }
        Err(error) => {
            let reason = crate::virtio::reason(&error);
            log::error!("random: the device cannot be set up: {reason}");
        }
    }
}

/// ChaCha20 with fast key erasure: each use takes a new key from the stream first, so that
/// bytes given out cannot be computed again from the state.
struct Generator {
    key: [u8; 32],
}

impl Generator {
    fn fill(&mut self, out: &mut [u8]) {
        let mut stream = Stream::new(&self.key);
        stream.fill(&mut self.key);
        stream.fill(out);
    }
}

impl State {
    /// Mixes new bytes from the source into the generator's key.
    fn reseed(&mut self) {
        let mut seed = [0; 32];
        self.source = if self.read_device(&mut seed) {
            Source::Device
        } else {
            read_clock(&mut seed);
            Source::Clock
        };
        if let Some(generator) = &mut self.generator {
            let mut old = [0; 32];
            generator.fill(&mut old);
            seed.iter_mut().zip(old).for_each(|(new, old)| *new ^= old);
        }
        self.generator = Some(Generator { key: seed });
        self.left = RESEED;
    }

    fn read_device(&mut self, seed: &mut [u8; 32]) -> bool {
        let Some(device) = &mut self.device else {
            return false;
        };
        let mut filled = 0;
        while filled < seed.len() {
            let read = device.read();
            let read = &read[..read.len().min(seed.len() - filled)];
            if read.is_empty() {
                return false;
            }
            seed[filled..filled + read.len()].copy_from_slice(read);
            filled += read.len();
        }
        true
    }
}

/// What differs from boot to boot without a device: the time, and how long
/// reading it takes.
fn read_clock(seed: &mut [u8; 32]) {
    let (words, _) = seed.as_chunks_mut::<8>();
    for word in words {
        let now = tare_hal::clock::now_ns().rotate_left(32) ^ tare_hal::clock::wall_ns();
        *word = now.to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_used_once() {
        let seed = [7; 32];
        let mut generator = Generator { key: seed };
        let (mut first, mut second) = ([0; 64], [0; 64]);
        generator.fill(&mut first);
        let key = generator.key;
        generator.fill(&mut second);
        assert_ne!(first, second);
        assert!(key != seed && generator.key != key);
        let mut again = Generator { key: seed };
        let mut same = [0; 64];
        again.fill(&mut same);
        assert_eq!(first, same);
    }

    #[test]
    fn any_length_is_filled() {
        for len in [0, 1, 31, 32, 33, 64, 200, 5000] {
            let mut bytes = vec![0; len];
            fill(&mut bytes);
            let zeros = bytes.iter().filter(|byte| **byte == 0).count();
            assert!(zeros <= 4 + len / 32, "{zeros} zeros of {len}");
        }
        assert_eq!(source(), Source::Clock);
    }
}
