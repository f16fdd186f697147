//! Whose turn it is.

use crate::bench::Bench;

/// All of `all`, once around from the one at `first`.
pub(crate) fn rotated<T: Copy>(all: &[T], first: usize) -> impl Iterator<Item = T> {
    (0..all.len()).map(move |index| all[(index + first) % all.len()])
}

/// Says that a turn of round `round`, from 0, begins.
pub(crate) fn announce(bench: &Bench<'_>, round: usize, rounds: usize, what: &str) {
    let round = round + 1;
    let step = format!("round {round} of {rounds}: {what}");
    bench.progress.step(&step);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotation_has_each_once_from_the_given_one_on() {
        let order = |first| rotated(&[1, 2, 3], first).collect::<Vec<_>>();
        assert_eq!(order(0), [1, 2, 3]);
        assert_eq!(order(2), [3, 1, 2]);
        assert_eq!(order(4), [2, 3, 1]);
    }
}
