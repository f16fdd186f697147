//! Every figure of an experiment over its stored runs, as a page.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::WeighError;
use crate::figure::find;
use crate::host::HostFacts;
use crate::report::svg::{Column, Series, course};
use crate::report::{Section, bare, table};
use crate::stored_runs;
use crate::summary::Summary;

/// Series of a chart at most, as many as there are colours.
const MOST: usize = 8;

/// A page with the figures of `experiment` whose names begin with `prefix`, from all runs
/// in `places`, oldest first. Unreadable summaries are skipped.
pub fn history(experiment: &str, places: &[&Path], prefix: &str) -> Result<String, WeighError> {
    let runs: Vec<(String, Summary)> = stored_runs::all(places)
        .into_iter()
        .filter(|(_, run)| run.experiment == experiment)
        .collect();
    let names = names(&runs, prefix);
    if names.is_empty() {
        let places: Vec<String> = places.iter().map(|it| it.display().to_string()).collect();
        let what = match prefix {
            "" => String::new(),
            prefix => format!(" with figures that begin with '{prefix}'"),
        };
        let why = format!("no runs of {experiment}{what} in {}", places.join(", "));
        return Err(WeighError::Option(why));
    }
    let mut by_plan: BTreeMap<Plan, Vec<&Summary>> = BTreeMap::new();
    for (_, run) in &runs {
        by_plan.entry(Plan::of(run)).or_default().push(run);
    }
    let mut sections = vec![listed(&runs)];
    for family in names.chunk_by(|a, b| family(a) == family(b)) {
        for (plan, alike) in &by_plan {
            let known = |name: &&&str| alike.iter().any(|run| find(&run.figures, name).is_some());
            let names: Vec<&str> = family.iter().filter(known).copied().collect();
            let plan = Some(plan).filter(|_| by_plan.len() > 1);
            sections.extend(drawn(alike, &names, plan));
        }
    }
    let title = format!("{experiment} over {} runs", runs.len());
    let lead = "A point is a run with its interval, or the range of few samples. A line joins runs \
                of one machine (processor, kernel, KVM); between machines, at the dashed upright, \
                figures do not compare. Runs of another depth, or of another image or application, \
                have a chart for themselves.";
    Ok(bare(&title, lead, &sections))
}

/// What runs must have in common to be drawn in one chart: the image or application, and the
/// depth.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Plan {
    subject: Option<String>,
    depth: Option<String>,
}

impl Plan {
    fn of(run: &Summary) -> Self {
        Self {
            subject: run.subject.clone(),
            depth: run.depth.clone(),
        }
    }

    /// In words: `nginx, quick`; `-` for a run that says neither.
    fn text(&self) -> String {
        let words = [&self.subject, &self.depth].into_iter().flatten();
        let words: Vec<&str> = words.map(String::as_str).collect();
        if words.is_empty() {
            return "-".to_owned();
        }
        words.join(", ")
    }
}

/// The part of a figure's name before its arm.
fn family(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}

/// Names of figures, families together in the order in which they first came.
fn names<'a>(runs: &'a [(String, Summary)], prefix: &str) -> Vec<&'a str> {
    let mut families: Vec<&str> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for figure in runs.iter().flat_map(|(_, run)| &run.figures) {
        let name = figure.name.as_str();
        if name.starts_with(prefix) && !names.contains(&name) {
            names.push(name);
            if !families.contains(&family(name)) {
                families.push(family(name));
            }
        }
    }
    names.sort_by_key(|name| families.iter().position(|known| *known == family(name)));
    names
}

fn on_axis(runs: &[&Summary], place: usize) -> Column {
    let machine = |place: usize| runs.get(place).map(|run| machine(&run.machine));
    Column {
        label: runs[place]
            .started
            .get(5..10)
            .unwrap_or_default()
            .to_owned(),
        continues: place > 0 && machine(place - 1) == machine(place),
    }
}

fn machine(host: &HostFacts) -> String {
    format!("{}, Linux {}, KVM {:?}", host.cpu, host.kernel, host.kvm)
}

/// The runs by date, with what they ran on.
fn listed(runs: &[(String, Summary)]) -> Section {
    let rows = runs.iter().map(|(name, run)| {
        let date = run
            .started
            .get(..16)
            .unwrap_or(&run.started)
            .replace('T', " ");
        vec![
            date,
            name.clone(),
            Plan::of(run).text(),
            run.revision.clone(),
            machine(&run.machine),
        ]
    });
    Section {
        title: "Runs".to_owned(),
        lead: String::new(),
        html: table(
            &[
                "begun, UTC",
                "directory",
                "measured, depth",
                "revision",
                "machine",
            ],
            &rows.collect::<Vec<_>>(),
        ),
    }
}

