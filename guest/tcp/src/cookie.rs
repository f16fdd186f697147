//! [`Cookies`]: connections that cost no memory before the peer has shown that
//! it receives answers (RFC 4987, 3.6).
//!
//! The initial sequence number holds a counter of minutes (5 bits), the index
//! of a segment size (3 bits) and a keyed hash (24 bits). With timestamps the low six
//! bits of the timestamp hold window scale and SACK, as on Linux.

use crate::config::Config;
use crate::options::{Options, Timestamps};
use crate::receive::scale_for;
use crate::secret::{FourTuple, Purpose, Secret};
use crate::segment::{Outgoing, Segment, flags};
use crate::seq::Seq;
use crate::time::Instant;

/// Segment sizes that a cookie can hold, ascending.
const SIZES: [u16; 8] = [216, 536, 940, 1200, 1300, 1400, 1440, 1460];
/// A counter step in seconds.
const STEP_S: u64 = 64;
/// Cookies of this many steps are accepted.
const STEPS_VALID: u32 = 2;
const SCALE_NONE: u32 = 15;
const SCALE_MASK: u32 = 15;
const SACK_BIT: u32 = 1 << 4;
const STATE_MASK: u32 = (1 << 6) - 1;

/// What a valid cookie says about the SYN that it answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// This side's initial sequence number.
    pub(crate) isn: Seq,
    /// The peer's options, as far as the cookie holds them.
    pub(crate) options: Options,
}

/// Makes and checks cookies.
#[derive(Clone, Copy, Debug)]
pub struct Cookies<'a> {
    secret: &'a Secret,
    now: Instant,
}

impl<'a> Cookies<'a> {
    /// Cookies of this time.
    pub fn new(secret: &'a Secret, now: Instant) -> Self {
        Self { secret, now }
    }

    fn counter(&self) -> u32 {
        (self.now.as_micros() / (STEP_S * 1_000_000)) as u32
    }

    fn number(&self, on: &FourTuple, peer: Seq, counter: u32, size: u32) -> Seq {
        let data =
            u64::from(peer.0) << 32 | u64::from(counter) << 3 & 0xffff_fff8 | u64::from(size);
        let hash = self.secret.hash(Purpose::Cookie, on, data) as u32;
        Seq((counter & 31) << 27 | size << 24 | hash & 0x00ff_ffff)
    }

