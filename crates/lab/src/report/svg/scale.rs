//! From values to positions, and round values to mark.

/// A linear or logarithmic axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    kind: ScaleKind,
    from: f64,
    to: f64,
    /// Position of `from` and of `to`.
    ends: (f64, f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScaleKind {
    Linear,
    Log,
}

/// Values this far apart have a logarithmic axis.
const WIDE: f64 = 8.0;

impl Scale {
    /// Whether values from `least` to `greatest` want a logarithmic axis.
    pub(crate) fn is_wide(least: f64, greatest: f64) -> bool {
        least > 0.0 && greatest > WIDE * least
    }

    /// A linear axis.
    pub(crate) fn linear(from: f64, to: f64, ends: (f64, f64)) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        Self {
            kind: ScaleKind::Linear,
            from,
            to,
            ends,
        }
    }

    /// A logarithmic axis that begins and ends at one, two or five times a
    /// power of ten around positive values.
    pub(crate) fn log(least: f64, greatest: f64, ends: (f64, f64)) -> Self {
        let least = least.max(1e-9);
        let from = steps(least / 10.0)
            .filter(|v| *v <= least)
            .last()
            .unwrap_or(least);
        let to = steps(greatest.max(least)).find(|v| *v >= greatest && *v > from);
        Self {
            kind: ScaleKind::Log,
            from,
            to: to.unwrap_or(from * 10.0),
            ends,
        }
    }

    /// Where `value` is.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let part = match self.kind {
            ScaleKind::Linear => (value - self.from) / (self.to - self.from),
            ScaleKind::Log => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
        };
        self.ends.0 + part * (self.ends.1 - self.ends.0)
    }

    /// Round values on the axis, about `count` of them.
    pub(crate) fn ticks(&self, count: usize) -> Vec<f64> {
        match self.kind {
            ScaleKind::Linear => self.linear_ticks(count),
            ScaleKind::Log => self.log_ticks(count),
        }
    }

    fn linear_ticks(&self, count: usize) -> Vec<f64> {
        let raw = (self.to - self.from) / count.max(1) as f64;
        let step = steps(raw / 10.0).find(|s| *s >= raw).unwrap_or(raw);
        let first = (self.from / step).ceil() as i64;
        let ticks = (first..).map(|i| i as f64 * step);
        ticks.take_while(|t| *t <= self.to + step * 1e-6).collect()
    }

    fn log_ticks(&self, count: usize) -> Vec<f64> {
        let within = |v: &f64| *v <= self.to * 1.000_001;
        let all: Vec<f64> = steps(self.from)
            .skip_while(|v| *v < self.from * 0.999_999)
            .take_while(within)
            .collect();
        if all.len() <= count + 1 {
            return all;
        }
        let decade = |v: &f64| (v.log10() - v.log10().round()).abs() < 1e-6;
        all.into_iter().filter(decade).collect()
    }
}

/// 1, 2, 5, 10, 20, ... from the power of ten below `from` on, six decades.
fn steps(from: f64) -> impl Iterator<Item = f64> {
    let decade = from.log10().floor() as i32;
    (decade..decade + 8).flat_map(|d| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(d)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        let linear = Scale::linear(0.0, 9.4, (0.0, 100.0));
        assert_eq!(linear.ticks(5), [0.0, 2.0, 4.0, 6.0, 8.0]);
        let log = Scale::log(1300.0, 21_000.0, (0.0, 100.0));
        let close = |a: &[f64], b: &[f64]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a / b - 1.0).abs() < 1e-9)
        };
        let expected = [1e3, 2e3, 5e3, 1e4, 2e4, 5e4];
        assert!(close(&log.ticks(6), &expected), "{:?}", log.ticks(6));
        assert!(close(&log.ticks(3), &[1e3, 1e4]), "{:?}", log.ticks(3));
    }

    #[test]
    fn a_log_axis_holds_one_value_too() {
        let log = Scale::log(5.0, 5.0, (0.0, 1.0));
        assert!((0.0..=1.0).contains(&log.at(5.0)));
    }
}
