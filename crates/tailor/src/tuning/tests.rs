//! What ends a search, and what its boots may do to it.

use super::elimination::{Search, SearchError, Stage};
use super::search_result::{CandidateResult, Decision, Why};
use super::{Boot, Measure, Trials};

/// Boots as a function says.
struct Said<F>(F);

impl<F: FnMut(&[usize]) -> Result<Boot, &'static str>> Trials for Said<F> {
    type Error = Stopped;

    fn boot(&mut self, settings: &[usize]) -> Result<Boot, Stopped> {
        (self.0)(settings).map_err(Stopped)
    }
}

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
struct Stopped(&'static str);

fn boot(measured: Result<f64, &str>) -> Boot {
    Boot {
        measured: measured.map_err(str::to_owned),
        seconds: 4.0,
    }
}

fn search(candidates: usize, minutes: f64) -> Search {
    Search {
        measure: Measure::Instructions,
        candidates,
        budget_s: minutes * 60.0,
        seed: 5,
    }
}

/// A value that differs a little from boot to boot.
fn value(boots: usize, factor: f64) -> f64 {
    1000.0 * factor + ((boots * 7919) % 13) as f64 / 10.0
}

#[test]
fn a_setting_that_breaks_the_application_is_named_and_the_others_go_on() {
    let mut boots = 0;
    let mut trials = Said(|settings: &[usize]| {
        boots += 1;
        Ok(boot(match settings {
            [1] => Err("the guest ended"),
            all if all.contains(&0) => Ok(value(boots, 0.9)),
            _ => Ok(value(boots, 1.0)),
        }))
    });
    let found = search(4, 30.0).run(&mut trials, |_| {}).unwrap();
    assert_eq!(found.settings(), [0]);
    let broken = CandidateResult::Broken("the guest ended".to_owned());
    assert_eq!(found.tried[1].verdict, broken);
}

#[test]
fn winners_that_do_not_work_together_leave_the_default() {
    let mut boots = 0;
    let mut trials = Said(|settings: &[usize]| {
        boots += 1;
        Ok(boot(match settings.len() {
            0 => Ok(value(boots, 1.0)),
            1 => Ok(value(boots, 0.9)),
            _ => Err("no answer"),
        }))
    });
    let found = search(2, 30.0).run(&mut trials, |_| {}).unwrap();
    let why = Why::NotTogether("no answer".to_owned());
    assert_eq!(found.decision, Decision::Default(why));
    assert!(found.settings().is_empty());
}

#[test]
fn one_boot_that_fails_is_made_again() {
    let mut boots = 0;
    let mut trials = Said(|settings: &[usize]| {
        boots += 1;
        Ok(boot(match settings {
            _ if boots % 9 == 0 => Err("the host was busy"),
            [] => Ok(value(boots, 1.0)),
            _ => Ok(value(boots, 0.9)),
        }))
    });
    let found = search(1, 30.0).run(&mut trials, |_| {}).unwrap();
    assert_eq!(found.settings(), [0], "{found:?}");
}

#[test]
fn a_default_that_is_not_measured_ends_the_search() {
    let mut trials = Said(|_: &[usize]| Ok(boot(Err("no answer"))));
    let error = search(3, 30.0).run(&mut trials, |_| {}).unwrap_err();
    assert!(error.to_string().ends_with(": no answer"), "{error}");
    for nonsense in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let mut trials = Said(|_: &[usize]| Ok(boot(Ok(nonsense))));
        let error = search(3, 30.0).run(&mut trials, |_| {}).unwrap_err();
        assert!(matches!(error, SearchError::Default(_)), "{error}");
    }
}

#[test]
fn a_budget_too_short_for_any_search_names_one_that_is_not() {
    let mut boots = 0;
    let mut trials = Said(|_: &[usize]| {
        boots += 1;
        Ok(boot(Ok(1.0)))
    });
    let error = search(5, 1.0).run(&mut trials, |_| {}).unwrap_err();
    let SearchError::Budget { needed_min, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(boots, 1);
    let mut boots = 0;
    let mut trials = Said(|settings: &[usize]| {
        boots += 1;
        let factor = if settings.is_empty() { 1.0 } else { 0.9 };
        Ok(boot(Ok(value(boots, factor))))
    });
    let found = search(5, needed_min as f64)
        .run(&mut trials, |_| {})
        .unwrap();
    assert!(!found.settings().is_empty(), "{found:?}");
}

#[test]
fn the_budget_is_kept_where_boots_become_slower() {
    let mut boots = 0;
    let mut trials = Said(|settings: &[usize]| {
        boots += 1;
        let factor = if settings.is_empty() { 1.0 } else { 0.9 };
        Ok(Boot {
            measured: Ok(value(boots, factor)),
            seconds: if boots > 60 { 12.0 } else { 4.0 },
        })
    });
    let search = search(12, 15.0);
    let found = search.run(&mut trials, |_| {}).unwrap();
    let block = 14.0 * 12.0;
    assert!(found.seconds <= search.budget_s + block, "{found:?}");
    assert!(
        found
            .tried
            .iter()
            .all(|it| it.verdict != CandidateResult::NoTime)
    );
}

#[test]
fn a_stop_ends_the_search_at_once() {
    let mut boots = 0;
    let mut trials = Said(|_: &[usize]| {
        boots += 1;
        if boots == 20 {
            return Err("interrupted");
        }
        Ok(boot(Ok(value(boots, 1.0))))
    });
    let error = search(8, 30.0).run(&mut trials, |_| {}).unwrap_err();
    assert!(matches!(error, SearchError::Trials(Stopped("interrupted"))));
    assert_eq!(boots, 20);
}

#[test]
fn the_stages_are_told_in_order() {
    let mut boots = 0;
    let mut trials = Said(|settings: &[usize]| {
        boots += 1;
        let factor = if settings.contains(&2) { 0.9 } else { 1.0 };
        Ok(boot(Ok(value(boots, factor))))
    });
    let mut stages = Vec::new();
    let found = search(6, 60.0).run(&mut trials, |stage| stages.push(stage));
    assert_eq!(found.unwrap().settings(), [2]);
    assert!(matches!(
        stages[0],
        Stage::Screening { candidates: 6, .. } | Stage::Test { .. }
    ));
    assert_eq!(stages.last(), Some(&Stage::Confirmation { settings: 1 }));
}
