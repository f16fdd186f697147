//! Numbers as people write them.

use crate::digits;

/// A rate per second: three digits count.
pub fn rate(hz: f64) -> String {
    // The sum of nothing is -0.0, and may stay so in a maximum.
    match hz.max(0.0) + 0.0 {
        _ if hz >= 99.95 => format!("{}/s", thousands(hz.round() as u64)),
        _ if hz >= 9.95 => format!("{hz:.0}/s"),
        hz => format!("{hz:.1}/s"),
    }
}

/// A share of a core in per cent.
pub fn percent(share: f64) -> String {
    match share.max(0.0) * 100.0 + 0.0 {
        value if value >= 9.95 => format!("{value:.0} %"),
        value => format!("{value:.1} %"),
    }
}

/// The smallest digit of a share, in per cent.
const LEAST_PERCENT: f64 = 0.1;

/// A share of a core in per cent without the digits that its interval leaves open; `None`: no
/// interval is known, and two digits are printed.
pub fn known_percent(share: f64, interval: Option<[f64; 2]>) -> String {
    let value = share.max(0.0) * 100.0 + 0.0;
    let margin = margin(share, interval) * 100.0;
    match digits::unit(value, margin, LEAST_PERCENT) {
        // A share has two digits at least as long as they are known.
        unit if margin > LEAST_PERCENT && unit >= 1.0 => {
            format!("{:.0} %", (value / unit).round() * unit)
        }
        _ => percent(share),
    }
}

/// Its interval where that is wide: ` (20 to 41 %)`.
pub fn interval(share: f64, interval: Option<[f64; 2]>) -> String {
    let Some([low, high]) = interval else {
        return " (no interval)".to_owned();
    };
    let ends = [low * 100.0, high * 100.0];
    if !digits::is_wide(share * 100.0, ends, LEAST_PERCENT) {
        return String::new();
    }
    let margin = margin(share, interval) * 100.0;
    let unit = digits::unit(share * 100.0, margin, LEAST_PERCENT);
    let low = (ends[0].max(0.0) / unit + 1e-9).floor() * unit;
    let high = (ends[1] / unit - 1e-9).ceil() * unit;
    if unit >= 1.0 {
        format!(" ({low:.0} to {high:.0} %)")
    } else {
        format!(" ({low:.1} to {high:.1} %)")
    }
}

/// Whether [`interval`] prints one.
pub fn is_rough(share: f64, interval: Option<[f64; 2]>) -> bool {
    interval.is_none_or(|ends| {
        digits::is_wide(share * 100.0, ends.map(|end| end * 100.0), LEAST_PERCENT)
    })
}

fn margin(share: f64, interval: Option<[f64; 2]>) -> f64 {
    interval.map_or(0.0, |[low, high]| (high - share).max(share - low).max(0.0))
}

/// A count with commas.
pub(crate) fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Names in a sentence: `0`, `0 and 1`, `0, 1 and 2`.
pub fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// vCPUs by index in a sentence.
pub fn vcpus(indices: &[u32]) -> String {
    let names: Vec<String> = indices.iter().map(u32::to_string).collect();
    match names.len() {
        1 => format!("vCPU {}", names[0]),
        _ => format!("vCPUs {}", list(&names)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_as_many_digits_as_count() {
        assert_eq!(
            [0.04, 9.94, 10.4, 1000.2, 1_234_567.0].map(rate),
            ["0.0/s", "9.9/s", "10/s", "1,000/s", "1,234,567/s"]
        );
        assert_eq!([0.071, 0.2, 1.5].map(percent), ["7.1 %", "20 %", "150 %"]);
        assert_eq!(
            (rate(-0.0), percent(-0.0)),
            ("0.0/s".into(), "0.0 %".into())
        );
    }

    #[test]
    fn a_share_has_the_digits_that_its_interval_leaves() {
        let text = |share: f64, ends| {
            let known = known_percent(share, ends);
            format!("{known}{}", interval(share, ends))
        };
        assert_eq!(text(0.071, Some([0.071, 0.071])), "7.1 %");
        assert_eq!(text(0.071, Some([0.069, 0.073])), "7.1 %");
        assert_eq!(text(0.304, Some([0.25, 0.37])), "30 % (25 to 37 %)");
        assert_eq!(text(0.47, Some([0.2, 0.9])), "50 % (20 to 90 %)");
        assert_eq!(text(0.071, Some([0.04, 0.09])), "7 % (4 to 9 %)");
        assert_eq!(text(0.006, Some([0.0, 0.013])), "0.6 % (0.0 to 1.3 %)");
        assert_eq!(text(0.304, None), "30 % (no interval)");
        assert!(is_rough(0.3, Some([0.2, 0.4])) && is_rough(0.3, None));
        assert!(!is_rough(0.3, Some([0.29, 0.31])));
    }

    #[test]
    fn names_are_joined_as_in_a_sentence() {
        assert_eq!(vcpus(&[0]), "vCPU 0");
        assert_eq!(vcpus(&[0, 1, 3]), "vCPUs 0, 1 and 3");
    }
}