    /// The SYN-ACK with a cookie, as a connection of `config` would send it.
    pub fn syn_ack(&self, on: &FourTuple, syn: &Segment<'_>, config: &Config) -> Outgoing<'static> {
        let asked = syn.options.mss.unwrap_or(536);
        let size = SIZES.iter().rposition(|size| *size <= asked).unwrap_or(0) as u32;
        let isn = self.number(on, syn.seq, self.counter(), size);
        let mut answer = Outgoing::control(flags::SYN | flags::ACK, isn);
        answer.ack = syn.seq + 1;
        answer.window = first_window(config);
        answer.options.mss = Some(config.mss);
        if let Some(stamps) = syn.options.timestamps {
            let mut state = syn.options.window_scale.map_or(SCALE_NONE, u32::from);
            if syn.options.sack_permitted {
                state |= SACK_BIT;
            }
            let now = timestamp(self.secret, on, self.now);
            let mut value = now & !STATE_MASK | state;
            // Never ahead of the clock: the next segment must not look older.
            if (value.wrapping_sub(now) as i32) > 0 {
                value = value.wrapping_sub(STATE_MASK + 1);
            }
            answer.options.timestamps = Some(Timestamps {
                value,
                echo: stamps.value,
            });
            answer.options.sack_permitted = syn.options.sack_permitted;
            answer.options.window_scale = syn
                .options
                .window_scale
                .map(|_| scale_for(config.receive_max));
        }
        answer
    }

    /// Checks the acknowledgement that would complete a handshake.
    pub fn check(&self, on: &FourTuple, segment: &Segment<'_>) -> Option<Recovered> {
        if segment.flags & (flags::SYN | flags::RST | flags::ACK) != flags::ACK {
            return None;
        }
        let isn = segment.ack - 1;
        let size = isn.0 >> 24 & 7;
        let now = self.counter();
        let made = (0..STEPS_VALID)
            .filter_map(|age| now.checked_sub(age))
            .find(|counter| counter & 31 == isn.0 >> 27)?;
        if self.number(on, segment.seq - 1, made, size) != isn {
            return None;
        }
        let mut options = Options {
            mss: Some(SIZES[size as usize]),
            timestamps: segment.options.timestamps,
            ..Options::default()
        };
        if let Some(stamps) = segment.options.timestamps {
            let scale = stamps.echo & SCALE_MASK;
            options.window_scale = (scale != SCALE_NONE).then_some(scale as u8);
            options.sack_permitted = stamps.echo & SACK_BIT != 0;
        }
        Some(Recovered { isn, options })
    }
}

/// The window of the SYN-ACK, which is not scaled.
pub(crate) fn first_window(config: &Config) -> u16 {
    config.receive_initial.min(u32::from(u16::MAX)) as u16
}

/// The timestamp clock: a millisecond a tick, with an offset of the connection's.
fn timestamp(secret: &Secret, on: &FourTuple, now: Instant) -> u32 {
    secret
        .timestamp_offset(on)
        .wrapping_add((now.as_micros() / 1000) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::SocketAddr;

    const SECRET: Secret = Secret::new([3; 16]);

    fn tuple(port: u16) -> FourTuple {
        FourTuple {
            local: SocketAddr::from(([10, 0, 0, 1], 80)),
            remote: SocketAddr::from(([10, 0, 0, 2], port)),
        }
    }

    fn at(secs: u64) -> Instant {
        Instant::from_micros(secs * 1_000_000)
    }

    fn segment(bits: u8, seq: u32, ack: u32, options: Options) -> Segment<'static> {
        Segment {
            seq: Seq(seq),
            ack: Seq(ack),
            flags: bits,
            window: 1000,
            options,
            payload: &[],
        }
    }

    #[test]
    fn a_cookie_gives_the_options_back() {
        let options = Options {
            mss: Some(1450),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 5, echo: 0 }),
            ..Options::default()
        };
        let syn = segment(flags::SYN, 99, 0, options);
        let sent = Cookies::new(&SECRET, at(100)).syn_ack(&tuple(1), &syn, &Config::default());
        assert_eq!(sent.ack, Seq(100));
        let echo = sent.options.timestamps.unwrap().value;
        let answer = Options {
            timestamps: Some(Timestamps { value: 6, echo }),
            ..Options::default()
        };
        let ack = segment(flags::ACK, 100, sent.seq.0.wrapping_add(1), answer);
        let got = Cookies::new(&SECRET, at(160))
            .check(&tuple(1), &ack)
            .unwrap();
        assert_eq!(got.isn, sent.seq);
        assert_eq!(got.options.mss, Some(1440));
        assert_eq!(
            (got.options.window_scale, got.options.sack_permitted),
            (Some(7), true)
        );
        let later = Cookies::new(&SECRET, at(300));
        assert_eq!(later.check(&tuple(1), &ack), None, "too old");
        let now = Cookies::new(&SECRET, at(100));
        assert_eq!(now.check(&tuple(2), &ack), None, "another four-tuple");
    }

    #[test]
    fn guesses_are_refused() {
        let cookies = Cookies::new(&SECRET, at(100));
        let hits = (0..20_000u32)
            .map(|n| segment(flags::ACK, 100, n.wrapping_mul(214_748), Options::default()))
            .filter(|ack| cookies.check(&tuple(1), ack).is_some())
            .count();
        assert!(hits <= 1, "{hits}");
    }
}
