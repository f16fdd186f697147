//! A number of bytes as `tare set` takes it.

/// Bytes, or a number with a unit: K, M, G or T, each 1,024 times the one before.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|it: char| it.is_ascii_alphabetic());
    let power = match &text[digits.len()..] {
        "" => Some(0),
        "K" | "k" => Some(1),
        "M" | "m" => Some(2),
        "G" | "g" => Some(3),
        "T" | "t" => Some(4),
        _ => None,
    };
    let number = digits.parse::<u64>().ok();
    let bytes = number
        .zip(power)
        .and_then(|(number, power)| number.checked_mul(1024u64.pow(power)));
    bytes.ok_or_else(|| format!("{text:?} is not a number of bytes such as 10737418240 or 10G"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_in_bytes_or_has_a_unit() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("3K"), Ok(3 << 10));
        assert_eq!(parse("2G"), Ok(2 << 30));
        assert_eq!(parse("1t"), Ok(1 << 40));
        for wrong in ["", "G", "1.5G", "-1", "1GiB", "99999999999T", "1\u{e4}"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
