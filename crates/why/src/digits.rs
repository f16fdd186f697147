//! Which digits of a figure its interval leaves.

/// Part of a figure from which its interval is printed.
const WIDE: f64 = 0.1;

/// The last digit that is known: 1,000 of 30,412 that may be off by 2,000. `least` is the smallest
/// digit that is printed.
pub(crate) fn unit(figure: f64, margin: f64, least: f64) -> f64 {
    let first_digit = |figure: f64| 10_f64.powi(figure.max(least).log10().floor() as i32);
    // A figure that may be off by all of it keeps its first digit.
    first_digit(margin).min(first_digit(figure))
}

/// Whether an interval is worth its words.
pub(crate) fn is_wide(figure: f64, [low, high]: [f64; 2], least: f64) -> bool {
    high - low > 2.0 * WIDE * figure && high - low > 2.0 * least
}
