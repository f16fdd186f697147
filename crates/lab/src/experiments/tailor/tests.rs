//! Records of the experiment, with counts in place of machines.

#![allow(clippy::unwrap_used)]

use tare_control::stats::Kvm;

use super::plan::TAILORED;
use super::*;
use crate::appliance::fake::{Fakes, Fault};
use crate::experiments::ALL;
use crate::experiments::testing::{Run, figure, kept};
use crate::figure::value;
use crate::weigh::{Files, rebuild};

fn replayed(record: &Record) -> Tailor {
    let mut tailor = Tailor::new(Depth::Quick, None);
    tailor.replay(record).unwrap();
    tailor
}

#[test]
fn a_run_of_before_iterations_were_counted_apart_is_read_and_marked() {
    let record = kept("2026-11-21-tailor-quick");
    let tailor = replayed(&record);
    let figures = tailor.figures();
    let share = value(&figures, "request_pct.tailored").unwrap();
    assert!((74.2..74.4).contains(&share), "{share}");
    assert_eq!(value(&figures, "peak_rep_iterations.debian"), None);
    let marks = tailor.report(&figures).limitations;
    assert!(
        marks[0].contains("iteration of a string instruction"),
        "{marks:?}"
    );
}

#[test]
fn a_record_gives_a_kernels_own_start_and_iterations() {
    let counts = json!([{ "user": 1, "kernel": 2, "iterations": 30 }]);
    let lines = vec![
        json!({ "sample": "start", "kernel": "debian", "insns": 1000 }),
        json!({ "sample": "start", "kernel": "tailored", "insns": 250 }),
        json!({ "sample": "requests", "kernel": "debian", "phase": "peak", "insns": counts }),
        json!({ "sample": "requests", "kernel": "tailored", "phase": "peak", "insns": counts }),
    ];
    let dir = "record".into();
    let tailor = replayed(&Record { dir, lines });
    let figures = tailor.figures();
    assert_eq!(value(&figures, "kernel_boot_pct.tailored"), Some(25.0));
    assert_eq!(value(&figures, "peak_rep_iterations.debian"), Some(30.0));
    let marks = tailor.report(&figures).limitations;
    assert!(!marks[0].contains("iteration"), "{marks:?}");
}

#[test]
fn a_configuration_that_cannot_be_used_ends_the_weighing_before_it_begins() {
    let mut request = WeighRequest::new("tailor");
    request.config = Some("/no/such/file".into());
    let mut tailor = Tailor::new(Depth::Quick, None);
    let refused = tailor.configure(&request).unwrap_err().to_string();
    assert!(
        refused.starts_with("--config: cannot read /no/such/file"),
        "{refused}"
    );
}

/// The experiment with counts that follow from kernel and round, where machines would run.
struct Counting(Tailor);

/// Its kernels.
const KERNELS: [&str; 2] = [DEBIAN, TAILORED];

impl Counting {
    fn run() -> Run {
        let counting = Self(Tailor::new(Depth::Standard, None));
        let fakes = Fakes::new(Kvm::None, Fault::None);
        Run::of("tailor", Box::new(counting), fakes)
    }
}

impl Experiment for Counting {
    fn plan(&self) -> Value {
        self.0.plan()
    }

    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        for round in 0..self.0.plan.boots {
            for (index, kernel) in KERNELS.iter().enumerate() {
                let count = Count {
                    kernel: 1000 - 300 * index as u64 + 7 * (round * round) as u64,
                    ..Count::default()
                };
                let after = Duration::from_secs(1);
                let booted = Booted { after, count };
                self.0.booted(bench.recorder, kernel, round, booted)?;
            }
        }
        Ok(())
    }

    fn figures(&self) -> Vec<Figure> {
        self.0.figures()
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        self.0.report(figures)
    }
}

#[test]
fn every_boot_is_in_the_record() {
    let run = Counting::run();
    let boots = figure(&run.summary(), "boot_insns.debian");
    assert_eq!(boots.n, 6);
    assert!(boots.interval().is_some(), "{boots:?}");
    run.is_rebuilt_from_its_samples();
}

/// Earlier versions recorded each kernel's first boot alone, and all of them are in the summary.
#[test]
fn figures_of_boots_that_are_not_in_the_record_are_kept() {
    let run = Counting::run();
    let before = run.summary();
    let raw = run.text("raw.jsonl");
    let is_kept = |line: &&str| (1..6).all(|round| !line.contains(&format!("\"round\":{round}")));
    let first: Vec<&str> = raw.lines().filter(is_kept).collect();
    assert_eq!(first.len() + 5 * KERNELS.len(), raw.lines().count());
    std::fs::write(run.path().join("raw.jsonl"), first.join("\n")).unwrap();
    rebuild(&run.path(), ALL, Files::All).unwrap();
    let after = run.summary();
    for name in ["boot_insns.debian", "boot_rep_iterations.tailored"] {
        assert_eq!(figure(&after, name).n, 6);
    }
    assert_eq!(after.figures, before.figures);
}
