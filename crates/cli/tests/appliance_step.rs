//! A step of the platform study whose program runs alone in a machine: the chroot starts it by
//! `tare` of the host. Needs root, the freezer's groups, gcc, /dev/kvm and the image `linux`.
#![allow(clippy::unwrap_used)]

#[path = "../../platform/tests/support/mod.rs"]
mod stage;
mod support;

use std::fs;
use std::path::Path;

use stage::{Blind, Stage, step};
use support::TestDir;
use support::compile::c;
use support::needs::{built, kvm};
use tare_platform::cgroup::Groups;
use tare_platform::{Mode, Place, Platform, Report, Validity, appliance};

/// Its program ends with 7 after a line of input, which comes when it is pinned if it is to be.
const RUN: &str = r#"
{ until [ -z "${PIN-}" ] || [ -e pinned ]; do sleep 0.05; done; echo; } | app waits word > out || [ $? = 7 ]
echo 2.5 > metric
"#;
const CHECK: &str = "IFS= read -r line < out; [ \"$line\" = word ]";

#[test]
fn a_steps_program_runs_alone_in_a_machine_vanilla_and_pinned() {
    if !kvm() || built("linux").is_none() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "waits.c", &["-static"]) else {
        return;
    };
    let Some(mut stage) = Stage::new(RUN, CHECK) else {
        return;
    };
    let root = place.path().join("root");
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::copy(program, root.join("bin/waits")).unwrap();
    for mode in [Mode::Vanilla, Mode::Pinned] {
        let report = run(&mut stage, &place, &root, mode);
        assert_eq!(
            report.validity,
            Validity::Valid(2.5),
            "{mode:?}: {report:?}"
        );
    }
    assert!(place.run_directories().is_empty());
    // Without a machine there is no such program in the chroot.
    let report = stage.run();
    assert!(
        matches!(report.validity, Validity::Invalid(_)),
        "{report:?}"
    );
}

fn run(stage: &mut Stage, place: &TestDir, root: &Path, mode: Mode) -> Report {
    let own = stage.dir.path().file_name().unwrap().display().to_string();
    let name = format!("tare-test-{own}-{}", mode.name());
    let groups = Groups::make(&mut stage.journal, &name, None, None).unwrap();
    let (tree, scratch) = (stage.tree(), stage.scratch());
    let paths = appliance::Paths {
        tree: &tree,
        scratch: &scratch,
        runs: &place.run_root(),
        tare: Path::new(env!("CARGO_BIN_EXE_tare")),
        root,
    };
    let cpu = tare_platform::pin::allowed()[0];
    let at = Place::new(Platform::Appliance, mode, 1, 2);
    appliance::run(paths, &at, &[cpu], &groups, &step("output"), &mut Blind).unwrap()
}
