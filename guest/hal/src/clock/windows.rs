//! Frequencies from samples of several clocks, and the median of several windows:
//! the arithmetic of `calibrate`.

#![cfg_attr(not(target_os = "none"), allow(dead_code))] // the host measures nothing

/// Windows, of which the median counts.
pub(super) const WINDOWS: usize = 5;

/// What was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Measured {
    /// TSC frequency.
    pub(super) tsc_hz: u64,
    /// APIC timer frequency at divider 1.
    pub(super) timer_hz: u64,
}

/// Time on the clock of known frequency.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    pub(super) ticks: u64,
    pub(super) hz: u64,
}

/// All clocks at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) tsc: u64,
    /// The clock of known frequency.
    pub(super) clock: u64,
    /// The APIC's timer, which counts down.
    pub(super) timer: u32,
    /// TSC ticks that the reading took.
    pub(super) took: u64,
}

impl Sample {
    /// The frequencies between this sample and a later one; `None` if no time passed.
    pub(super) fn to(&self, later: &Self, passed: &Passed) -> Option<Measured> {
        let hz = |ticks: u64| ticks.checked_mul(passed.hz)?.checked_div(passed.ticks);
        Some(Measured {
            tsc_hz: hz(later.tsc.wrapping_sub(self.tsc))?,
            timer_hz: hz(u64::from(self.timer.wrapping_sub(later.timer)))?,
        })
    }
}

/// The median of each figure on its own.
pub(super) fn median(mut windows: [Measured; WINDOWS]) -> Measured {
    windows.sort_unstable_by_key(|window| window.tsc_hz);
    let tsc_hz = windows[WINDOWS / 2].tsc_hz;
    windows.sort_unstable_by_key(|window| window.timer_hz);
    let timer_hz = windows[WINDOWS / 2].timer_hz;
    Measured { tsc_hz, timer_hz }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(tsc: u64, timer: u32) -> Sample {
        Sample {
            tsc,
            clock: 0,
            timer,
            took: 0,
        }
    }

    #[test]
    fn frequencies_follow_from_two_samples_over_wrapping_counters() {
        let passed = Passed {
            ticks: 3_580,
            hz: 3_579_545,
        };
        // A millisecond at 2 GHz and 1 GHz, with the timer counting down.
        let begin = sample(u64::MAX - 10, 500_000);
        let end = sample(1_999_989, u32::MAX - 499_999);
        let measured = begin.to(&end, &passed).unwrap_or_default();
        assert!(
            measured.tsc_hz.abs_diff(2_000_000_000) < 1_000_000,
            "{measured:?}"
        );
        assert!(
            measured.timer_hz.abs_diff(1_000_000_000) < 1_000_000,
            "{measured:?}"
        );
        let still = Passed { ticks: 0, ..passed };
        assert_eq!(begin.to(&end, &still), None, "the clock stood still");
    }

    #[test]
    fn two_disturbed_windows_of_five_do_not_count() {
        let window = |tsc_hz, timer_hz| Measured { tsc_hz, timer_hz };
        let windows = [
            window(9_000, 30),
            window(2_001, 31),
            window(2_000, 90),
            window(100, 29),
            window(1_999, 2),
        ];
        assert_eq!(median(windows), window(2_000, 30));
    }
}
