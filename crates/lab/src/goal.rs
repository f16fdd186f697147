//! Goals: what a figure should be, as data beside the experiment.

use serde::{Deserialize, Serialize};
use tare_control::stats::Kvm;

use crate::figure::Figure;
use crate::number::number;

/// Which values of a figure meet its goal. In JSON `"at_most": 60` or `"at_least": 4000`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// This and what is less.
    AtMost(f64),
    /// This and what is more.
    AtLeast(f64),
}

impl Bound {
    /// The limit itself.
    pub(crate) const fn limit(self) -> f64 {
        match self {
            Self::AtMost(limit) | Self::AtLeast(limit) => limit,
        }
    }

    /// The bound in words, as in `at most 60`.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::AtMost(_) => "at most",
            Self::AtLeast(_) => "at least",
        }
    }

    /// What an interval says of the goal.
    fn judge(self, (low, high): (f64, f64)) -> Judgement {
        let (all, none) = match self {
            Self::AtMost(most) => (high <= most, low > most),
            Self::AtLeast(least) => (low >= least, high < least),
        };
        match (all, none) {
            (true, _) => Judgement::Met,
            (_, true) => Judgement::Missed,
            _ => Judgement::Undecided,
        }
    }
}

/// What a figure should be, where the goal applies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// Name of the figure.
    pub figure: &'static str,
    /// Values that meet the goal.
    pub bound: Bound,
    /// On which KVM the goal was set.
    pub on: &'static [Kvm],
}

impl Goal {
    /// A goal on such KVMs.
    pub const fn on(on: &'static [Kvm], figure: &'static str, at_most: f64) -> Self {
        Self {
            figure,
            bound: Bound::AtMost(at_most),
            on,
        }
    }

    /// A goal on such KVMs for a figure of which more is better.
    pub const fn at_least(on: &'static [Kvm], figure: &'static str, least: f64) -> Self {
        Self {
            figure,
            bound: Bound::AtLeast(least),
            on,
        }
    }

    /// A goal wherever there is a KVM.
    pub const fn on_any_kvm(figure: &'static str, at_most: f64) -> Self {
        Self::on(&[Kvm::Emulated, Kvm::Hardware], figure, at_most)
    }

    /// A goal on every machine, with a KVM or without.
    pub const fn on_any(figure: &'static str, at_most: f64) -> Self {
        Self::on(&[Kvm::None, Kvm::Emulated, Kvm::Hardware], figure, at_most)
    }
}

/// What a run says of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// The whole interval is within the goal.
    Met,
    /// The whole interval is beyond the goal.
    Missed,
    /// The interval holds the goal, or there are too few samples for an interval.
    Undecided,
}

impl Judgement {
    /// The word in tables.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "MISSED",
            Self::Undecided => "undecided",
        }
    }
}

/// A goal beside what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgedGoal {
    /// Name of the figure.
    pub figure: String,
    /// Values that meet the goal.
    #[serde(flatten)]
    pub bound: Bound,
    /// What the figure says.
    pub verdict: Judgement,
}

impl JudgedGoal {
    /// A sentence about a goal that is not met; `None` for one that is.
    pub(crate) fn sentence(&self, figure: &Figure) -> Option<String> {
        let unit = match figure.unit.as_str() {
            "" | "1" => String::new(),
            unit => format!(" {unit}"),
        };
        let (name, text) = (&figure.name, figure.text());
        let goal = format!("{} {}", self.bound.words(), number(self.bound.limit()));
        match self.verdict {
            Judgement::Met => None,
            Judgement::Missed => Some(format!("{name} is {text}{unit}; the goal is {goal}.")),
            Judgement::Undecided => {
                let why = if figure.is_one_step() {
                    ", since all samples are one step of a histogram"
                } else {
                    ""
                };
                Some(format!(
                    "{name} is {text}{unit}: whether it is {goal}, its goal, is undecided{why}."
                ))
            }
        }
    }
}

