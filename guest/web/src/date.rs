//! Dates as HTTP writes them (RFC 9110, 5.6.7), without formatting machinery.

/// Length of an IMF-fixdate, `Sun, 06 Nov 1994 08:49:37 GMT`.
pub const LEN: usize = 29;

const DAYS: [&[u8; 3]; 7] = [b"Sun", b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat"];
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];
const DAY_S: u64 = 86_400;
/// Last second of the year 9999, the latest that has four digits.
const LATEST_S: u64 = 253_402_300_799;

/// The date of a number of seconds since 1970.
pub fn format(unix_s: u64) -> [u8; LEN] {
    let unix_s = unix_s.min(LATEST_S);
    let (days, second) = (unix_s / DAY_S, (unix_s % DAY_S) as u32);
    let (year, month, day) = civil(days);
    let mut out = *b"Sun, 00 Jan 0000 00:00:00 GMT";
    out[..3].copy_from_slice(DAYS[((days + 4) % 7) as usize]);
    two_digits(&mut out[5..7], day);
    out[8..11].copy_from_slice(MONTHS[month as usize - 1]);
    two_digits(&mut out[12..14], year / 100);
    two_digits(&mut out[14..16], year % 100);
    two_digits(&mut out[17..19], second / 3600);
    two_digits(&mut out[20..22], second / 60 % 60);
    two_digits(&mut out[23..25], second % 60);
    out
}

/// The same as `1994-11-06T08:49:37Z` (RFC 3339).
pub fn iso(unix_s: u64) -> [u8; 20] {
    let date = format(unix_s);
    let month = MONTHS.iter().position(|month| **month == date[8..11]);
    let mut out = *b"0000-00-00T00:00:00Z";
    out[..4].copy_from_slice(&date[12..16]);
    two_digits(&mut out[5..7], month.unwrap_or(0) as u32 + 1);
    out[8..10].copy_from_slice(&date[5..7]);
    out[11..19].copy_from_slice(&date[17..25]);
    out
}

fn two_digits(out: &mut [u8], value: u32) {
    out[0] = b'0' + (value / 10) as u8;
    out[1] = b'0' + (value % 10) as u8;
}

/// Seconds since 1970 of a date in any of HTTP's three formats; `None` for
/// anything else, which a server is to ignore. Dates before 1970 count as 1970.
pub fn parse(text: &[u8]) -> Option<u64> {
    let text = core::str::from_utf8(text).ok()?;
    if !text.is_ascii() {
        return None;
    }
    let (head, rest) = text.split_once(' ')?;
    match (head.strip_suffix(','), rest.len()) {
        (Some(day), 24) if is_short_day(day) => imf_fixdate(rest),
        (Some(_), _) => rfc850_date(rest),
        (None, _) if is_short_day(head) => asctime_date(rest),
        _ => None,
    }
}

fn is_short_day(text: &str) -> bool {
    DAYS.iter().any(|day| text.as_bytes() == *day)
}

/// `06 Nov 1994 08:49:37 GMT`
fn imf_fixdate(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    if bytes[2] != b' ' || bytes[6] != b' ' || bytes[11] != b' ' || !text.ends_with(" GMT") {
        return None;
    }
    let (day, year) = (number(&text[..2])?, number(&text[7..11])?);
    unix_seconds(year, month(&text[3..6])?, day, &text[12..20])
}

/// `06-Nov-94 08:49:37 GMT`
fn rfc850_date(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix(" GMT")?.split_once(' ')?;
    let mut parts = date.split('-');
    let (day, name, year) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || day.len() != 2 || year.len() != 2 {
        return None;
    }
    // Two digits more than 50 years ahead mean the past century; a server that
    // runs before 2070 may take a fixed pivot.
    let year = match number(year)? {
        short @ 70.. => 1900 + short,
        short => 2000 + short,
    };
    unix_seconds(year, month(name)?, number(day)?, time)
}

/// `Nov  6 08:49:37 1994`
fn asctime_date(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    if bytes.len() != 20 || bytes[3] != b' ' || bytes[6] != b' ' || bytes[15] != b' ' {
        return None;
    }
    let day = number(text[4..6].trim_start_matches(' '))?;
    unix_seconds(number(&text[16..])?, month(&text[..3])?, day, &text[7..15])
}

fn unix_seconds(year: u32, month: u32, day: u32, time: &str) -> Option<u64> {
    let bytes = time.as_bytes();
    if bytes.len() != 8 || bytes[2] != b':' || bytes[5] != b':' {
        return None;
    }
    let (hour, minute) = (number(&time[..2])?, number(&time[3..5])?);
    let second = number(&time[6..])?;
    // 60 is a leap second.
    if hour > 23 || minute > 59 || second > 60 || day == 0 || day > month_days(year, month) {
        return None;
    }
    let Some(days) = days_since_1970(year, month, day) else {
        return Some(0);
    };
    Some(days * DAY_S + u64::from(hour * 3600 + minute * 60 + second))
}

fn number(text: &str) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

fn month(name: &str) -> Option<u32> {
    let at = MONTHS.iter().position(|month| name.as_bytes() == *month)?;
    Some(at as u32 + 1)
}

fn month_days(year: u32, month: u32) -> u32 {
    let century = year.is_multiple_of(100);
    let leap = year.is_multiple_of(4) && (!century || year.is_multiple_of(400));
    match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Year, month and day from days since 1970 (Hinnant, *chrono-compatible
/// low-level date algorithms*), counting years from March.
fn civil(days: u64) -> (u32, u32, u32) {
    let days = days as u32 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    (era * 400 + year_of_era + u32::from(month <= 2), month, day)
}

/// The inverse of [`civil`]; `None` before 1970.
fn days_since_1970(year: u32, month: u32, day: u32) -> Option<u64> {
    let year = u64::from(year).checked_sub(u64::from(month <= 2))?;
    let march_month = u64::from(if month > 2 { month - 3 } else { month + 9 });
    let of_year = (153 * march_month + 2) / 5 + u64::from(day) - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + of_year;
    days.checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_three_formats_of_the_standard_mean_the_same() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
        assert_eq!(&format(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn known_days_are_written_right() {
        // date -u -d @N
        assert_eq!(&format(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&format(951_782_400), b"Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(&format(4_107_542_399), b"Sun, 28 Feb 2100 23:59:59 GMT");
        assert_eq!(&format(u64::MAX), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn an_invalid_date_is_ignored() {
        for text in [
            "",
            "Sun",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Xxx, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sun Nov 06 08:49:37 1994 GMT",
            "S\u{fc}n, 06 Nov 1994 08:49:37 GM",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse(b"\xff, 06 Nov 1994 08:49:37 GMT"), None);
    }

    #[test]
    fn dates_before_1970_count_as_1970() {
        assert_eq!(parse(b"Mon, 01 Jan 1900 00:00:00 GMT"), Some(0));
        assert_eq!(parse(b"Mon, 01 Jan 0000 00:00:00 GMT"), Some(0));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(unix_s in 0..=LATEST_S) {
            prop_assert_eq!(parse(&format(unix_s)), Some(unix_s));
        }

        #[test]
        fn no_bytes_crash_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            parse(&bytes);
        }

        #[test]
        fn no_damage_crashes_the_reader(at in 0..29usize, byte in any::<u8>(), unix_s in 0..=LATEST_S) {
            let mut bytes = format(unix_s);
            bytes[at] = byte;
            parse(&bytes);
        }
    }
}
