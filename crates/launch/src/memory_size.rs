//! Sizes of guest memory as users write them: `64`, `512M`, `1G`.

use std::str::FromStr;

/// A requested size of guest memory in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySize {
    /// MiB.
    pub mib: u32,
}

/// A size that cannot be parsed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// No number, or an unknown unit.
    #[error("invalid size: use a number of MiB, or a number with a unit: 64, 512M, 1G")]
    Form,
    /// More than fits the type.
    #[error("{0} is too large for a size of memory")]
    Huge(String),
    /// Kilobytes that are not a multiple of 1 MiB.
    #[error("{0} is not a whole number of MiB")]
    Fraction(String),
}

impl FromStr for MemorySize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(SizeError::Form);
        }
        let huge = || SizeError::Huge(text.to_owned());
        let kib_per_unit: u64 = match unit.to_ascii_lowercase().as_str() {
            "k" | "kb" | "kib" => 1,
            "" | "m" | "mb" | "mib" => 1 << 10,
            "g" | "gb" | "gib" => 1 << 20,
            "t" | "tb" | "tib" => 1 << 30,
            _ => return Err(SizeError::Form),
        };
        let number: u64 = number.parse().map_err(|_| huge())?;
        let kib = number.checked_mul(kib_per_unit).ok_or_else(huge)?;
        if kib % 1024 != 0 {
            return Err(SizeError::Fraction(text.to_owned()));
        }
        let mib = u32::try_from(kib / 1024).map_err(|_| huge())?;
        Ok(Self { mib })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mib(text: &str) -> Result<u32, SizeError> {
        text.parse::<MemorySize>().map(|size| size.mib)
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(mib("64"), Ok(64));
        assert_eq!(mib("512M"), Ok(512));
        assert_eq!(mib("1G"), Ok(1024));
        assert_eq!(mib("2gib"), Ok(2048));
        assert_eq!(mib("65536k"), Ok(64));
    }

    #[test]
    fn an_invalid_size_is_refused() {
        for text in ["", "M", "-1", "1.5G", "64X", "0x10"] {
            assert_eq!(mib(text), Err(SizeError::Form), "{text}");
        }
        assert!(matches!(mib("100k"), Err(SizeError::Fraction(_))));
        assert!(matches!(
            mib("99999999999999999999"),
            Err(SizeError::Huge(_))
        ));
        assert!(matches!(mib("9999999T"), Err(SizeError::Huge(_))));
    }
}
