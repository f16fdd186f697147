//! Comparisons of made runs.

use serde_json::json;

use super::*;
use crate::figure::{exact, median, rate};
use crate::host::HostFacts;
use crate::testing::KNOWN;

fn run(experiment: &str, figures: Vec<Figure>) -> Summary {
    let json = json!({
        "experiment": experiment, "started": "2026-01-01T00:00:00Z", "revision": "x",
        "machine": HostFacts::default(), "figures": figures,
    });
    serde_json::from_value(json).unwrap()
}

fn times(mean: f64) -> Vec<f64> {
    (0..20)
        .map(|i| mean * (1.0 + f64::from(i - 10) / 500.0))
        .collect()
}

fn change_of(before: Figure, after: Figure) -> Row {
    let both = compared(&run("x", vec![before]), &run("x", vec![after]), KNOWN);
    both.unwrap().figures.remove(0)
}

#[test]
fn a_change_counts_where_the_interval_of_the_ratio_excludes_one() {
    let of = |mean: f64| median("wake_p50_us", "us", &times(mean)).unwrap();
    let slower = change_of(of(10.0), of(11.0));
    assert_eq!(slower.change, Change::Worse);
    let (low, high) = slower.ratio_interval.unwrap();
    assert!(low > 1.05 && high < 1.15, "{slower:?}");
    assert!(slower.worse_by().unwrap() < 10.0);
    assert_eq!(change_of(of(11.0), of(10.0)).change, Change::Better);
    assert_eq!(change_of(of(10.0), of(10.01)).change, Change::None);
    let one = median("wake_p50_us", "us", &[20.0]).unwrap();
    assert_eq!(change_of(of(10.0), one).change, Change::Undecided);
}

/// Two neighbouring buckets of a histogram, each hit by all samples.
#[test]
fn equal_samples_of_a_stepped_time_are_not_known_exactly() {
    let of = |us: f64| median("wake_p50_us", "us", &[us; 6]).unwrap();
    let row = change_of(of(14_065.044), of(14_165.869));
    assert_eq!(row.change, Change::Undecided, "{row:?}");
    // A count is whole.
    let of = |count: f64| median("exits_per_request", "1", &[count; 6]).unwrap();
    assert_ne!(change_of(of(2.0), of(3.0)).change, Change::Undecided);
}

#[test]
fn more_is_better_for_rates_and_exact_figures_have_no_error() {
    let of = |mean: f64| median("iops.cif1.vic", "1/s", &times(mean)).unwrap();
    assert_eq!(change_of(of(10.0), of(11.0)).change, Change::Better);
    let of = |mean: f64| median("in_flight.cif1", "1", &times(mean)).unwrap();
    assert_eq!(change_of(of(10.0), of(11.0)).change, Change::Differs);
    let of = |mean: f64| median("db_iops.vic", "1/s", &times(mean)).unwrap();
    assert_eq!(change_of(of(10.0), of(11.0)).change, Change::Better);
    let size = |bytes: f64| exact("image_bytes", "bytes", &[bytes]).unwrap();
    let grown = change_of(size(100.0), size(104.0));
    assert_eq!(grown.change, Change::Worse);
    assert!((grown.worse_by().unwrap() - 4.0).abs() < 1e-9);
    assert_eq!(change_of(size(100.0), size(100.0)).change, Change::None);
    // Of what is exact, zero is known too.
    assert_eq!(change_of(size(0.0), size(0.0)).change, Change::None);
    assert_eq!(change_of(size(3.0), size(0.0)).change, Change::Better);
    assert_eq!(
        change_of(size(0.0), size(3.0)).worse_by(),
        Some(f64::INFINITY)
    );
    let none = || rate("idle_exits_per_s.tare", "1/s", &[(0.0, 60.0)]).unwrap();
    let some = rate("idle_exits_per_s.tare", "1/s", &[(120.0, 60.0)]).unwrap();
    assert_eq!(change_of(none(), some).worse_by(), Some(f64::INFINITY));
    assert_eq!(change_of(none(), none()).change, Change::None);
}

#[test]
fn only_worse_than_allowed_fails() {
    let of = |mean: f64| vec![median("wake_p50_us", "us", &times(mean)).unwrap()];
    let both = compared(&run("x", of(10.0)), &run("x", of(11.0)), KNOWN).unwrap();
    assert_eq!(both.worse_than(3.0).len(), 1);
    assert_eq!(both.worse_than(20.0).len(), 0);
    assert!(both.markdown().contains("| **worse** |"));
    assert!(both.csv().lines().count() == 2);
    assert!(both.json().contains("\"change\": \"worse\""));
    assert!(both.text().contains("1 figures are compared at once"));
}

