//! What each window would cost and catch, and the best of them for a budget.

use super::experience::Experience;
use super::{BUCKETS, LONGEST_SHIFT, LONGEST_WINDOW_NS, SHORTEST_SHIFT, Waits, middle_of};

/// Windows that the rule chooses from, none included.
pub(super) const POINTS: usize = LONGEST_SHIFT - SHORTEST_SHIFT + 2;

/// A window with what it is worth, in units of [`Waits`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Point {
    window_ns: u64,
    caught: u128,
    cost_ns: u128,
}

/// The windows that are worth having, from none to the one that catches the
/// most: each catches more than the one before at a higher price for each catch.
/// Taking turns between two of them reaches any point between.
#[derive(Clone, Debug)]
pub struct Curve {
    hull: [Point; POINTS],
    len: usize,
    elapsed_ns: u64,
}

impl Curve {
    /// The curve of some waits.
    pub fn of(waits: &Waits) -> Self {
        Self::through(points(waits.counts()), waits.elapsed_ns())
    }

    /// The curve without windows that rest at `now_ns`, at costs as they were counted.
    pub(super) fn corrected(waits: &Waits, experience: &Experience, now_ns: u64) -> Self {
        let mut points = points(waits.counts());
        for (index, point) in points.iter_mut().enumerate().skip(1) {
            if experience.rests(index, now_ns) {
                *point = Point::default();
            } else {
                point.cost_ns = experience.cost(index, point.cost_ns);
            }
        }
        Self::through(points, waits.elapsed_ns())
    }

    fn through(points: [Point; POINTS], elapsed_ns: u64) -> Self {
        let mut curve = Self {
            hull: [Point::default(); POINTS],
            len: 1,
            elapsed_ns,
        };
        while let Some(next) = steepest(&points, curve.hull[curve.len - 1]) {
            curve.hull[curve.len] = next;
            curve.len += 1;
        }
        curve
    }

    /// The windows on either side of a budget in units of 0.01 % of a CPU: the
    /// best that costs no more, and the next, which costs more. They are the
    /// same when the best of all costs no more.
    pub fn around(&self, per_myriad: u16) -> (u64, u64) {
        // Costs are in units of waits, and so is what may be spent.
        let unit = u128::from(Waits::UNIT);
        let allowed = u128::from(self.elapsed_ns) * unit * u128::from(per_myriad) / 10_000;
        let hull = &self.hull[..self.len];
        let within = hull.iter().rposition(|point| point.cost_ns <= allowed);
        let lower = within.unwrap_or(0);
        let upper = (lower + 1).min(self.len - 1);
        (hull[lower].window_ns, hull[upper].window_ns)
    }

    /// What a window of the curve costs, in millionths of a CPU; 0 for others.
    pub(super) fn cost_ppm(&self, window_ns: u64) -> u64 {
        let hull = self.hull[..self.len].iter();
        let cost_ns: u128 = hull
            .filter(|point| point.window_ns == window_ns)
            .map(|point| point.cost_ns)
            .sum();
        let whole_ns = u128::from(self.elapsed_ns) * u128::from(Waits::UNIT);
        let ppm = cost_ns * 1_000_000 / whole_ns.max(1);
        u64::try_from(ppm).unwrap_or(u64::MAX)
    }
}

/// What polling with a window costs for some waits, ns.
pub(super) fn cost_ns(waits: &Waits, window_ns: u64) -> u64 {
    let points = points(waits.counts());
    let point = points.iter().find(|point| point.window_ns == window_ns);
    let cost = point.map_or(0, |point| point.cost_ns / u128::from(Waits::UNIT));
    u64::try_from(cost).unwrap_or(u64::MAX)
}

/// Every window up to the longest, beginning with none.
fn points(counts: &[u64; BUCKETS]) -> [Point; POINTS] {
    let mut points = [Point::default(); POINTS];
    let mut caught = 0u128;
    let mut caught_ns = 0u128;
    let mut missed: u128 = counts.iter().map(|count| u128::from(*count)).sum();
    for (bucket, count) in counts.iter().enumerate().take(LONGEST_SHIFT + 1) {
        let count = u128::from(*count);
        caught += count;
        missed -= count;
        caught_ns += count * u128::from(middle_of(bucket));
        if let Some(index) = bucket.checked_sub(SHORTEST_SHIFT - 1).filter(|i| *i > 0) {
            let window_ns = 1u64 << bucket;
            points[index] = Point {
                window_ns,
                caught,
                cost_ns: caught_ns + missed * u128::from(window_ns),
            };
        }
    }
    points
}

/// The point that adds the most catches for its cost to `from`; `None` when each
/// further one would cost more than the longest window.
fn steepest(points: &[Point; POINTS], from: Point) -> Option<Point> {
    let gain = |point: &Point| point.caught.saturating_sub(from.caught);
    let cost = |point: &Point| point.cost_ns.saturating_sub(from.cost_ns);
    let worth = |point: &&Point| {
        point.window_ns > from.window_ns
            && gain(point) > 0
            && cost(point) <= gain(point) * u128::from(LONGEST_WINDOW_NS)
    };
    let further = points.iter().filter(worth);
    let best = further.reduce(|best, point| {
        if gain(point) * cost(best).max(1) > gain(best) * cost(point).max(1) {
            point
        } else {
            best
        }
    });
    best.copied()
}
