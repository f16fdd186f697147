//! Programs that a signal ends: by its default action, and where its handler cannot run.

use crate::support::TestDir;
use crate::support::compile::c;
use crate::{can_run, run};

#[test]
fn a_program_that_a_signal_ends_gives_128_and_its_number() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "limits.c", &["-static"]) else {
        return;
    };
    for (args, signal) in [
        (&["raise", "6"][..], 6),
        (&["raise", "9"], 9),
        (&["raise", "34"], 34),
        (&["null"], 11),
        (&["divide"], 8),
        (&["illegal"], 4),
    ] {
        let ended = run(&place, &program, &[&["--"], args].concat());
        ended.expect(128 + signal, &format!("was ended by signal {signal}"));
    }
}

#[test]
fn a_signal_stack_without_room_ends_the_program() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    if let Some(program) = c(&place, "nested.c", &["-static"]) {
        let ended = run(&place, &program, &[]);
        ended.expect(139, "");
        assert_eq!(ended.out, "", "{ended:?}");
    }
}