/// The charts of a family, of runs of one plan; `None` if no run has a figure of it.
fn drawn(runs: &[&Summary], names: &[&str], plan: Option<&Plan>) -> Option<Section> {
    let family = family(names.first()?);
    let title = match plan {
        Some(plan) => format!("{family} ({})", plan.text()),
        None => family.to_owned(),
    };
    let axis: Vec<Column> = (0..runs.len()).map(|place| on_axis(runs, place)).collect();
    let charts = names.chunks(MOST).map(|names| {
        let series = names.iter().map(|name| Series {
            name,
            figures: runs.iter().map(|run| find(&run.figures, name)).collect(),
        });
        let description = format!("{title} over the runs");
        course(&axis, &series.collect::<Vec<_>>(), &description)
    });
    let known = runs
        .iter()
        .rev()
        .find_map(|run| find(&run.figures, names.first()?));
    Some(Section {
        html: charts.collect(),
        lead: known.map_or_else(String::new, |figure| match figure.unit.as_str() {
            "" | "1" => figure.statistic.text().to_owned(),
            unit => format!("{unit}; {}", figure.statistic.text()),
        }),
        title,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::stored;

    #[test]
    fn a_history_has_each_figure_of_its_runs_and_no_others() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path();
        for (name, started) in [("b", "2026-02-01T00:00:00Z"), ("a", "2026-01-01T00:00:00Z")] {
            stored(place, name, "vmexit", started, HostFacts::default());
        }
        stored(
            place,
            "c",
            "kv",
            "2026-03-01T00:00:00Z",
            HostFacts::default(),
        );
        fs::create_dir(place.join("d")).unwrap();
        fs::write(place.join("d/summary.json"), "{").unwrap();
        let page = history("vmexit", &[place], "").unwrap();
        assert!(page.contains("vmexit over 2 runs"), "{page}");
        let dates = ["01-01", "02-01", "03-01"].map(|date| page.find(&format!(">{date}<")));
        assert!(dates[0] < dates[1] && dates[2].is_none(), "{dates:?}");
        assert!(page.contains("<h2>exit_ns</h2>") && page.contains("exit_ns.cpuid: 2 (1 .. 3)"));
        let error = |experiment, prefix| {
            history(experiment, &[place], prefix)
                .unwrap_err()
                .to_string()
        };
        assert!(error("tcp", "").starts_with("no runs of tcp in "));
        assert!(error("kv", "rate").contains("with figures that begin with 'rate'"));
    }

    #[test]
    fn runs_of_two_machines_are_not_joined() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path();
        let other = HostFacts {
            kernel: "2.6.32".to_owned(),
            ..HostFacts::default()
        };
        stored(
            place,
            "a",
            "vmexit",
            "2026-01-01T00:00:00Z",
            HostFacts::default(),
        );
        stored(
            place,
            "b",
            "vmexit",
            "2026-02-01T00:00:00Z",
            HostFacts::default(),
        );
        let joined = history("vmexit", &[place], "").unwrap();
        assert!(!joined.contains("class=\"one\""), "{joined}");
        stored(place, "c", "vmexit", "2026-03-01T00:00:00Z", other);
        let apart = history("vmexit", &[place], "").unwrap();
        // A line between the machines in each of both drawings.
        assert_eq!(apart.matches("class=\"one\"").count(), 2, "{apart}");
    }

    #[test]
    fn runs_of_two_depths_or_applications_are_drawn_apart() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path();
        let runs = [
            ("a", "nginx", "quick"),
            ("b", "nginx", "standard"),
            ("c", "redis", "quick"),
            ("d", "nginx", "quick"),
        ];
        for (month, (name, app, depth)) in (1..).zip(runs) {
            let started = format!("2026-{month:02}-01T00:00:00Z");
            stored(place, name, "tailor", &started, HostFacts::default());
            // Their summaries name neither: the records do.
            let plan = format!(r#"{{"plan": {{"app": "{app}", "depth": "{depth}"}}}}"#);
            fs::write(place.join(name).join("raw.jsonl"), plan + "\n").unwrap();
        }
        let page = history("tailor", &[place], "").unwrap();
        for (title, dates) in [
            ("nginx, quick", 2),
            ("nginx, standard", 1),
            ("redis, quick", 1),
        ] {
            let heading = format!("<h2>exit_ns ({title})</h2>");
            let (_, section) = page.split_once(&heading).expect(title);
            let section = section.split("<h2>").next().unwrap();
            let drawn = section.matches("-01</text>").count();
            // Each chart is drawn twice, wide and narrow.
            assert_eq!(drawn, 2 * dates, "{title}: {section}");
        }
    }
}
