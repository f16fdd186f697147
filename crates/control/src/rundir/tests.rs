//! Roots of the tests' own, with what others might have put into them.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{CWD, FileType, mknodat};

use tare_vmtest::files_below;

use super::location::MAX_NAME;
use super::*;

fn root() -> (tempfile::TempDir, RunRoot) {
    let directory = tempfile::tempdir().unwrap();
    let root = RunRoot::open(directory.path().join("tare")).unwrap();
    (directory, root)
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

#[test]
fn names_that_could_leave_the_root_are_refused() {
    for name in [
        "", ".", "..", "../x", "a/b", "-a", ".lock", "a b", "ä", "a\n",
    ] {
        assert!(!valid_name(name), "{name:?}");
    }
    assert!(!valid_name(&"a".repeat(MAX_NAME + 1)));
    for name in ["a", "http-1", "A_b.c", "0"] {
        assert!(valid_name(name), "{name:?}");
    }
    assert!(valid_name(&"a".repeat(MAX_NAME)));
}

#[test]
fn a_name_is_used_once_until_its_lock_goes() {
    let (_keep, root) = root();
    let (directory, lock) = root.create("web").unwrap();
    assert!(directory.is_alive());
    assert!(matches!(root.create("web"), Err(RunDirError::InUse(name)) if name == "web"));
    assert!(matches!(root.remove("web"), Err(RunDirError::InUse(_))));
    assert_eq!(root.find("web").unwrap(), directory);
    drop(lock);
    assert!(!directory.is_alive());
    assert!(matches!(root.find("web"), Err(RunDirError::NotRunning(_))));
    assert!(root.create("web").is_ok());
}

#[test]
fn listing_removes_nothing_and_shows_how_machines_ended() {
    let (_keep, root) = root();
    let (_, _lock) = root.create("b").unwrap();
    let (killed, lock) = root.create("a").unwrap();
    fs::write(killed.console_log(), "x").unwrap();
    drop(lock);
    let (_, lock) = root.create("c").unwrap();
    record_end(&lock, 70).unwrap();
    drop(lock);
    let runs = root.list().unwrap().runs;
    let names: Vec<_> = runs.iter().map(|run| run.dir.name()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(runs[0].state, RunState::Ended(None));
    assert_eq!(runs[1].state, RunState::Running);
    assert!(matches!(&runs[2].state, RunState::Ended(Some(end)) if end.code == 70));
    assert_eq!(root.list().unwrap().runs, runs);
    assert_eq!(fs::read(killed.console_log()).unwrap(), b"x");
}

#[test]
fn an_ended_machine_can_be_removed_and_its_name_used_again() {
    let (_keep, root) = root();
    for name in ["a", "b"] {
        let (dir, _lock) = root.create(name).unwrap();
        fs::write(dir.console_log(), "x").unwrap();
    }
    root.remove("a").unwrap();
    assert!(matches!(root.remove("a"), Err(RunDirError::NotRunning(_))));
    let (again, _lock) = root.create("b").unwrap();
    assert!(!again.console_log().exists());
}

#[test]
fn removing_leaves_nothing_and_may_be_repeated() {
    let (_keep, root) = root();
    let (directory, _lock) = root.create("web").unwrap();
    fs::write(directory.machine_json(), "{}").unwrap();
    directory.remove().unwrap();
    assert!(!directory.path().exists());
    directory.remove().unwrap();
}

#[test]
fn a_file_that_tare_did_not_put_there_survives_a_removal() {
    let (_keep, root) = root();
    let (directory, lock) = root.create("web").unwrap();
    let photo = directory.path().join("photo.jpg");
    fs::write(&photo, "x").unwrap();
    drop(lock);
    directory.remove().unwrap();
    assert!(photo.exists());
    assert!(matches!(root.create("web"), Err(RunDirError::Foreign(_))));
}

#[test]
fn an_end_that_is_recorded_after_the_directory_was_found_counts() {
    let (keep, root) = root();
    let (_, lock) = root.create("web").unwrap();
    let path = keep.path().join("tare");
    let place = open(&path, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
    let Found::Run(found) = entry::find(&place, "web").unwrap() else {
        panic!("not found");
    };
    assert_eq!(found.state().unwrap(), RunState::Running);
    record_end(&lock, 3).unwrap();
    drop(lock);
    let state = found.state().unwrap();
    assert!(matches!(state, RunState::Ended(Some(end)) if end.code == 3));
}

#[test]
fn only_what_a_killed_machine_left_is_removed_as_such() {
    let (_keep, root) = root();
    let (runs, _lock) = root.create("runs").unwrap();
    let (ended, lock) = root.create("ended").unwrap();
    record_end(&lock, 0).unwrap();
    drop(lock);
    let killed = root.create("killed").unwrap().0;
    let shared = root.create("shared").unwrap().0;
    fs::write(shared.path().join("photo.jpg"), "x").unwrap();
    for (name, gone) in [("runs", false), ("ended", false), ("killed", true)] {
        assert_eq!(root.remove_killed(name).unwrap(), gone, "{name}");
    }
    assert!(!root.remove_killed("killed").unwrap());
    assert!(!root.remove_killed("shared").unwrap(), "it is still there");
    assert!(runs.path().exists() && ended.path().exists());
    assert!(!killed.path().exists() && shared.path().join("photo.jpg").exists());
}

/// What a user's directory, or one that others may write to, can hold.
fn plant(root: &Path) {
    fs::create_dir_all(root.join("photos/2026")).unwrap();
    fs::write(root.join("photos/2026/a.jpg"), "x").unwrap();
    fs::write(root.join("file"), "x").unwrap();
    symlink(root.join("photos"), root.join("link")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    fifo(&root.join("fifo"));
    for name in ["with-fifo", "with-link", "with-socket", "with-other-lock"] {
        fs::create_dir(root.join(name)).unwrap();
        fs::write(root.join(name).join("precious"), "x").unwrap();
    }
    fifo(&root.join("with-fifo/lock"));
    fs::write(root.join("marked"), MARKER).unwrap();
    symlink("../marked", root.join("with-link/lock")).unwrap();
    UnixListener::bind(root.join("with-socket/lock")).unwrap();
    fs::write(root.join("with-other-lock/lock"), "pid 7\n").unwrap();
}

#[test]
fn what_tare_did_not_make_is_listed_and_left_alone() {
    let keep = tempfile::tempdir().unwrap();
    plant(keep.path());
    let before = files_below(keep.path());
    let root = RunRoot::open(keep.path()).unwrap();
    let listing = root.list().unwrap();
    assert!(listing.runs.is_empty());
    assert_eq!(listing.foreign.len(), 10, "{listing:?}");
    assert_eq!(files_below(keep.path()), before);
    for path in &listing.foreign {
        let name = path.file_name().unwrap().to_str().unwrap();
        for error in [
            root.create(name).map(drop).unwrap_err(),
            root.find(name).map(drop).unwrap_err(),
            root.remove(name).unwrap_err(),
            RunDir::at(path).remove().unwrap_err(),
        ] {
            assert!(matches!(error, RunDirError::Foreign(_)), "{name}: {error}");
        }
    }
    fs::remove_file(keep.path().join(ROOT_LOCK)).unwrap();
    assert_eq!(files_below(keep.path()), before);
}

#[test]
fn an_empty_directory_may_be_taken() {
    let keep = tempfile::tempdir().unwrap();
    fs::create_dir(keep.path().join("web")).unwrap();
    let root = RunRoot::open(keep.path()).unwrap();
    assert!(root.create("web").is_ok());
}

/// As when the process is killed before it has written the first line of the lock.
#[test]
fn a_directory_with_an_empty_lock_that_no_process_holds_may_be_taken() {
    let keep = tempfile::tempdir().unwrap();
    let root = RunRoot::open(keep.path()).unwrap();
    let [cut, held, used] = ["cut", "held", "used"].map(|name| keep.path().join(name));
    for directory in [&cut, &held, &used] {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("lock"), "").unwrap();
    }
    fs::write(used.join("photo.jpg"), "x").unwrap();
    let lock = File::open(held.join("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    assert_eq!(root.list().unwrap().foreign, [held, used.clone()]);
    assert!(matches!(root.find("cut"), Err(RunDirError::NotRunning(_))));
    for name in ["held", "used"] {
        let made = root.create(name);
        assert!(matches!(made, Err(RunDirError::Foreign(_))), "{name}");
    }
    assert!(used.join("lock").exists());
    let (dir, _lock) = root.create("cut").unwrap();
    assert!(dir.is_alive());
}

/// This test starts itself again, in a process that can write nothing to a file.
#[test]
fn a_start_without_space_for_the_lock_leaves_nothing() {
    const ROOT: &str = "TARE_TEST_FULL_ROOT";
    if let Some(path) = std::env::var_os(ROOT) {
        let root = RunRoot::open(path).unwrap();
        assert!(matches!(root.create("web"), Err(RunDirError::Io { .. })));
        return;
    }
    let keep = tempfile::tempdir().unwrap();
    // An ignored signal stays ignored: writing fails (EFBIG) as it does without space.
    let mut again = std::process::Command::new("sh");
    let name = "rundir::tests::a_start_without_space_for_the_lock_leaves_nothing";
    again
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 0; exec \"$0\" --exact \"$1\"",
        ])
        .arg(std::env::current_exe().unwrap())
        .arg(name)
        .env(ROOT, keep.path());
    let ended = again.output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stdout).contains("1 passed"));
    assert_eq!(files_below(keep.path()), [keep.path().join(ROOT_LOCK)]);
    let root = RunRoot::open(keep.path()).unwrap();
    assert!(root.create("web").is_ok());
}

#[test]
fn a_socket_path_that_the_kernel_refuses_is_refused_before() {
    let keep = tempfile::tempdir().unwrap();
    let root = RunRoot::open(keep.path().join("x".repeat(60))).unwrap();
    let name = "y".repeat(MAX_NAME);
    assert!(matches!(
        root.create(&name),
        Err(RunDirError::PathTooLong(_))
    ));
    assert!(root.list().unwrap().runs.is_empty());
}

#[test]
fn reading_a_root_that_is_missing_makes_nothing() {
    let (keep, root) = root();
    assert_eq!(root.list().unwrap(), Listing::default());
    assert!(matches!(root.find("web"), Err(RunDirError::NotRunning(_))));
    assert!(files_below(keep.path()).is_empty());
}

#[test]
fn a_root_that_others_can_change_is_refused() {
    let keep = tempfile::tempdir().unwrap();
    let link = keep.path().join("link");
    symlink(keep.path(), &link).unwrap();
    let file = keep.path().join("file");
    fs::write(&file, "x").unwrap();
    for path in [&link, &file] {
        let error = RunRoot::open(path).unwrap_err();
        assert!(matches!(error, RunDirError::NotADirectory(_)), "{error}");
    }
    for mode in [0o777, 0o1777, 0o770, 0o702] {
        fs::set_permissions(keep.path(), fs::Permissions::from_mode(mode)).unwrap();
        let error = RunRoot::open(keep.path()).unwrap_err();
        let refused =
            matches!(error, RunDirError::WritableByOthers { mode: seen, .. } if seen == mode);
        assert!(refused, "{error}");
    }
    fs::set_permissions(keep.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(RunRoot::open(keep.path()).is_ok());
}

#[test]
fn a_planted_lock_of_the_root_neither_hangs_nor_is_followed() {
    let keep = tempfile::tempdir().unwrap();
    let root = RunRoot::open(keep.path()).unwrap();
    let lock = keep.path().join(ROOT_LOCK);
    fifo(&lock);
    assert!(matches!(root.create("web"), Err(RunDirError::Foreign(_))));
    fs::remove_file(&lock).unwrap();
    symlink(keep.path().join("elsewhere"), &lock).unwrap();
    assert!(root.create("web").is_err());
    assert!(!keep.path().join("elsewhere").exists());
}

#[test]
fn files_of_a_run_are_opened_without_links_or_waiting() {
    let (_keep, root) = root();
    let (dir, _lock) = root.create("web").unwrap();
    fs::write(dir.console_log(), "x").unwrap();
    assert!(dir.open_file(&dir.console_log()).is_ok());
    fifo(&dir.run_json());
    assert!(dir.open_file(&dir.run_json()).is_err());
    symlink("console.log", dir.passt_log()).unwrap();
    assert!(dir.open_file(&dir.passt_log()).is_err());

    let disk = dir.reload_disk();
    fs::write(&disk, "x").unwrap();
    let mut file = dir.open_reload_disk().unwrap();
    file.write_all(b"y").unwrap();
    assert_eq!(fs::read(&disk).unwrap(), b"y");
    fs::set_permissions(&disk, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(dir.open_reload_disk().is_err());
    fs::remove_file(&disk).unwrap();
    // Open for both, a FIFO does not wait, and is not what the name says.
    fifo(&disk);
    assert!(dir.open_reload_disk().is_err());
    fs::remove_file(&disk).unwrap();
    symlink("console.log", &disk).unwrap();
    assert!(dir.open_reload_disk().is_err());
}

#[test]
fn a_machines_process_is_named_in_its_record_and_the_rest_stays() {
    let (_keep, root) = root();
    let (dir, _lock) = root.create("web").unwrap();
    dir.name_process(7, 70).unwrap();
    assert!(!dir.run_json().exists(), "there is no record");
    fs::write(dir.run_json(), r#"{"image":"http","pid":1}"#).unwrap();
    dir.name_process(7, 70).unwrap();
    let record: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.run_json()).unwrap()).unwrap();
    let expected = serde_json::json!({"image": "http", "pid": 7, "start_time": 70});
    assert_eq!(record, expected);
    fs::write(dir.run_json(), "[]").unwrap();
    assert!(dir.name_process(7, 70).is_err());
    assert_eq!(fs::read(dir.run_json()).unwrap(), b"[]");
}

#[test]
fn a_directory_that_is_kept_begins_again_with_its_log() {
    let (_keep, root) = root();
    let (dir, lock) = root.create("web").unwrap();
    assert_eq!(dir.recorded().unwrap(), Recorded::Nothing);
    for code in [70, 3] {
        fs::write(dir.console_log(), "said").unwrap();
        fs::write(dir.machine_json(), "{}").unwrap();
        let _socket = UnixListener::bind(dir.control_socket()).unwrap();
        record_end(&lock, code).unwrap();
        match dir.recorded().unwrap() {
            Recorded::End(end) => assert_eq!(end.code, code),
            other => panic!("{other:?}"),
        }
        assert!(dir.is_alive());
        dir.begin_again().unwrap();
        assert_eq!(dir.recorded().unwrap(), Recorded::Nothing);
        assert_eq!(fs::read_to_string(dir.console_log()).unwrap(), "said");
        assert!(!dir.control_socket().exists() && !dir.machine_json().exists());
    }
    dir.remove().unwrap();
    assert_eq!(dir.recorded().unwrap(), Recorded::Removed);
    assert!(dir.begin_again().is_err());
}

/// `tare stop` looks again while the monitor removes the directory.
#[test]
fn a_directory_that_is_removed_meanwhile_is_missing() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("web");
    fs::create_dir(&path).unwrap();
    let directory = fs::File::open(&path).unwrap();
    fs::remove_dir(&path).unwrap();
    let found = entry::found_in(directory.into()).unwrap();
    assert!(matches!(found, Found::Missing));
}
