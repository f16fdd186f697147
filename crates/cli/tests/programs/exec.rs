//! Programs in place of others: `execve`, and scripts.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use super::support::TestDir;
use super::{answers_as_here, c, can_run, run};

#[test]
fn another_program_in_place_of_one_begins_as_on_linux() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "exec.c", &["-static", "-w"]) else {
        return;
    };
    answers_as_here(&place, &program, &[], &[]);
    // A program with threads, which Linux would end.
    let refused = run(&place, &program, &["--", "threads"]);
    refused.expect(3, "execve with several threads");
}

#[test]
fn a_script_of_a_root_is_run_by_the_interpreter_that_it_names() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "exec.c", &["-static", "-w"]) else {
        return;
    };
    let root = place.path().join("root");
    std::fs::create_dir(&root).unwrap();
    std::fs::copy(&program, root.join("interpreter")).unwrap();
    let put = |name: &str, content: &str| {
        let script = root.join(name);
        std::fs::write(&script, content).unwrap();
        std::fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    };
    put("start", "#!/interpreter words\n");
    put("lost", "#!/nowhere/python -u\n");
    let root = root.to_str().unwrap();
    let args = [
        "run", "--root", root, "--net", "none", "--", "/start", "a b",
    ];
    let ended = place.run(&args);
    assert_eq!(
        ended.out,
        "word /interpreter\nword words\nword /start\nword a b\n"
    );
    ended.expect(0, "");
    let lost = place.run(&["run", "--root", root, "--", "/lost"]);
    lost.expect(126, "the root has no interpreter /nowhere/python");
}
