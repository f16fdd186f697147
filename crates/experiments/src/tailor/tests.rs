//! Records of the experiment, with counts in place of machines.

use tare_control::stats::Kvm;
use tare_lab::kit::value;
use tare_lab::results::Judgement;
use tare_machines::appliance::fake::{Fakes, Fault};
use tare_tailor::counter::Count;

use super::plan::TAILORED;
use super::*;
use crate::testing::{Run, figure, kept};

fn replayed(record: &Record) -> Tailor {
    let mut tailor = Tailor::new(Depth::Quick, Options::default());
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
    let options = Options {
        configs: vec!["/no/such/file".into()],
        ..Options::default()
    };
    let mut tailor = Tailor::new(Depth::Quick, options);
    let refused = tailor.configure().unwrap_err().to_string();
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
        let counting = Self(Tailor::new(Depth::Standard, Options::default()));
        let fakes = Fakes::new(Kvm::None, Fault::None);
        Run::of("tailor", Box::new(counting), fakes)
    }
}

impl Experiment for Counting {
    fn plan(&self) -> Value {
        self.0.plan()
    }

    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        let used = Line::single(SYSCALLS_USED, "", 80.0);
        self.0.keep(bench.recorder, &used)?;
        let boots = self.0.plan.boots;
        let first = (0..KERNELS.len()).map(|index| (index, 0));
        let later = plan::later_boots(boots, KERNELS.len());
        let later = later.into_iter().map(|turn| (turn.index, turn.round));
        for (index, round) in first.chain(later) {
            let count = |more: u64| Count {
                kernel: 1000 - 300 * index as u64 + 7 * (round * round) as u64 + more,
                ..Count::default()
            };
            let of = || BootOf {
                kernel: KERNELS[index].to_owned(),
                round,
            };
            let boot = Line::Boot {
                of: of(),
                insns: count(0),
                ms: 1000.0,
            };
            let requests = ["peak", "browsing"].map(|phase| Line::Requests {
                of: of(),
                phase: phase.to_owned(),
                insns: (0..40).map(count).collect(),
            });
            let (of, kib) = (of(), 9000 + round as u64);
            let memory = Line::Memory { of, kib };
            let mut lines = vec![boot, memory];
            lines.extend(requests);
            if round == 0 {
                let answers = vec![format!("on {}", KERNELS[index]).into_bytes()];
                let dialogs = [b"a request".to_vec()];
                lines.extend(self.0.weighed.answers(KERNELS[index], &dialogs, answers));
                lines.push(Line::single(BOOT_MS, KERNELS[index], 1000.0));
            }
            for line in &lines {
                self.0.keep(bench.recorder, line)?;
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
fn a_boot_is_a_sample_of_requests_and_every_one_is_in_the_record() {
    let run = Counting::run();
    let summary = run.summary();
    for name in [
        "boot_insns.debian",
        "peak_insns.debian",
        "browsing_kernel_insns.tailored",
        "peak_insns_fastest.tailored",
        "guest_rss_kib.debian",
        "boot_pct.tailored",
        "request_pct.tailored",
        "browsing_pct.tailored",
    ] {
        let figure = figure(&summary, name);
        assert_eq!(figure.n, 6, "{figure:?}");
        assert!(figure.interval().is_some(), "{figure:?}");
    }
    // Of a round: 1019.5 and 719.5, both with 7, 28, .. more.
    let share = figure(&summary, "request_pct.tailored");
    let (low, high) = share.interval().unwrap();
    assert!((low - 100.0 * 719.5 / 1019.5).abs() < 1e-6, "{share:?}");
    assert!((high - 100.0 * 894.5 / 1194.5).abs() < 1e-6, "{share:?}");
    let goals = summary.goals.iter();
    let judged = goals.filter(|goal| goal.verdict == Judgement::Missed);
    let missed: Vec<&str> = judged.map(|goal| goal.figure.as_str()).collect();
    assert_eq!(missed, ["answers_differ.tailored", "request_pct.tailored"]);
    for name in ["syscalls_used", "boot_ms.debian"] {
        figure(&summary, name);
    }
    run.is_rebuilt_from_its_samples();
}

/// Earlier versions recorded each kernel's first boot alone, and all of them are in the summary.
#[test]
fn figures_of_boots_that_are_not_in_the_record_are_kept() {
    let run = Counting::run();
    let before = run.summary();
    let raw = run.text("raw.jsonl").replace("\"record\":2,", "");
    let is_kept = |line: &&str| {
        let of_first = (1..6).all(|round| !line.contains(&format!("\"round\":{round}")));
        of_first && !line.contains("\"memory\"")
    };
    let first: Vec<&str> = raw.lines().filter(is_kept).collect();
    std::fs::write(run.path().join("raw.jsonl"), first.join("\n")).unwrap();
    run.rebuilt();
    let after = run.summary();
    for name in [
        "boot_insns.debian",
        "boot_rep_iterations.tailored",
        "boot_pct.tailored",
        "guest_rss_kib.debian",
    ] {
        let [kept, had] = [&after, &before].map(|summary| figure(summary, name));
        assert_eq!((kept.n, kept.spread), (6, had.spread), "{kept:?}");
        assert!((kept.value - had.value).abs() < 1e-9, "{kept:?} {had:?}");
    }
    // Requests of one boot, which the record has, are one sample whatever the summary says.
    let requests = figure(&after, "request_pct.tailored");
    assert_eq!((requests.n, requests.interval()), (1, None));
}

#[test]
fn requests_and_calls_of_one_boot_have_no_interval() {
    let record = kept("2026-11-27-tailor-go-quick");
    let figures = replayed(&record).figures();
    let mut seen = 0;
    for metric in [
        "peak_insns",
        "browsing_insns",
        "syscall_cycles",
        "request_pct",
    ] {
        let of = figures.iter().filter(|it| it.name.starts_with(metric));
        for figure in of {
            assert_eq!((figure.n, figure.ends()), (1, None), "{figure:?}");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}
