//! A search for people and programs.

use std::fmt;

use serde::Serialize;

use super::Measure;
use super::elimination::NOISY_PERCENT;
use super::search_result::{CandidateResult, Decision, Effect, SearchResult, Tried, Why};
use super::settings::{Setting, Skipped};

/// A setting that was tried.
#[derive(Clone, Debug, Serialize)]
pub struct TriedLine {
    /// It.
    #[serde(flatten)]
    pub setting: Setting,
    /// What came of it.
    #[serde(flatten)]
    pub tried: Tried,
}

/// The settings that are kept, or were not confirmed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TogetherLine {
    /// Their words.
    pub words: Vec<String>,
    /// Of all of them together.
    pub effect: Effect,
}

/// The whole of a search.
#[derive(Clone, Debug, Serialize)]
pub struct SearchReport {
    /// What boots were measured by.
    pub measure: Measure,
    /// Of the orders of boots.
    pub seed: u64,
    /// The load.
    pub load: String,
    /// Boots that were measured, and how long they took, s.
    pub boots: usize,
    /// Their time, s.
    pub seconds: f64,
    /// Settings that were tried.
    pub tried: Vec<TriedLine>,
    /// Settings that were not.
    pub skipped: Vec<Skipped>,
    /// The default against itself.
    pub control: Option<Effect>,
    /// The winners together.
    pub together: Option<TogetherLine>,
    /// What is done.
    pub decision: Decision,
    /// Words that the kernel boots with from now on.
    pub kept: Vec<String>,
}

impl SearchReport {
    /// Of what was found for these settings.
    pub fn new(
        found: SearchResult,
        settings: &[Setting],
        skipped: Vec<Skipped>,
        load: String,
    ) -> Self {
        let words = |places: &[usize]| -> Vec<String> {
            let known = places.iter().filter_map(|place| settings.get(*place));
            known.map(|setting| setting.word.clone()).collect()
        };
        let kept = words(found.settings());
        let together = found.combination.as_ref().map(|it| TogetherLine {
            words: words(&it.settings),
            effect: it.effect,
        });
        let line = |tried: Tried| {
            let setting = settings.get(tried.setting)?.clone();
            Some(TriedLine { setting, tried })
        };
        Self {
            measure: found.measure,
            seed: found.seed,
            load,
            boots: found.boots,
            seconds: found.seconds,
            tried: found.tried.into_iter().filter_map(line).collect(),
            skipped,
            control: found.control,
            together,
            decision: found.decision,
            kept,
        }
    }

    /// Lines of a verdict, the greatest gain first.
    fn of(&self, is_meant: impl Fn(&CandidateResult) -> bool) -> Vec<&TriedLine> {
        let all = self.tried.iter();
        let mut lines: Vec<&TriedLine> = all.filter(|it| is_meant(&it.tried.verdict)).collect();
        let change = |line: &TriedLine| {
            let effect = line.tried.effect.map_or(0.0, |it| it.change_percent);
            -effect * self.measure.sign()
        };
        lines.sort_by(|a, b| change(a).total_cmp(&change(b)));
        lines
    }

    fn write_tested(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_tested =
            |it: &CandidateResult| matches!(it, CandidateResult::Better | CandidateResult::Chance);
        for line in self.of(is_tested) {
            let verdict = match line.tried.verdict {
                CandidateResult::Better => "better",
                _ => "chance",
            };
            let p = line.tried.adjusted_p.map(shown_p);
            let effect = line.tried.effect.map(change).unwrap_or_default();
            let (word, p) = (&line.setting.word, p.unwrap_or_default());
            writeln!(f, "  {verdict:<7}{word:<40} {effect:<30} {p}")?;
            if let Some(safety) = &line.setting.gives_up {
                writeln!(f, "{:9}gives up: {safety}", "")?;
            }
        }
        Ok(())
    }

    fn write_others(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let out = self.of(|it| *it == CandidateResult::ScreenedOut);
        let list = |line: &&TriedLine| match line.tried.effect {
            Some(it) => format!("{} {:+.1}", line.setting.word, it.change_percent),
            None => line.setting.word.clone(),
        };
        if !out.is_empty() {
            let out: Vec<String> = out.iter().map(list).collect();
            writeln!(
                f,
                "Left out after the screening, with its rough change in %: {}.",
                out.join(", ")
            )?;
        }
        let late = self.of(|it| *it == CandidateResult::NoTime);
        if !late.is_empty() {
            let late: Vec<&str> = late.iter().map(|it| it.setting.word.as_str()).collect();
            writeln!(f, "Not tried, for want of time: {}.", late.join(", "))?;
        }
        for line in &self.tried {
            if let CandidateResult::Broken(why) = &line.tried.verdict {
                writeln!(f, "The application fails with {}: {why}", line.setting.word)?;
            }
        }
        for Skipped { word, why } in &self.skipped {
            writeln!(f, "Skipped {word}: {why}")?;
        }
        Ok(())
    }
}

