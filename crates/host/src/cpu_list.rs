//! Lists of CPUs as users and the kernel write them: `0-3,8`.

/// Most CPUs that a list of the kernel may name: no machine has more.
const MOST: u32 = 65_536;

/// A part of a list that is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeError {
    /// Neither a number nor a range.
    Form,
    /// The end comes before the beginning.
    Backwards,
}

/// First and last CPU of one part of a list, in digits only.
pub fn range(part: &str) -> Result<(u64, u64), RangeError> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let number = |text: &str| -> Result<u64, RangeError> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let value = digits.then(|| text.parse().ok()).flatten();
        value.ok_or(RangeError::Form)
    };
    let (first, last) = (number(first)?, number(last)?);
    if first <= last {
        Ok((first, last))
    } else {
        Err(RangeError::Backwards)
    }
}

/// The CPUs of a list that the kernel wrote; parts that make no sense are left out.
pub fn cpu_list(text: &str) -> Vec<u32> {
    let ranges = text.split(',').filter_map(|part| {
        let (first, last) = range(part.trim()).ok()?;
        Some((u32::try_from(first).ok()?, u32::try_from(last).ok()?))
    });
    ranges
        .flat_map(|(first, last)| first..=last.min(MOST))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_single_cpus_are_listed_and_nonsense_is_not() {
        assert_eq!(cpu_list("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(cpu_list(""), [0; 0]);
        assert_eq!(cpu_list("x,3,4-,+5,9-8"), [3]);
        assert!(cpu_list("0-4294967295").len() < 70_000);
    }
}
