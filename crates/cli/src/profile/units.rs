//! Times and counts, short enough for a table.

/// A time in at most six characters: `123ns`, `1.23us`, `45.6ms`, `789s`.
pub(super) fn time(ns: u64) -> String {
    const UNITS: &[(u64, &str)] = &[(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let Some((size, unit)) = UNITS.iter().find(|(size, _)| ns >= *size) else {
        return format!("{ns}ns");
    };
    let value = ns as f64 / *size as f64;
    match value {
        ..9.995 => format!("{value:.2}{unit}"),
        ..99.95 => format!("{value:.1}{unit}"),
        _ => format!("{value:.0}{unit}"),
    }
}

/// A time that may be missing.
pub(super) fn time_or_none(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        assert_eq!(time(0), "0ns");
        assert_eq!(time(999), "999ns");
        assert_eq!(time(1_234), "1.23us");
        assert_eq!(time(45_600_000), "45.6ms");
        assert_eq!(time(9_996_000_000), "10.0s");
        assert_eq!(time(789_000_000_000), "789s");
        assert_eq!(time_or_none(None), "-");
    }
}
