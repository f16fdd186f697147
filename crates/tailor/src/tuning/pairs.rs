//! Boots of one block against each other.

use tare_stats::{quantile, signed_rank, sorted};

use super::Measure;
use super::search_result::Effect;

/// Gains of an arm over the default, one for each block in which both were measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs {
    /// Logarithms of ratios, so that gain and loss have the same weight; positive is better.
    gains: Vec<f64>,
}

impl Pairs {
    /// Adds a block.
    pub(super) fn add(&mut self, measure: Measure, default: f64, arm: f64) {
        let gain = measure.sign() * (arm / default).ln();
        if gain.is_finite() {
            self.gains.push(gain);
        }
    }

    /// The middle gain; `None` without blocks.
    pub(super) fn middle(&self) -> Option<f64> {
        let gains = sorted(&self.gains).filter(|gains| !gains.is_empty())?;
        Some(quantile(&gains, 0.5))
    }

    /// The change of the measured value, and how sure it is.
    pub(super) fn effect(&self, measure: Measure) -> Option<Effect> {
        let test = signed_rank(&self.gains)?;
        let percent = |gain: f64| ((measure.sign() * gain).exp() - 1.0) * 100.0;
        let interval = test.interval.map(|it| {
            let (one, other) = (percent(it.low), percent(it.high));
            (one.min(other), one.max(other))
        });
        Some(Effect {
            change_percent: percent(test.shift),
            interval_percent: interval,
            p: test.p,
            blocks: test.n,
        })
    }

    /// p of the two-sided test where the arm is better than the default, else 1.
    pub(super) fn p_of_better(&self) -> f64 {
        let better = signed_rank(&self.gains).filter(|test| test.shift > 0.0);
        better.and_then(|test| test.p).unwrap_or(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(measure: Measure, arms: &[f64]) -> Pairs {
        let mut pairs = Pairs::default();
        arms.iter().for_each(|arm| pairs.add(measure, 100.0, *arm));
        pairs
    }

    #[test]
    fn less_is_better_for_instructions_and_more_for_a_rate() {
        let less = [90.0, 91.0, 89.0, 92.0, 88.0, 90.5, 89.5];
        let instructions = of(Measure::Instructions, &less);
        let effect = instructions.effect(Measure::Instructions).unwrap();
        assert!((effect.change_percent + 10.0).abs() < 0.1, "{effect:?}");
        let (low, high) = effect.interval_percent.unwrap();
        assert!((-12.0..-10.0).contains(&low) && (-10.0..=-8.0).contains(&high));
        assert!(instructions.p_of_better() < 0.02);
        let rate = of(Measure::Rate, &less);
        let effect = rate.effect(Measure::Rate).unwrap();
        assert!((effect.change_percent + 10.0).abs() < 0.1, "{effect:?}");
        assert_eq!(rate.p_of_better(), 1.0);
    }

    #[test]
    fn few_blocks_say_nothing_and_nonsense_is_no_block() {
        let few = of(Measure::Rate, &[110.0; 5]);
        assert_eq!(few.p_of_better(), 1.0);
        assert!(few.effect(Measure::Rate).unwrap().p.is_none());
        let none = of(Measure::Rate, &[0.0, f64::NAN, -1.0]);
        assert_eq!((none.middle(), none.effect(Measure::Rate)), (None, None));
    }
}
