//! Numbers for people: in tables, reports and sentences.

/// A value with about four significant digits, in millions above that.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 1e6 {
        let millions = format!("{:.3}", value / 1e6);
        return format!("{}M", millions.trim_end_matches('0').trim_end_matches('.'));
    }
    let digits = match size {
        _ if size == 0.0 || size >= 1000.0 || (size >= 100.0 && size.fract() == 0.0) => 0,
        _ if size >= 100.0 => 1,
        _ if size >= 10.0 => 2,
        _ if size >= 0.1 => 3,
        _ if size >= 0.01 => 4,
        // Three that are not zeros.
        _ => 2 + (-size.log10()).ceil().min(9.0) as usize,
    };
    let plain = format!("{value:.digits$}");
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    let fraction = fraction.trim_end_matches('0');
    let whole = grouped(whole);
    if fraction.is_empty() {
        whole
    } else {
        format!("{whole}.{fraction}")
    }
}

fn grouped(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |d| ("-", d));
    if digits.len() <= 4 {
        return format!("{sign}{digits}");
    }
    let mut out = sign.to_owned();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        for (value, text) in [
            (0.0, "0"),
            (0.01234, "0.0123"),
            (0.05, "0.05"),
            (0.0055, "0.0055"),
            (0.000_021_54, "0.0000215"),
            (1.5, "1.5"),
            (12.345, "12.35"),
            (100.0, "100"),
            (123.46, "123.5"),
            (1234.6, "1235"),
            (1_234_567.0, "1.235M"),
            (1_000_000.0, "1M"),
            (-45_678.0, "-45,678"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
