//! Content codings of files that were compressed before (RFC 9110, 8.4 and 12.5.3): which
//! of them a client takes.

use crate::request::Lines;

/// A coding that files are kept in beside their own form, by the end of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Brotli (RFC 7932), `.br`.
    Brotli,
    /// Zstandard (RFC 8878), `.zst`.
    Zstd,
    /// gzip (RFC 1952), `.gz`.
    Gzip,
}

/// A weight's scale: three decimals (RFC 9110, 12.4.2).
const WHOLE: u16 = 1000;

impl Encoding {
    /// All, what is preferred among equals first: it is usually the smallest.
    pub const ALL: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    /// What ends the name of a file in this coding.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Brotli => ".br",
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
        }
    }

    /// The coding's name in fields.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// How much a client wants this coding, of 1,000, by `Accept-Encoding`: 0 is not at all.
    pub fn weight(self, accepted: &Lines<'_>) -> u16 {
        let own = named(accepted, self.name());
        let own = match self {
            Self::Gzip => own.or_else(|| named(accepted, "x-gzip")),
            _ => own,
        };
        own.or_else(|| named(accepted, "*")).unwrap_or(0)
    }
}

/// How much a client that says so wants a file as it is; 0 for one that does not: it takes
/// that, and rather a coding that it named.
pub(crate) fn identity_weight(accepted: &Lines<'_>) -> u16 {
    named(accepted, "identity").unwrap_or(0)
}

/// The weight of the member of this name. Several lines are one list (RFC 9110, 5.3).
fn named(accepted: &Lines<'_>, name: &str) -> Option<u16> {
    let mut members = accepted
        .iter()
        .flat_map(|line| line.split(|byte| *byte == b','));
    members.find_map(|member| {
        let mut parts = member.split(|byte| *byte == b';');
        let coding = parts.next()?.trim_ascii();
        let is_it = coding.eq_ignore_ascii_case(name.as_bytes());
        is_it.then(|| weight(parts.next()))
    })
}

/// The value of `q=`; all without one, nothing if it makes no sense.
fn weight(parameter: Option<&[u8]>) -> u16 {
    let Some(parameter) = parameter else {
        return WHOLE;
    };
    let value = match parameter.trim_ascii() {
        [b'q' | b'Q', b'=', value @ ..] => value,
        _ => return 0,
    };
    match value {
        [b'1'] => WHOLE,
        [b'1', b'.', zeros @ ..] if zeros.len() <= 3 && zeros.iter().all(|it| *it == b'0') => WHOLE,
        [b'0', b'.', digits @ ..] if digits.len() <= 3 && digits.iter().all(u8::is_ascii_digit) => {
            let places = [100, 10, 1].into_iter().zip(digits);
            places
                .map(|(place, digit)| place * u16::from(digit - b'0'))
                .sum()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_read_by_name_or_for_any() {
        let lines = |field: &'static str| field.lines().map(str::as_bytes).collect::<Lines<'_>>();
        let weights = |field| Encoding::ALL.map(|it| it.weight(&lines(field)));
        assert_eq!(weights("gzip, deflate, br, zstd"), [1000, 1000, 1000]);
        assert_eq!(weights("gzip;q=0.5 , BR ; q=0.85"), [850, 0, 500]);
        assert_eq!(weights("*;q=0.25, br;q=0"), [0, 250, 250]);
        assert_eq!(weights("x-gzip;q=1.000"), [0, 0, 1000]);
        assert_eq!(weights("identity"), [0, 0, 0]);
        assert_eq!(weights(""), [0, 0, 0]);
        assert_eq!(weights("*;q=0.1, gzip\nbr;q=0.5\n"), [500, 100, 1000]);
        let of_identity = |field| identity_weight(&lines(field));
        assert_eq!(of_identity("gzip;q=0.5\nIdentity;q=0.75"), 750);
        assert_eq!(of_identity("*, gzip"), 0);
        for odd in [
            "br;q=2",
            "br;q=0.1234",
            "br;q=",
            "br;q=-1",
            "br;level=3",
            "br;q=1.5",
        ] {
            assert_eq!(weights(odd), [0, 0, 0], "{odd}");
        }
    }
}
