//! [`PathMtu`]: the largest segment that the path carries: from ICMP (RFC 1191,
//! RFC 8201) and, where that is filtered, from segments that never arrive
//! (RFC 4821, 7.5, without probing upwards again).

/// Segments are never made smaller for ICMP's sake: a forged message must not
/// cost more than this (Linux: `min_pmtu` 552 without headers).
const FLOOR: u16 = 512;
/// First guess when large segments vanish (RFC 4821, 7.2: 1,024 bytes).
const BASE: u16 = 1024;
/// Timeouts in a row of a large segment that mean a black hole.
const TIMEOUTS: u32 = 2;

/// One connection's limit for header options and payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathMtu {
    mss: u16,
}

impl PathMtu {
    pub(crate) fn new(mss: u16) -> Self {
        Self { mss }
    }

    pub(crate) fn mss(self) -> u16 {
        self.mss
    }

    /// The peer's SYN limits it too.
    pub(crate) fn limit(&mut self, mss: u16) {
        self.mss = self.mss.min(mss);
    }

    /// A router said what it carries, headers taken off. Says whether that is news.
    pub(crate) fn on_too_big(&mut self, mss: u16) -> bool {
        let mss = mss.max(FLOOR);
        let smaller = mss < self.mss;
        if smaller {
            self.mss = mss;
        }
        smaller
    }

    /// A segment of `len` bytes timed out `timeouts` times in a row.
    pub(crate) fn on_timeout(&mut self, len: u32, timeouts: u32) -> bool {
        if timeouts < TIMEOUTS || len <= u32::from(FLOOR) || self.mss <= FLOOR {
            return false;
        }
        self.mss = if self.mss > BASE { BASE } else { FLOOR };
        true
    }
}