/// The verdict on a figure; `None` where there is no goal for it on this KVM. It rests on
/// the ends of the interval, which is a step wide at least (`Figure::known_within`). A range
/// of few samples decides nothing: of two samples both lie on the same side of the true median
/// half of the time.
pub fn judge(figure: &Figure, goals: &[Goal], kvm: Kvm) -> Option<JudgedGoal> {
    let applies = |g: &&Goal| g.figure == figure.name && g.on.contains(&kvm);
    let goal = goals.iter().find(applies)?;
    let ends = figure.known_within();
    Some(JudgedGoal {
        figure: figure.name.clone(),
        bound: goal.bound,
        verdict: ends.map_or(Judgement::Undecided, |ends| goal.bound.judge(ends)),
    })
}

/// The verdicts on all figures that have a goal.
pub fn verdicts(figures: &[Figure], goals: &[Goal], kvm: Kvm) -> Vec<JudgedGoal> {
    let verdicts = figures
        .iter()
        .filter_map(|figure| judge(figure, goals, kvm));
    verdicts.collect()
}

/// Why none of these goals is met or missed, a sentence; `None` if one is, or there is none.
pub(crate) fn undecided(judged: &[JudgedGoal], goals: &[Goal]) -> Option<String> {
    let is_decided = |it: &JudgedGoal| it.verdict != Judgement::Undecided;
    if goals.is_empty() || judged.iter().any(is_decided) {
        return None;
    }
    Some(match judged.len() {
        0 => "no goal was decided: none of their figures was measured, or none is a goal on this \
              KVM"
        .to_owned(),
        count => format!(
            "no goal was decided: of {count} figures with a goal each has no interval (fewer than \
             6 samples) or one that holds the goal"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{exact, median, paired_ratio, rate};

    const GOALS: &[Goal] = &[Goal::on_any_kvm("x", 0.1)];

    fn judged(figure: &Figure) -> Judgement {
        judge(figure, GOALS, Kvm::Emulated).unwrap().verdict
    }

    #[test]
    fn an_interval_that_holds_the_goal_leaves_it_undecided() {
        // No exit in 2.4 s: up to 1.5 a second. In 40 s: up to 0.092.
        let short = rate("x", "1/s", &[(0.0, 0.4); 6]).unwrap();
        assert_eq!(judged(&short), Judgement::Undecided);
        let long = rate("x", "1/s", &[(0.0, 4.0); 10]).unwrap();
        assert_eq!(judged(&long), Judgement::Met);
        let many = rate("x", "1/s", &[(40.0, 4.0), (38.0, 4.0), (41.0, 4.0)]).unwrap();
        assert_eq!(judged(&many), Judgement::Missed);
    }

    #[test]
    fn few_samples_decide_only_what_is_exact() {
        let one = median("x", "%", &[0.05]).unwrap();
        assert_eq!(judged(&one), Judgement::Undecided);
        assert_eq!(
            judged(&exact("x", "bytes", &[0.05]).unwrap()),
            Judgement::Met
        );
        for few in [[0.05, 0.06, 0.07], [0.2, 0.3, 0.4]] {
            let figure = median("x", "%", &few).unwrap();
            assert_eq!(judged(&figure), Judgement::Undecided);
        }
        let six = median("x", "%", &[0.01, 0.02, 0.03, 0.04, 0.05, 0.06]).unwrap();
        assert_eq!(judged(&six), Judgement::Met);
        for (unit, said) in [("%", "0.06 (0.05 .. 0.2 range) %:"), ("1", "0.2 range):")] {
            let several = median("x", unit, &[0.05, 0.06, 0.2]).unwrap();
            let goal = judge(&several, GOALS, Kvm::Emulated).unwrap();
            assert!(goal.sentence(&several).unwrap().contains(said), "{unit}");
        }
    }

    /// All samples in one bucket of a histogram: the next one lies beyond the goal.
    #[test]
    fn equal_samples_of_a_stepped_time_decide_no_goal_within_their_step() {
        const GOALS: &[Goal] = &[Goal::on_any_kvm("x", 1.02)];
        let of = |figure: Option<Figure>| {
            let judged = judge(&figure.unwrap(), GOALS, Kvm::Emulated);
            judged.unwrap().verdict
        };
        let times = |value: f64| of(median("x", "us", &[value; 6]));
        assert_eq!(times(1.014), Judgement::Undecided);
        let figure = median("x", "us", &[1.014; 6]).unwrap();
        let goal = judge(&figure, GOALS, Kvm::Emulated).unwrap();
        let said = goal.sentence(&figure).unwrap();
        assert!(
            said.ends_with("since all samples are one step of a histogram."),
            "{said}"
        );
        assert_eq!(times(1.026), Judgement::Undecided);
        assert_eq!(
            (times(0.99), times(1.05)),
            (Judgement::Met, Judgement::Missed)
        );
        // The same bucket in both arms, and the next one in one of them.
        let ratios = |value: f64| of(paired_ratio("x", "1", &[value; 6]));
        assert_eq!(ratios(1.0), Judgement::Met);
        assert_eq!(ratios(1.014), Judgement::Undecided);
        // One in four is what was counted.
        const FOURTH: &[Goal] = &[Goal::on_any_kvm("x", 0.25)];
        let counts = |value: f64| {
            let figure = median("x", "1", &[value; 6]).unwrap();
            judge(&figure, FOURTH, Kvm::Emulated).unwrap().verdict
        };
        let verdicts = [0.0, 0.25, 0.26].map(counts);
        assert_eq!(
            verdicts,
            [Judgement::Met, Judgement::Met, Judgement::Missed]
        );
    }

    #[test]
    fn a_goal_may_be_the_least_that_a_figure_must_be() {
        const RATE: &[Goal] = &[Goal::at_least(&[Kvm::Emulated], "x", 4000.0)];
        let judged = |samples: [f64; 6]| {
            let figure = median("x", "1/s", &samples).unwrap();
            let goal = judge(&figure, RATE, Kvm::Emulated).unwrap();
            (goal.verdict, goal.sentence(&figure))
        };
        let (met, none) = judged([4000.0, 4100.0, 4200.0, 4300.0, 4400.0, 4500.0]);
        assert_eq!((met, none), (Judgement::Met, None));
        let (missed, sentence) = judged([3000.0, 3100.0, 3200.0, 3300.0, 3400.0, 3999.0]);
        assert_eq!(missed, Judgement::Missed);
        let sentence = sentence.unwrap();
        assert!(
            sentence.ends_with("the goal is at least 4000."),
            "{sentence}"
        );
        let (undecided, _) = judged([3000.0, 3100.0, 3200.0, 4300.0, 4400.0, 4500.0]);
        assert_eq!(undecided, Judgement::Undecided);
    }

    #[test]
    fn a_verdict_names_its_bound_in_json() {
        for (json, bound) in [
            (
                r#"{"figure":"x","at_most":60.0,"verdict":"met"}"#,
                Bound::AtMost(60.0),
            ),
            (
                r#"{"figure":"x","at_least":4000.0,"verdict":"met"}"#,
                Bound::AtLeast(4000.0),
            ),
        ] {
            let goal: JudgedGoal = serde_json::from_str(json).unwrap();
            assert_eq!(goal.bound, bound);
            assert_eq!(serde_json::to_string(&goal).unwrap(), json);
        }
        let neither = r#"{"figure":"x","verdict":"met"}"#;
        assert!(serde_json::from_str::<JudgedGoal>(neither).is_err());
    }

    #[test]
    fn goals_of_which_none_is_met_or_missed_are_undecided() {
        let of = |samples: &[f64]| {
            let figure = median("x", "%", samples).unwrap();
            undecided(&verdicts(&[figure], GOALS, Kvm::Emulated), GOALS)
        };
        let few = of(&[0.05, 0.06]).unwrap();
        assert!(
            few.contains("of 1 figures with a goal each has no"),
            "{few}"
        );
        assert!(of(&[0.01, 0.02, 0.03, 0.2, 0.3, 0.4]).is_some());
        assert_eq!(of(&[0.01, 0.02, 0.03, 0.04, 0.05, 0.06]), None);
        assert_eq!(of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), None);
        let none = undecided(&[], GOALS).unwrap();
        assert!(
            none.contains("none of their figures was measured"),
            "{none}"
        );
        assert_eq!(undecided(&[], &[]), None, "no goals, nothing to decide");
    }

    #[test]
    fn a_goal_for_another_kvm_has_no_verdict() {
        let figure = median("x", "%", &[0.05]).unwrap();
        assert_eq!(judge(&figure, GOALS, Kvm::None), None);
        assert_eq!(
            judge(&median("y", "%", &[1.0]).unwrap(), GOALS, Kvm::Emulated),
            None
        );
    }
}