fn shown_p(p: f64) -> String {
    if p < 0.001 {
        "p < 0.001".to_owned()
    } else {
        format!("p {p:.3}")
    }
}

/// A change with its interval, as `-3.1 (-3.4 to -2.8) %`.
fn change(effect: Effect) -> String {
    let value = effect.change_percent;
    match effect.interval_percent {
        Some((low, high)) => format!("{value:+.2} ({low:+.2} to {high:+.2}) %"),
        None => format!("{value:+.2} %, no interval"),
    }
}

impl fmt::Display for SearchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { load, boots, .. } = self;
        let (minutes, unit) = (self.seconds / 60.0, self.measure.name());
        let better = match self.measure {
            Measure::Instructions => "less is better",
            Measure::Rate => "more is better",
        };
        writeln!(
            f,
            "Search by {unit} ({better}) under {load}: {boots} boots in {minutes:.1} min."
        )?;
        self.write_tested(f)?;
        if let Some(control) = self.control {
            writeln!(
                f,
                "  control the same settings again{:20}{}",
                "",
                change(control)
            )?;
        }
        if let Some(together) = &self.together {
            let (words, effect) = (together.words.join(" "), change(together.effect));
            let blocks = together.effect.blocks;
            writeln!(
                f,
                "Together, on {blocks} new pairs of boots: {effect}: {words}"
            )?;
        }
        match &self.decision {
            Decision::Keep => writeln!(f, "Confirmed, and kept: {}", self.kept.join(" "))?,
            Decision::Default(why) => writeln!(f, "The default settings stay: {why}.")?,
        }
        self.write_others(f)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingBetter => f.write_str("none was better in the screening"),
            Self::Nothing => f.write_str("no other differs from chance"),
            Self::TooNoisy => write!(
                f,
                "the load is too noisy to tell changes of {NOISY_PERCENT} %; use a quieter host, \
                 a load of more even requests, or more minutes"
            ),
            Self::Unsound => f.write_str(
                "the default differs from itself, so that no difference means anything; search \
                 again on a host at rest",
            ),
            Self::NotConfirmed => f.write_str(
                "what was better alone is not better together, on boots that chose nothing",
            ),
            Self::NotTogether(why) => {
                write!(f, "the application fails with all winners together: {why}")
            }
            Self::NoTime => f.write_str("the time ended before there were boots enough"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::elimination::Search;
    use super::super::settings;
    use super::super::simulation::Planted;
    use super::*;

    fn report(factors: &[f64], noise: f64) -> SearchReport {
        let search = Search {
            measure: Measure::Instructions,
            candidates: factors.len(),
            budget_s: 1200.0,
            seed: 1,
        };
        let found = search.run(&mut Planted::new(factors, noise, 4), |_| {});
        let skipped = vec![Skipped {
            word: "psi=0".to_owned(),
            why: "the kernel has no PSI".to_owned(),
        }];
        let load = "http:80/".to_owned();
        SearchReport::new(found.unwrap(), settings::all(), skipped, load)
    }

    #[test]
    fn what_is_kept_stands_with_its_effect_its_interval_and_its_price() {
        let report = report(&[0.9, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], 0.005);
        assert_eq!(report.kept, ["mitigations=off"]);
        let text = report.to_string();
        assert_eq!([0.000_4, 0.0156].map(shown_p), ["p < 0.001", "p 0.016"]);
        for part in [
            "Search by instructions a request (less is better) under http:80/: ",
            "\n  better mitigations=off ",
            "gives up: a process may read",
            "\nConfirmed, and kept: mitigations=off\n",
            "\nLeft out after the screening, ",
            "\nSkipped psi=0: the kernel has no PSI\n",
            "new pairs of boots: -",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["decision"], "keep");
        assert_eq!(json["tried"][0]["word"], "mitigations=off");
        assert_eq!(json["tried"][0]["verdict"], "better");
    }

    #[test]
    fn chance_and_noise_are_said() {
        let text = report(&[1.0; 6], 0.004).to_string();
        assert!(text.contains("\nThe default settings stay: "), "{text}");
        assert!(!text.contains("kept: "), "{text}");
        let text = report(&[0.98; 3], 0.4).to_string();
        assert!(
            text.contains("stay: the load is too noisy to tell"),
            "{text}"
        );
    }
}
