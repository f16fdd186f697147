//! Which of many things are needed, by trying: bisection.

/// Finds a set of needed candidates of which none can be left out, given that
/// more work where fewer do, and that it is known not to work without any. `None`
/// if all together do not work; the error is `works`'s own (out of time,
/// interrupted).
///
/// Takes about log2(n) tries for each thing that is needed, most of them with a
/// beginning of the candidates: those whose tries cost least come first.
pub fn needed<T: Clone, E>(
    candidates: &[T],
    mut works: impl FnMut(&[T]) -> Result<bool, E>,
) -> Result<Option<Vec<T>>, E> {
    if !works(candidates)? {
        return Ok(None);
    }
    let mut needed: Vec<T> = Vec::new();
    let mut left = candidates.to_vec();
    while !left.is_empty() && (needed.is_empty() || !works(&needed)?) {
        // With what is needed already, the shortest beginning of the rest that
        // works: an empty one does not, and all of it does.
        let (mut too_short, mut enough) = (0, left.len());
        while too_short + 1 < enough {
            let middle = (too_short + enough) / 2;
            let set = [&needed, &left[..middle]].concat();
            if works(&set)? {
                enough = middle
            } else {
                too_short = middle
            }
        }
        let last = enough - 1;
        needed.push(left[last].clone());
        left.truncate(last);
    }
    Ok(Some(needed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(candidates: u32, wanted: &[u32]) -> (Option<Vec<u32>>, usize) {
        let all: Vec<u32> = (0..candidates).collect();
        let mut tries = 0;
        let mut result = needed(&all, |set| {
            tries += 1;
            Ok::<_, ()>(wanted.iter().all(|want| set.contains(want)))
        })
        .unwrap();
        if let Some(found) = &mut result {
            found.sort_unstable();
        }
        (result, tries)
    }

    #[test]
    fn exactly_what_is_needed_is_found_in_few_tries() {
        for wanted in [&[17][..], &[0], &[99], &[3, 50], &[0, 1, 99]] {
            let (result, tries) = found(100, wanted);
            assert_eq!(result.as_deref(), Some(wanted));
            assert!(tries <= 2 + 8 * wanted.len(), "{tries}");
        }
        assert_eq!(found(1, &[0]), (Some(vec![0]), 1));
    }

    #[test]
    fn what_is_known_not_to_work_is_not_tried() {
        let tried_none = |set: &[u32]| {
            assert!(!set.is_empty());
            Ok::<_, ()>(set.contains(&3))
        };
        assert_eq!(needed(&[1, 2, 3, 4], tried_none), Ok(Some(vec![3])));
    }

    #[test]
    fn what_is_not_among_the_candidates_is_not_found() {
        assert_eq!(found(10, &[11]), (None, 1));
    }

    #[test]
    fn an_error_ends_the_search() {
        let result = needed(&[1, 2, 3], |_| Err::<bool, _>("out of time"));
        assert_eq!(result, Err("out of time"));
    }
}
