//! Whether a thread that has run out of work looks for more before it sleeps, and lets others run in
//! between.
//!
//! A sleep costs two switches of the thread, and whoever has work for it must wake it: a guest by an
//! exit. Where the CPUs are busy, what comes next is often made by a thread that waits for this
//! one's CPU, so that a look after it has run finds it. Where they are not, a look finds nothing, and
//! [`Looks`] learns that: looks that find something make further ones worth it, and others do not.

/// Looks before a sleep. Each is a system call or two.
const EACH: u32 = 4;
/// What a find is worth in fruitless turns: it saves some four times as much as they cost.
const GAIN: u32 = 4;
/// Fruitless turns after which looks stop, at most.
const MOST: u32 = 16;
/// Of turns without looks, one in this many tries them.
const TRY_EVERY: u32 = 64;

/// The account of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    left: u32,
    worth: u32,
    /// Without looks, since the last try.
    turns: u32,
    /// Since the last work.
    has_looked: bool,
}

impl Looks {
    /// A thread that has looked for nothing yet.
    pub const fn new() -> Self {
        Self {
            left: 0,
            worth: 0,
            turns: 0,
            has_looked: false,
        }
    }

    /// There was work: an event, or what a look has found.
    pub fn worked(&mut self) {
        if core::mem::take(&mut self.has_looked) {
            self.worth = (self.worth + GAIN).min(MOST);
        }
        self.left = match self.worth {
            0 => {
                self.turns = (self.turns + 1) % TRY_EVERY;
                if self.turns == 0 { EACH } else { 0 }
            }
            _ => EACH,
        };
    }

    /// Whether looks follow the work that there is now.
    pub fn follow(&self) -> bool {
        self.left > 0
    }

    /// There is no work now: whether to look again rather than sleep.
    pub fn again(&mut self) -> bool {
        if self.left == 0 {
            if core::mem::take(&mut self.has_looked) {
                self.worth = self.worth.saturating_sub(1);
            }
            return false;
        }
        self.left -= 1;
        self.has_looked = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks before a sleep, the last of which finds something if `finds`.
    fn turn(looks: &mut Looks, finds: bool) -> u32 {
        looks.worked();
        let mut count = 0;
        while looks.again() {
            count += 1;
            if finds {
                break;
            }
        }
        count
    }

    #[test]
    fn fruitless_looks_are_tried_once_in_a_while_alone() {
        let mut looks = Looks::new();
        let looked: u32 = (0..64_000).map(|_| turn(&mut looks, false)).sum();
        assert_eq!(looked, 64_000 / TRY_EVERY * EACH);
    }

    /// Finds at no fixed distance, as the tries have one.
    #[test]
    fn one_find_in_three_keeps_them_up_and_one_in_twelve_does_not() {
        let share = |every: u32| {
            let mut looks = Looks::new();
            let turns = 64_000;
            let finds = |n: u32| (n.wrapping_mul(0x9e37_79b1) >> 16).is_multiple_of(every);
            let with = (0..turns).filter(|n| turn(&mut looks, finds(*n)) > 0);
            with.count() as f64 / f64::from(turns)
        };
        assert!(share(3) > 0.9, "{}", share(3));
        assert!(share(12) < 0.3, "{}", share(12));
    }

    #[test]
    fn it_learns_within_a_few_turns_that_they_no_longer_pay() {
        let mut looks = Looks::new();
        for _ in 0..1000 {
            turn(&mut looks, true);
        }
        let after = (0..1000).filter(|_| turn(&mut looks, false) > 0).count();
        assert!(after as u32 <= MOST + 1 + 1000 / TRY_EVERY + 1, "{after}");
    }
}
