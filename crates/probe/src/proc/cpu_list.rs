//! The kernel's lists of CPUs: `0-3,8`.

/// Most CPUs that a list may name: no machine has more.
const MOST: u32 = 65_536;

/// The CPUs of a list, as written; parts that make no sense are left out.
pub fn cpu_list(text: &str) -> Vec<u32> {
    let ranges = text.split(',').filter_map(range);
    ranges
        .flat_map(|(first, last)| first..=last.min(MOST))
        .collect()
}

fn range(part: &str) -> Option<(u32, u32)> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::cpu_list;

    #[test]
    fn ranges_and_single_cpus_are_listed_and_nonsense_is_not() {
        assert_eq!(cpu_list("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(cpu_list(""), [0; 0]);
        assert_eq!(cpu_list("x,3,4-"), [3]);
        assert!(cpu_list("0-4294967295").len() < 70_000);
    }
}
