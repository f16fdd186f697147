//! [`Cubic`]: how the congestion window grows without loss and how far loss
//! takes it back (RFC 9438), in integers: bytes and milliseconds.

use crate::time::{Duration, Instant};

/// C = 0.4 segments a cubic second; in cubic milliseconds 4 / 10^10.
const C_DIVISOR: i64 = 10_000_000_000;
const C_FACTOR: i64 = 4;
/// Growth is computed up to this distance from the plateau.
const DISTANCE_MAX_MS: i64 = 100_000;

/// One connection's curve.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cubic {
    /// The window before the last reduction in bytes.
    plateau: u32,
    epoch: Option<Epoch>,
}

#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Instant,
    /// Time from the start to the plateau.
    rise_ms: i64,
    plateau: u32,
    /// The window that Reno would have (RFC 9438, 4.3), in 1/256 bytes.
    reno_256: u64,
}

/// What one acknowledgement in congestion avoidance says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    pub(crate) now: Instant,
    pub(crate) acked: u32,
    pub(crate) window: u32,
    pub(crate) mss: u32,
    pub(crate) round_trip: Duration,
}

impl Cubic {
    /// The window after a congestion event: 0.7 of `window`.
    pub(crate) fn reduce(&mut self, window: u32) -> u32 {
        let reduced = (u64::from(window) * 7 / 10) as u32;
        // Fast convergence (RFC 9438, 4.7): leave room to newcomers.
        self.plateau = if window < self.plateau {
            (u64::from(window) * 17 / 20) as u32
        } else {
            window
        };
        self.epoch = None;
        reduced
    }

    /// Forgets the curve: the next acknowledgement begins a new one.
    pub(crate) fn restart(&mut self) {
        self.epoch = None;
    }

    /// The window after an acknowledgement.
    pub(crate) fn grow(&mut self, growth: Growth) -> u32 {
        let Growth {
            acked, window, mss, ..
        } = growth;
        let plateau = self.plateau;
        let epoch = self
            .epoch
            .get_or_insert_with(|| Epoch::new(plateau, &growth));
        let after = growth.now.since(epoch.start) + growth.round_trip;
        let target = epoch.target(after, mss);
        // Reno grows by 3 (1 - b) / (1 + b) = 0.53 segments a round trip below
        // the plateau, by one above.
        let rate = if epoch.reno_256 >> 8 < u64::from(epoch.plateau) {
            136
        } else {
            256
        };
        epoch.reno_256 += rate * u64::from(acked) * u64::from(mss) / u64::from(window.max(1));
        let reno = (epoch.reno_256 >> 8).min(u64::from(u32::MAX)) as u32;
        let target = target.clamp(window, window.saturating_add(window / 2));
        let step = u64::from(target - window) * u64::from(acked) / u64::from(window.max(1));
        window.saturating_add(step as u32).max(reno)
    }
}

impl Epoch {
    fn new(plateau: u32, growth: &Growth) -> Self {
        let (mss, window) = (u64::from(growth.mss.max(1)), growth.window);
        let plateau = plateau.max(window);
        // K = cbrt((W_max - cwnd) / C).
        let cubed = u64::from(plateau - window) * (C_DIVISOR / C_FACTOR) as u64 / mss;
        Self {
            start: growth.now,
            rise_ms: cube_root(cubed) as i64,
            plateau,
            reno_256: u64::from(window) << 8,
        }
    }

    fn target(&self, after: Duration, mss: u32) -> u32 {
        let distance = (after.as_millis().min(1 << 40) as i64 - self.rise_ms)
            .clamp(-DISTANCE_MAX_MS, DISTANCE_MAX_MS);
        let cube = i128::from(distance * distance * distance);
        let above = cube * i128::from(C_FACTOR) * i128::from(mss) / i128::from(C_DIVISOR);
        (i128::from(self.plateau) + above).clamp(0, i128::from(u32::MAX)) as u32
    }
}

/// The largest number whose cube is at most `n`, a bit at a time.
fn cube_root(n: u64) -> u64 {
    let mut root: u64 = 0;
    for bit in (0..21).rev() {
        let tried = root | 1 << bit;
        if tried.saturating_mul(tried).saturating_mul(tried) <= n {
            root = tried;
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    /// Windows after each round trip of `round_trip`, in segments.
    fn grow_for(cubic: &mut Cubic, mut window: u32, round_trip: Duration, rounds: u64) -> u32 {
        let mut now = Instant::from_micros(0);
        for _ in 0..rounds {
            let segments = window / MSS;
            for _ in 0..segments {
                let acked = MSS;
                window = cubic.grow(Growth {
                    now,
                    acked,
                    window,
                    mss: MSS,
                    round_trip,
                });
            }
            now = now + round_trip;
        }
        window
    }

    #[test]
    fn the_cube_root_is_exact() {
        for n in [0, 1, 7, 8, 26, 27, 1_000_000, 999_999, 1 << 60] {
            let root = cube_root(n);
            assert!(root.pow(3) <= n && (root + 1).pow(3) > n, "{n}: {root}");
        }
    }

    #[test]
    fn it_rises_to_the_plateau_in_k_and_then_beyond() {
        // W_max = 100 segments, 0.7 of it left: K = cbrt(30 / 0.4) = 4.217 s.
        let mut cubic = Cubic::default();
        let window = cubic.reduce(100 * MSS);
        assert_eq!(window, 70 * MSS);
        let round_trip = Duration::from_millis(100);
        let at_k = grow_for(&mut cubic.clone(), window, round_trip, 42);
        assert!((97 * MSS..=101 * MSS).contains(&at_k), "{at_k}");
        let later = grow_for(&mut cubic, window, round_trip, 84);
        assert!((120 * MSS..=132 * MSS).contains(&later), "{later}");
    }

    #[test]
    fn on_a_short_path_it_grows_as_reno_does() {
        let mut cubic = Cubic::default();
        let window = cubic.reduce(20 * MSS);
        let grown = grow_for(&mut cubic, window, Duration::from_micros(100), 40);
        // 0.53 of a segment a round trip up to 20, one above.
        assert!((40 * MSS..=50 * MSS).contains(&grown), "{grown}");
    }

    #[test]
    fn a_second_loss_below_the_plateau_lowers_it() {
        let mut cubic = Cubic::default();
        cubic.reduce(100 * MSS);
        cubic.reduce(80 * MSS);
        assert_eq!(cubic.plateau, 68 * MSS);
    }
}
