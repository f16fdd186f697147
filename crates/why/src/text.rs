//! Numbers as people write them.

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
    fn names_are_joined_as_in_a_sentence() {
        assert_eq!(vcpus(&[0]), "vCPU 0");
        assert_eq!(vcpus(&[0, 1, 3]), "vCPUs 0, 1 and 3");
    }
}
