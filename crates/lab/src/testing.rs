//! For tests of experiments: weighings on machines that are not of `tare run`, and whether
//! what they wrote is well formed.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

pub(crate) mod schema;

use serde_json::Value;
use tare_load::interrupt::Interrupt;
use tare_machines::appliance::Executor;

use crate::error::WeighError;
use crate::experiment::{Entry, Experiment};
use crate::metric::of_figure;
use crate::progress::Progress;
use crate::summary::{Effect, Summary};
use crate::weigh::{WeighRequest, Weighing};
use crate::weigh_result::WeighResult;

/// Weighs on machines of `executor`, whatever else the host does; the program has no digest.
pub fn weigh_on(
    executor: &mut dyn Executor,
    request: &WeighRequest,
    entry: Entry,
    experiment: Box<dyn Experiment>,
    interrupt: &Interrupt,
) -> Result<WeighResult, WeighError> {
    let weighing = Weighing {
        entry,
        programs: Value::Null,
        request,
        interrupt,
        progress: &Progress::silent(),
        watches_host: false,
    };
    weighing.run(experiment, executor)
}

/// Fails where the text is not a `summary.json` of the published form, or has a figure that is of
/// no metric of its experiment, or a ratio without an effect.
#[track_caller]
pub fn check(entry: &Entry, summary: &str) {
    schema::check(&serde_json::from_str(summary).unwrap());
    let summary: Summary = serde_json::from_str(summary).unwrap();
    for figure in &summary.figures {
        let known = of_figure(entry.metrics, &figure.name);
        assert!(known.is_some(), "{}: of no metric", figure.name);
        assert!(
            Effect::is_shown(figure),
            "{}: a ratio in \"{}\" has no effect",
            figure.name,
            figure.unit
        );
    }
}

#[cfg(test)]
pub(crate) use made::{KNOWN, Nothing, stored};

/// Made experiments and runs, for the tests of this crate.
#[cfg(test)]
mod made {
    use std::fs;
    use std::path::{Path, PathBuf};

    use serde_json::{Value, json};
    use tare_stats::Interval;

    use crate::experiment::{Entry, Experiment, Make};
    use crate::figure::{Figure, Statistic};
    use crate::host::HostFacts;
    use crate::metric::Metric;
    use crate::report::ReportText;
    use crate::summary::SCHEMA;

    /// Measures nothing, and may continue a record.
    #[derive(Default)]
    pub(crate) struct Nothing(pub(crate) Option<PathBuf>);

    impl Experiment for Nothing {
        fn resumes(&self) -> Option<&Path> {
            self.0.as_deref()
        }

        fn plan(&self) -> Value {
            Value::Null
        }

        fn figures(&self) -> Vec<Figure> {
            Vec::new()
        }

        fn report(&self, _figures: &[Figure]) -> ReportText {
            ReportText::default()
        }
    }

    const METRICS: &[Metric] = &[
        Metric::less("wake_p50_us", "us"),
        Metric::less("exit_ns", "ns"),
        Metric::less("exits_per_request", "1"),
        Metric::less("idle_exits_per_s", "1/s"),
        Metric::less("image_bytes", "bytes"),
        Metric::more("iops", "1/s"),
        Metric::more("db_iops", "1/s"),
        Metric::neither("in_flight", "1"),
    ];

    const fn made(name: &'static str) -> Entry {
        Entry {
            name,
            about: "",
            metrics: METRICS,
            goals: &[],
            make: Make::Other(|_| Box::new(Nothing::default())),
        }
    }

    /// Two experiments with the metrics of all.
    pub(crate) const KNOWN: &[Entry] = &[made("http-bursts"), made("tcp")];

    /// Stores a run of `experiment` in `place`.
    pub(crate) fn stored(
        place: &Path,
        name: &str,
        experiment: &str,
        started: &str,
        machine: HostFacts,
    ) {
        let figure = Figure::bare("exit_ns.cpuid", "ns", 2.0, Statistic::Median, 7);
        let ends = Interval {
            low: 1.0,
            high: 3.0,
        };
        let summary = json!({
            "schema": SCHEMA, "experiment": experiment, "started": started, "revision": "v0",
            "machine": machine, "figures": [figure.with_interval(Some(ends))],
        });
        fs::create_dir_all(place.join(name)).unwrap();
        let file = place.join(name).join("summary.json");
        fs::write(file, serde_json::to_vec(&summary).unwrap()).unwrap();
    }
}
