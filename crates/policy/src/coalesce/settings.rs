//! What can be set: all parameters as plain data, and the checked form.

use core::fmt;

use super::Ratio;

/// Bounds of an epoch: shorter ones count too little, longer ones are late.
const EPOCH_NS: core::ops::RangeInclusive<u64> = 1_000_000..=60_000_000_000;
/// Bounds of the longest hold: beyond a second it is a hang, not a hold.
const LONGEST_HOLD_NS: core::ops::RangeInclusive<u64> = 1..=1_000_000_000;
/// A queue of virtio has at most this many entries (virtio 1.2, 2.7).
const DEEPEST: u32 = 32_768;

/// Which rule decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every completion is delivered.
    Off,
    /// The ratio follows commands in flight and IOPS (vIC).
    Auto,
    /// Plain coalescing, the control arm: this ratio and the longest hold,
    /// whatever is in flight and whichever thread waits.
    Fixed(Ratio),
}

/// All parameters, as set and as read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Which rule decides.
    pub mode: Mode,
    /// Below this many commands in flight everything is delivered; the rows of
    /// the table are its multiples. At least 2: depth 1 is never held. The
    /// published value is 4.
    pub cif_threshold: u32,
    /// Below this many completions per second everything is delivered. The
    /// published value is 2000.
    pub iops_threshold: u32,
    /// The ratio is chosen anew after this long: 1 ms to 60 s. 200 ms is the value
    /// recalled from descriptions of vIC 2011.
    pub epoch_ns: u64,
    /// No completion is held for longer: 1 ns to 1 s.
    pub longest_hold_ns: u64,
    /// A read is urgent while fewer reads than this are in flight, itself
    /// included; 0 and 1 make none urgent.
    pub read_urgent_below: u32,
    /// The same for writes of a driver that flushes (in this epoch or the one
    /// before): its next flush waits for them.
    pub write_urgent_below: u32,
}

impl Default for Parameters {
    /// vIC with its published constants.
    fn default() -> Self {
        Self {
            mode: Mode::Auto,
            cif_threshold: 4,
            iops_threshold: 2_000,
            epoch_ns: 200_000_000,
            longest_hold_ns: 1_000_000,
            read_urgent_below: 4,
            write_urgent_below: 4,
        }
    }
}

/// Parameters that were checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    parameters: Parameters,
}

impl Settings {
    /// Checks parameters; none is corrected silently.
    pub fn new(parameters: Parameters) -> Result<Self, SettingsError> {
        if !(2..=DEEPEST).contains(&parameters.cif_threshold) {
            return Err(SettingsError::CifThreshold(parameters.cif_threshold));
        }
        if !EPOCH_NS.contains(&parameters.epoch_ns) {
            return Err(SettingsError::Epoch(parameters.epoch_ns));
        }
        if !LONGEST_HOLD_NS.contains(&parameters.longest_hold_ns) {
            return Err(SettingsError::LongestHold(parameters.longest_hold_ns));
        }
        Ok(Self { parameters })
    }

    /// The defaults with another mode.
    pub fn with_mode(mode: Mode) -> Self {
        let parameters = Parameters {
            mode,
            ..Parameters::default()
        };
        Self { parameters }
    }

    /// What was set.
    pub const fn parameters(&self) -> &Parameters {
        &self.parameters
    }
}

impl TryFrom<Parameters> for Settings {
    type Error = SettingsError;

    fn try_from(parameters: Parameters) -> Result<Self, SettingsError> {
        Self::new(parameters)
    }
}

/// Why parameters cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsError {
    /// Threshold of commands in flight outside 2 to 32768.
    CifThreshold(u32),
    /// Epoch outside 1 ms to 60 s.
    Epoch(u64),
    /// Longest hold outside 1 ns to 1 s.
    LongestHold(u64),
    /// A ratio (delivered, of completions) that is not between 0 and 1.
    Ratio(u32, u32),
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CifThreshold(given) => {
                write!(
                    f,
                    "commands-in-flight threshold {given} is not in 2..=32768"
                )
            }
            Self::Epoch(given) => write!(f, "epoch of {given} ns is not in 1 ms..=60 s"),
            Self::LongestHold(given) => {
                write!(f, "longest hold of {given} ns is not in 1 ns..=1 s")
            }
            Self::Ratio(count, skip) => {
                write!(f, "ratio {count}/{skip} is not in 1/32768..=1")
            }
        }
    }
}

impl core::error::Error for SettingsError {}
