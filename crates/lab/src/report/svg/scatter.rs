//! Latency against cost: points with names, and a line below which nothing
//! can be. The cost's axis is logarithmic; what costs nothing stands at its
//! left end.

use super::percentiles::time;
use super::scale::Scale;
use super::{Drawing, figure, line};
use crate::number::number;

const LEFT: f64 = 62.0;
const RIGHT: f64 = 76.0;
const TOP: f64 = 16.0;
const HEIGHT: f64 = 230.0;
const BOTTOM: f64 = TOP + HEIGHT;
const AXIS: f64 = 42.0;
/// What is left of this share is drawn as nothing, percent.
const LEAST_PCT: f64 = 0.01;
/// About how wide a letter is.
const LETTER: f64 = 6.5;

/// A point with its name.
#[derive(Clone, Debug)]
pub struct Mark {
    /// What it is.
    pub name: String,
    /// Cost, percent of a CPU.
    pub cpu_pct: f64,
    /// Latency, us.
    pub latency_us: f64,
    /// Colour, as the series of other charts.
    pub series: usize,
}

/// The chart as a figure; nothing without marks.
pub fn scatter(marks: &[Mark], best: &[(f64, f64)], description: &str) -> String {
    let all = marks.iter().map(|mark| mark.latency_us);
    let greatest = all.chain(best.iter().map(|(_, us)| *us)).reduce(f64::max);
    let Some(greatest) = greatest.filter(|us| *us > 0.0) else {
        return String::new();
    };
    figure(description, |width| {
        let right = width.units() - RIGHT;
        let x = Scale::log(LEAST_PCT, 100.0, (LEFT, right));
        let y = Scale::linear(0.0, greatest * 1.1, (BOTTOM, TOP));
        let mut drawing = Drawing::default();
        drawing.rows(y, (LEFT, right), 6, time);
        let ticks = x.ticks(5).into_iter().map(|tick| match tick {
            tick if tick <= LEAST_PCT * 1.001 => (x.at(tick), "0".to_owned()),
            tick => (x.at(tick), number(tick)),
        });
        drawing.columns(ticks, (TOP, BOTTOM));
        let middle = (f64::midpoint(LEFT, right), BOTTOM + 34.0);
        drawing.text(middle, "middle", "polling, % of a CPU");
        if !best.is_empty() {
            let places = best
                .iter()
                .map(|(cpu, us)| ((x.at(*cpu), y.at(*us)), false));
            drawing.path("line dash s0", format_args!("{}", line(places)));
        }
        let place = |mark: &Mark| (x.at(mark.cpu_pct), y.at(mark.latency_us));
        let mut taken: Vec<Space> = marks.iter().map(|mark| Space::dot(place(mark))).collect();
        for mark in marks {
            let dot = place(mark);
            drawing.dot(mark.series, dot, 4.0, "");
            let (at, anchor, space) = beside(dot, &mark.name, &taken);
            drawing.text(at, anchor, &mark.name);
            taken.push(space);
        }
        (BOTTOM + AXIS, drawing)
    })
}

/// What a dot or a name covers.
#[derive(Clone, Copy)]
struct Space {
    across: (f64, f64),
    down: (f64, f64),
}

impl Space {
    fn dot((x, y): (f64, f64)) -> Self {
        let (across, down) = ((x - 4.0, x + 4.0), (y - 4.0, y + 4.0));
        Self { across, down }
    }

    fn meets(&self, other: &Self) -> bool {
        let meet = |a: (f64, f64), b: (f64, f64)| a.0 < b.1 && b.0 < a.1;
        meet(self.across, other.across) && meet(self.down, other.down)
    }
}

/// The place of a dot's name that covers nothing else, as near as there is
/// one: above it, on either side, then further and further down.
fn beside((x, y): (f64, f64), name: &str, taken: &[Space]) -> ((f64, f64), &'static str, Space) {
    let wide = name.chars().count() as f64 * LETTER;
    let option = |left: bool, y: f64| {
        let (at, anchor, from) = if left {
            (x - 7.0, "end", x - 7.0 - wide)
        } else {
            (x + 7.0, "", x + 7.0)
        };
        let (across, down) = ((from, from + wide), (y - 10.0, y + 2.0));
        ((at, y), anchor, Space { across, down })
    };
    let rows = [-5.0, 14.0, 27.0, 40.0, 53.0, 66.0];
    let options = rows.into_iter().flat_map(|row| [(false, row), (true, row)]);
    options
        .map(|(left, row)| option(left, y + row))
        .find(|(_, _, space)| {
            space.across.0 >= LEFT && !taken.iter().any(|other| other.meets(space))
        })
        .unwrap_or_else(|| option(false, y - 5.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_has_its_name_and_nothing_stands_outside() {
        let mark = |name: &str, cpu_pct| Mark {
            name: name.into(),
            cpu_pct,
            latency_us: 5.0,
            series: 1,
        };
        let marks = [mark("<never>", 0.0), mark("always", 99.0)];
        let chart = scatter(&marks, &[(0.01, 6.0), (100.0, 2.0)], "x");
        assert!(chart.contains("&lt;never&gt;") && chart.contains("always"));
        assert!(!chart.contains("NaN") && !chart.contains("inf"), "{chart}");
        assert_eq!(scatter(&[], &[], "x"), "");
    }
    #[test]
    fn names_of_dots_at_one_place_cover_neither_each_other_nor_a_dot() {
        let dots = [(100.0, 50.0), (100.0, 50.0), (104.0, 50.0), (140.0, 45.0)];
        let mut taken = dots.map(Space::dot).to_vec();
        for dot in dots {
            let (_, _, space) = beside(dot, "always", &taken);
            assert!(!taken.iter().any(|other| other.meets(&space)));
            taken.push(space);
        }
    }
}
