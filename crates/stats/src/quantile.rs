//! Order: sorting samples and reading quantiles off them.

/// The samples in ascending order; `None` if one is not finite.
pub fn sorted(samples: &[f64]) -> Option<Vec<f64>> {
    if !samples.iter().all(|sample| sample.is_finite()) {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Some(sorted)
}

/// The `q`-quantile of ascending samples by linear interpolation between the
/// two nearest (type 7 of Hyndman and Fan 1996, the default of R and NumPy).
/// `q` outside 0 to 1 is taken as the nearer end; `NaN` for no samples.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let position = last as f64 * q.clamp(0.0, 1.0);
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    let fraction = position - below as f64;
    // Weighted sum, not `a + (b - a) * f`: the difference could overflow.
    sorted[below] * (1.0 - fraction) + sorted[above] * fraction
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_agree_with_numpy() {
        // numpy.quantile([1, 2, 4, 8, 16, 32, 64], ...)
        let sorted = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
        let expected = [
            (0.0, 1.0),
            (0.1, 1.6),
            (0.25, 3.0),
            (0.5, 8.0),
            (0.9, 44.8),
            (0.99, 62.08),
            (1.0, 64.0),
        ];
        for (q, value) in expected {
            assert!((quantile(&sorted, q) - value).abs() < 1e-12, "{q}");
        }
    }

    #[test]
    fn the_ends_hold_for_any_q() {
        assert_eq!(quantile(&[1.0, 2.0], -3.0), 1.0);
        assert_eq!(quantile(&[1.0, 2.0], 3.0), 2.0);
        assert_eq!(quantile(&[7.0], 0.3), 7.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn extremes_do_not_overflow() {
        let middle = quantile(&[-f64::MAX, f64::MAX], 0.5);
        assert_eq!(middle, 0.0);
    }

    #[test]
    fn samples_without_an_order_are_refused() {
        assert_eq!(sorted(&[1.0, f64::NAN]), None);
        assert_eq!(sorted(&[f64::INFINITY]), None);
        assert_eq!(sorted(&[2.0, 1.0]), Some(vec![1.0, 2.0]));
    }

    proptest! {
        #[test]
        fn quantiles_rise_with_q_and_stay_within(
            samples in prop::collection::vec(-1e9..1e9f64, 1..50),
            a in 0.0..1.0f64,
            b in 0.0..1.0f64,
        ) {
            let sorted = sorted(&samples).unwrap();
            let (low, high) = (quantile(&sorted, a.min(b)), quantile(&sorted, a.max(b)));
            let slack = 1e-6;
            prop_assert!(sorted[0] - slack <= low && high <= sorted[sorted.len() - 1] + slack);
            prop_assert!(low <= high + slack);
        }
    }
}