#[test]
fn a_gate_that_cannot_look_is_not_open() {
    let of = |samples: &[f64]| vec![median("wake_p50_us", "us", samples).unwrap()];
    let (few, many) = (of(&[1.0, 2.0]), of(&times(10.0)));
    let undecided = |before: &[Figure], after: Summary| {
        let both = compared(&run("x", before.to_vec()), &after, KNOWN).unwrap();
        both.undecided()
    };
    assert_eq!(undecided(&many, run("x", many.clone())), None);
    let size = vec![exact("image_bytes", "bytes", &[1.0]).unwrap()];
    assert_eq!(undecided(&size, run("x", size.clone())), None);
    let why = undecided(&many, run("x", few)).unwrap();
    assert!(why.contains("none of 1 figures has an interval"), "{why}");
    for (status, how) in [
        (Status::Broken, "broken"),
        (Status::Interrupted, "interrupted"),
    ] {
        let after = Summary {
            status,
            ..run("x", many.clone())
        };
        let why = undecided(&many, after).unwrap();
        assert!(why.contains(&format!("second run is {how}")), "{why}");
    }
}

/// A run that is kept in `lab/runs`.
fn kept(name: &str) -> KeptRun {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/runs");
    KeptRun::read(&runs.join(name)).unwrap()
}

#[test]
fn runs_of_two_applications_or_images_are_refused() {
    let figure = || vec![exact("image_bytes.debian", "B", &[1.0]).unwrap()];
    let of = |subject: Option<&str>| Summary {
        subject: subject.map(str::to_owned),
        ..run("tailor", figure())
    };
    let both = compared(&of(Some("nginx")), &of(Some("redis")), KNOWN);
    let error = both.unwrap_err().to_string();
    assert!(error.contains("measured nginx and redis"), "{error}");
    for same in [[Some("nginx"); 2], [None, Some("nginx")], [None; 2]] {
        let [before, after] = same.map(of);
        assert!(compared(&before, &after, KNOWN).is_ok(), "{same:?}");
    }
    let [nginx, redis] =
        ["nginx", "redis"].map(|app| kept(&format!("2026-11-29-tailor-{app}-quick")));
    let refused = compare(&nginx, &redis, KNOWN);
    assert!(
        matches!(refused, Err(CompareError::Subjects { .. })),
        "{refused:?}"
    );
    assert!(compare(&nginx, &nginx, KNOWN).is_ok());
}

#[test]
fn runs_of_two_depths_are_marked_and_decide_nothing() {
    let of = |depth: &str, mean: f64| Summary {
        depth: Some(depth.to_owned()),
        ..run(
            "x",
            vec![median("wake_p50_us", "us", &times(mean)).unwrap()],
        )
    };
    let both = compared(&of("standard", 10.0), &of("standard", 11.0), KNOWN).unwrap();
    assert_eq!((both.worse_than(3.0).len(), both.undecided()), (1, None));
    let both = compared(&of("standard", 10.0), &of("full", 11.0), KNOWN).unwrap();
    assert!(both.warnings[0].contains("standard and full"), "{both:?}");
    assert!(both.text().starts_with("warning: the depth differs"));
    assert!(both.worse_than(3.0).is_empty());
    let why = both.undecided().unwrap();
    assert!(why.contains("standard and full"), "{why}");
    let old = run(
        "x",
        vec![median("wake_p50_us", "us", &times(11.0)).unwrap()],
    );
    let both = compared(&of("standard", 10.0), &old, KNOWN).unwrap();
    assert!(both.warnings.is_empty(), "{both:?}");
}

#[test]
fn runs_that_do_not_compare_are_refused() {
    let figure = || vec![exact("x", "B", &[1.0]).unwrap()];
    let error = compared(&run("kv", figure()), &run("vic", figure()), KNOWN).unwrap_err();
    assert!(error.to_string().contains("kv and vic"), "{error}");
    let error = compared(&run("kv", figure()), &run("kv", Vec::new()), KNOWN).unwrap_err();
    assert!(matches!(error, CompareError::Nothing));
    let elsewhere = Summary {
        machine: HostFacts {
            cpu: "another".to_owned(),
            ..HostFacts::default()
        },
        ..run("kv", figure())
    };
    let both = compared(&run("kv", figure()), &elsewhere, KNOWN).unwrap();
    assert!(both.warnings[0].contains("processor differs"), "{both:?}");
}

