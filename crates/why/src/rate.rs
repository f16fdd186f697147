//! A rate of events, and how well it is known where events were counted for a part of the
//! time.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::digits;
use crate::text::{percent, thousands};

/// The smallest digit of a rate that is not small.
const LEAST_HZ: f64 = 1.0;
/// Share of the window that leaves too little to extrapolate for a word about it.
const NEARLY_ALL: f64 = 0.9;
/// A rate below this is printed with one decimal.
const SMALL_HZ: f64 = 9.95;

/// Events per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// As far as is known.
    pub per_second: f64,
    /// 19 of 20 such intervals hold what there was; `None` where what was counted does not stand
    /// for the window: one slice of it says nothing of the others.
    pub interval: Option<[f64; 2]>,
    /// Share of the window in which events were counted.
    pub counted_share: f64,
}

impl Rate {
    /// A rate that may be off by `margin_hz`; infinite: by any number.
    pub(crate) fn new(per_second: f64, margin_hz: f64, counted_share: f64) -> Self {
        // The sum of nothing is -0.0.
        let per_second = per_second.max(0.0) + 0.0;
        let interval = [(per_second - margin_hz).max(0.0), per_second + margin_hz];
        Self {
            per_second,
            interval: margin_hz.is_finite().then_some(interval),
            counted_share,
        }
    }

    /// One that is known.
    pub fn exact(per_second: f64) -> Self {
        Self::new(per_second, 0.0, 1.0)
    }

    /// Without the digits that are not known.
    pub fn known(&self) -> f64 {
        if self.per_second < SMALL_HZ {
            return self.per_second;
        }
        let unit = self.unit();
        (self.per_second / unit).round() * unit
    }

    /// Whether it is off by more than a tenth, as far as is known.
    pub fn is_rough(&self) -> bool {
        match self.interval {
            Some(interval) => digits::is_wide(self.per_second, interval, LEAST_HZ),
            None => self.counted_share < NEARLY_ALL,
        }
    }

    /// Its lowest and highest value; `None` if they are not known.
    pub(crate) fn ends(&self) -> Option<[f64; 2]> {
        match self.interval {
            None if self.counted_share >= NEARLY_ALL => Some([self.per_second; 2]),
            interval => interval,
        }
    }

    /// What goes with it, at its lowest and highest value.
    pub(crate) fn along(&self, share: f64) -> Option<[f64; 2]> {
        let ends = self.ends()?;
        let part = |end: f64| {
            if self.per_second > 0.0 {
                share * (end / self.per_second)
            } else {
                share
            }
        };
        Some(ends.map(part))
    }

    /// As text for evidence below a headline that has the interval.
    pub(crate) const fn brief(&self) -> Brief<'_> {
        Brief(self)
    }

    fn fmt_known(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.per_second < SMALL_HZ {
            write!(f, "{:.1}/s", self.per_second)
        } else {
            write!(f, "{}/s", thousands(self.known() as u64))
        }
    }

    /// The last digit that is known.
    fn unit(&self) -> f64 {
        let margin = match self.interval {
            Some([_, high]) => high - self.per_second,
            None if self.counted_share >= NEARLY_ALL => 0.0,
            None => self.per_second / 10.0,
        };
        digits::unit(self.per_second, margin, LEAST_HZ)
    }
}

/// A rate without its interval: `about 30,000/s` if it has one to be printed.
pub(crate) struct Brief<'a>(&'a Rate);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_rough() {
            write!(f, "about ")?;
        }
        self.0.fmt_known(f)
    }
}

/// Without digits that are not known: `30,000/s (20,000 to 45,000; 14 % of the time counted)`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = self.unit();
        let known = |units: f64| thousands((units * unit) as u64);
        self.fmt_known(f)?;
        let counted = percent(self.counted_share);
        match self.interval {
            None if self.counted_share < NEARLY_ALL => {
                write!(f, " ({counted} of the time counted, no interval)")
            }
            Some([low, high]) if self.is_rough() => {
                let low = known((low / unit).floor());
                let high = known((high / unit).ceil());
                write!(f, " ({low} to {high}; {counted} of the time counted)")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(hz: f64, margin: f64, counted: f64) -> String {
        Rate::new(hz, margin, counted).to_string()
    }

    #[test]
    fn what_was_counted_whole_is_printed_as_it_is() {
        for hz in [0.0, 0.04, 9.94, 10.4, 1_000.2, 1_234_567.0] {
            assert_eq!(text(hz, 0.0, 1.0), crate::text::rate(hz));
        }
        assert_eq!(text(-0.0, 0.0, 1.0), "0.0/s");
    }

    #[test]
    fn a_wide_interval_is_printed_and_digits_that_are_not_known_are_not() {
        assert_eq!(
            text(30_412.0, 12_345.0, 0.14),
            "30,000/s (10,000 to 50,000; 14 % of the time counted)"
        );
        assert_eq!(
            text(30_412.0, 8_000.0, 0.14),
            "30,000/s (22,000 to 39,000; 14 % of the time counted)"
        );
        // Known to some per cent, it has three digits, and no word more.
        assert_eq!(text(30_412.0, 900.0, 0.14), "30,400/s");
        assert_eq!(text(30_412.0, 2_000.0, 0.5), "30,000/s");
        // It may be all chance.
        assert_eq!(
            text(70.0, 900.0, 0.02),
            "70/s (0 to 970; 2.0 % of the time counted)"
        );
        assert_eq!(
            text(0.0, 7.2, 0.02),
            "0.0/s (0 to 8; 2.0 % of the time counted)"
        );
    }

    #[test]
    fn evidence_has_the_rate_without_its_interval() {
        let brief = |hz, margin| Rate::new(hz, margin, 0.14).brief().to_string();
        assert_eq!(brief(30_412.0, 12_345.0), "about 30,000/s");
        assert_eq!(brief(30_412.0, f64::INFINITY), "about 30,000/s");
        assert_eq!(brief(30_412.0, 900.0), "30,400/s");
        assert_eq!(brief(3.4, 0.0), "3.4/s");
    }

    #[test]
    fn a_rate_of_one_slice_has_no_interval() {
        assert_eq!(
            text(30_412.0, f64::INFINITY, 0.034),
            "30,000/s (3.4 % of the time counted, no interval)"
        );
        assert_eq!(text(30_412.0, f64::INFINITY, 0.97), "30,412/s");
        // Two digits, since 100,000 would say less than is known.
        assert_eq!(
            text(143_092.0, f64::INFINITY, 0.13),
            "140,000/s (13 % of the time counted, no interval)"
        );
        assert_eq!(Rate::new(5.0, f64::INFINITY, 0.034).interval, None);
    }

    #[test]
    fn a_rough_rate_has_the_digits_that_are_known() {
        let known = |hz, margin| {
            let rate = Rate::new(hz, margin, 0.14);
            (rate.known(), rate.is_rough())
        };
        assert_eq!(known(30_412.0, 0.0), (30_412.0, false));
        assert_eq!(known(30_412.0, 900.0), (30_400.0, false));
        assert_eq!(known(30_412.0, 8_000.0), (30_000.0, true));
        assert_eq!(known(3.4, 0.5), (3.4, false));
        assert_eq!(known(143_092.0, f64::INFINITY), (140_000.0, true));
        assert!(!Rate::new(143_092.0, f64::INFINITY, 0.95).is_rough());
    }
}
