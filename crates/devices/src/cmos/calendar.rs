//! Seconds since 1970 as a date and a time of day.

/// UTC, proleptic Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DateTime {
    pub(super) year: u64,
    /// 1 to 12.
    pub(super) month: u8,
    /// 1 to 31.
    pub(super) day: u8,
    /// 1 (Sunday) to 7.
    pub(super) weekday: u8,
    pub(super) hour: u8,
    pub(super) minute: u8,
    pub(super) second: u8,
}

impl DateTime {
    /// From seconds since 1970-01-01 00:00 UTC. The calendar repeats every 400
    /// years of 146,097 days; years are counted from March, so that the leap
    /// day is the last (H. Hinnant, "chrono-compatible low-level date algorithms").
    pub(super) fn from_unix(seconds: u64) -> Self {
        let (days, of_day) = (seconds / 86_400, seconds % 86_400);
        let since_march_0 = days + 719_468;
        let (era, of_era) = (since_march_0 / 146_097, since_march_0 % 146_097);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let month = (from_march + 2) % 12 + 1;
        Self {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month: month as u8,
            day: (of_year - (153 * from_march + 2) / 5 + 1) as u8,
            weekday: ((days + 4) % 7 + 1) as u8,
            hour: (of_day / 3_600) as u8,
            minute: (of_day / 60 % 60) as u8,
            second: (of_day % 60) as u8,
        }
    }
}