#[test]
fn what_does_not_compare_is_named() {
    let size = |unit: &str| vec![exact("a,b", unit, &[1.0]).unwrap(), figure()];
    fn figure() -> Figure {
        exact("x", "B", &[1.0]).unwrap()
    }
    let both = compared(&run("kv", size("us")), &run("kv", size("ns")), KNOWN).unwrap();
    assert_eq!(both.figures.len(), 1);
    assert!(
        both.text().ends_with("another unit: a,b\n"),
        "{}",
        both.text()
    );
    assert!(both.markdown().ends_with("another unit: a,b\n"));
    let both = compared(&run("kv", size("us")), &run("kv", size("us")), KNOWN).unwrap();
    assert!(both.csv().contains("\"a,b\",us,1,1,"), "{}", both.csv());
    assert!(!both.text().contains("figure "), "a head without rows");
    let broken = Summary {
        status: Status::Broken,
        ..run("kv", size("us"))
    };
    let both = compared(&run("kv", size("us")), &broken, KNOWN).unwrap();
    assert!(
        both.warnings[0].contains("second run is broken"),
        "{both:?}"
    );
}

/// Figures of `samples` samples each around 100, of which the first is `worse` percent more.
fn drawn(dice: &mut tare_stats::SplitMix64, figures: usize, samples: usize, worse: f64) -> Summary {
    let mut all = Vec::new();
    for index in 0..figures {
        let factor = if index == 0 { 1.0 + worse / 100.0 } else { 1.0 };
        let mut noise = || {
            let sum: f64 = (0..6).map(|_| dice.below(1000) as f64 / 1000.0 - 0.5).sum();
            100.0 * factor * (1.0 + 0.03 * sum)
        };
        let values: Vec<f64> = (0..samples).map(|_| noise()).collect();
        all.push(median(&format!("exit_ns.{index}"), "ns", &values).unwrap());
    }
    run("vmexit", all)
}

#[test]
fn many_figures_that_did_not_change_rarely_raise_an_alarm() {
    const COMPARISONS: usize = 200;
    let mut dice = tare_stats::SplitMix64::new(3);
    for samples in [6, 12] {
        let (mut alarms, mut alone, mut found) = (0, 0, 0);
        for _ in 0..COMPARISONS {
            let runs = [0.0, 0.0, 10.0].map(|worse| drawn(&mut dice, 60, samples, worse));
            let same = compared(&runs[0], &runs[1], KNOWN).unwrap();
            let named = |row: &&Row| matches!(row.change, Change::Better | Change::Worse);
            alarms += usize::from(same.figures.iter().any(|row| named(&row)));
            alone += same.count_by_interval();
            let slower = compared(&runs[0], &runs[2], KNOWN).unwrap();
            found += usize::from(slower.figures[0].change == Change::Worse);
        }
        let alone = alone as f64 / COMPARISONS as f64;
        println!(
            "60 figures, n {samples}: {alone:.1} intervals without 1 a comparison; an alarm in \
             {alarms} of {COMPARISONS}; 10 % found in {found}"
        );
        assert!(alarms <= COMPARISONS / 12, "n {samples}: {alarms} alarms");
        assert!(samples < 12 || found >= COMPARISONS * 9 / 10, "{found}");
    }
}

impl Compared {
    /// Figures that would be called a change if each were the only one.
    fn count_by_interval(&self) -> usize {
        let figures = self.figures.iter();
        let outside = |ends: (f64, f64)| ends.0 > 1.0 || ends.1 < 1.0;
        figures
            .filter(|row| row.ratio_interval.is_some_and(outside))
            .count()
    }
}

#[test]
fn text_of_a_foreign_run_moves_no_cursor_and_makes_no_column() {
    let name = "x|\u{1b}]0;t\u{7}`<b>";
    let of = |value: f64| vec![exact(name, "B\u{1b}[2J|", &[value]).unwrap()];
    let machine = HostFacts {
        cpu: "\u{1b}[31mred | <i>".to_owned(),
        ..HostFacts::default()
    };
    let other = Summary {
        machine,
        ..run("kv", of(2.0))
    };
    let both = compared(&run("kv", of(1.0)), &other, KNOWN).unwrap();
    for text in [both.text(), both.markdown(), both.csv(), both.json()] {
        assert!(
            text.chars().all(|c| c == '\n' || !c.is_control()),
            "{text:?}"
        );
    }
    let markdown = both.markdown();
    let row = markdown
        .lines()
        .find(|line| line.starts_with("| x"))
        .unwrap();
    assert_eq!(row.replace("\\|", "").matches('|').count(), 7, "{row}");
    assert!(
        !markdown.contains("<b>") && !markdown.contains("<i>"),
        "{markdown}"
    );
    let error = compared(&run("a\u{1b}[2J", of(1.0)), &other, KNOWN).unwrap_err();
    assert!(!error.to_string().contains('\u{1b}'));
}
