//! `tare profile` on programs with known calls, and on wrong arguments.
//!
//! Observing needs root and BPF, and SKIPs without; a guest needs QEMU, Debian's
//! kernel and the programs of `cargo xtask init`.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::{Value, json};
use support::needs::skip;
use support::{TestDir, end, free_port, installed};
use tare_rootfs::Cache;
use tare_rootfs::kernel::debian;

/// Whether system calls can be observed here.
fn ready() -> bool {
    let seen =
        geteuid().is_root() && TestDir::new().run(&["profile", "--", "/bin/true"]).code == Some(0);
    if !seen {
        skip("observing system calls needs root and BPF");
    }
    seen
}

fn read(path: &str) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_command_is_profiled_and_its_status_passed_on() {
    if !ready() {
        return;
    }
    let place = TestDir::new();
    let out = place.path().join("p.json").to_str().unwrap().to_owned();
    let script = "cat /proc/self/status >/dev/null; exit 7";
    let ended = place.run(&[
        "profile", "--label", "peak", "-o", &out, "--", "sh", "-c", script,
    ]);
    ended.expect(7, "system calls are in use");
    assert!(
        ended.err.lines().all(|line| line.chars().count() < 80),
        "{ended:#?}"
    );
    let profile = read(&out);
    assert_eq!(profile["phases"][0]["label"], "peak");
    assert_eq!(profile["devices"][0], "/dev/null");
    let merged = place.path().join("m.json").to_str().unwrap().to_owned();
    place
        .run(&["profile", "merge", &out, &out, "--out", &merged])
        .expect(0, "CALL");
    let count = |of: &Value| of["calls"]["execve"]["count"].as_u64().unwrap();
    assert_eq!(count(&read(&merged)), 2 * count(&profile));
}

#[test]
fn json_is_alone_on_standard_output() {
    if !ready() {
        return;
    }
    let place = TestDir::new();
    let ended = place.run(&["profile", "--json", "--", "/bin/echo", "spoken"]);
    ended.expect(0, "spoken");
    let profile: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(profile["calls"]["write"]["count"], 1);
}

#[test]
fn what_cannot_be_profiled_is_said_before_anything_starts() {
    if !ready() {
        return;
    }
    let place = TestDir::new();
    let mark = place.path().join("mark").to_str().unwrap().to_owned();
    let text = place.file("text", b"{");
    let merged = place.path().join("m").to_str().unwrap().to_owned();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["--", "no-such-program"], 127, "program not found:"),
        (&["--", &text], 126, "cannot be executed"),
        (&[], 2, "nothing to profile"),
        (&["--pid", "4194304"], 64, "no process has the ID"),
        (&["--container", "no-such-box"], 64, "no-such-box"),
        (
            &["--out", "/no/such/file", "--", "touch", &mark],
            76,
            "/no/such/file",
        ),
        (
            &["--log", "/no/such/file", "--", "touch", &mark],
            76,
            "/no/such/file",
        ),
        (&["merge", &text, "--out", &merged], 43, "not a profile"),
        (
            &["--in-guest", "/", "--graph", "nothing", "--", "true"],
            2,
            "nothing",
        ),
    ];
    for (args, code, said) in cases {
        let args: Vec<&str> = ["profile"].iter().chain(args.iter()).copied().collect();
        place.run(&args).expect(*code, said);
    }
    assert!(!fs::exists(&mark).unwrap());
    assert!(!fs::exists(&merged).unwrap());
}

#[test]
fn without_the_right_to_bpf_nothing_starts_and_the_way_out_is_said() {
    if !geteuid().is_root() || !support::installed("setpriv") {
        skip("only root with setpriv can give up its capabilities");
        return;
    }
    let place = TestDir::new();
    let mark = place.path().join("mark");
    let out = place.path().join("p.json");
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set", "-all", "--inh-caps", "-all"])
        .args([env!("CARGO_BIN_EXE_tare"), "profile", "--out"])
        .arg(&out)
        .args(["--", "touch"])
        .arg(&mark)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let ended = end(command.spawn().unwrap());
    ended.expect(65, "become root, or profile the application in a guest");
    assert_eq!(ended.err.lines().count(), 1, "{ended:#?}");
    // Neither the command's mark nor a profile, nor the beginning of one.
    let left: Vec<_> = fs::read_dir(place.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| {
            name.to_string_lossy().contains("mark") || name.to_string_lossy().contains("p.json")
        })
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_daemon_is_followed_and_ended_with_the_observation() {
    if !ready() {
        return;
    }
    let place = TestDir::new();
    let pid = place.path().join("pid").to_str().unwrap().to_owned();
    let script = format!("setsid sleep 1234 & echo $! > {pid}");
    let begin = Instant::now();
    let ended = place.run(&["profile", "--seconds", "1", "--", "sh", "-c", &script]);
    ended.expect(0, "processes that it left behind: 1");
    assert!(begin.elapsed() < Duration::from_secs(60));
    let pid = fs::read_to_string(pid).unwrap();
    // Whoever adopted it may not have looked yet.
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    assert!(stat.is_err() || stat.unwrap().contains(") Z "));
}

#[test]
fn ctrl_c_writes_what_was_seen() {
    if !ready() {
        return;
    }
    let place = TestDir::new();
    let out = place.path().join("p.json").to_str().unwrap().to_owned();
    let child = place
        .tare(&["profile", "--out", &out, "--", "sleep", "1234"])
        .spawn()
        .unwrap();
    let id = child.id();
    support::eventually("the command runs", || {
        let children =
            fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        let name = |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm"));
        let mut names = children.split_whitespace().map(name);
        names.any(|name| name.is_ok_and(|name| name == "sleep\n"))
    });
    // It may not sleep yet.
    std::thread::sleep(Duration::from_millis(500));
    let pid = Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    end(child).expect(130, "clock_nanosleep");
    assert_eq!(read(&out)["calls"]["execve"]["count"], 1);
}

/// A signal while apt answers, before there is a guest. SIGINT may be ignored where tests run in the
/// background.
#[test]
fn an_interrupted_download_for_a_guest_leaves_nothing() {
    let place = TestDir::new();
    let path = |name: &str| place.path().join(name);
    if debian::find(&Cache::at(path("cache"))).is_some() {
        skip("Debian's kernel is installed here, so that nothing is downloaded");
        return;
    }
    for dir in ["bin", "out", "root"] {
        fs::create_dir(path(dir)).unwrap();
    }
    let (asked, answer) = (path("asked"), path("answer"));
    let script = format!(
        "#!/bin/sh\n[ $1 != depends ] || exec echo '  Depends: linux-image-1-cloud-amd64'\n\
         touch {}; until [ -e {} ]; do sleep 0.1; done; exit 1\n",
        asked.display(),
        answer.display()
    );
    place.file("bin/apt-cache", script.as_bytes());
    fs::set_permissions(path("bin/apt-cache"), fs::Permissions::from_mode(0o755)).unwrap();
    let init = place.file("tare-init", b"");
    place.file("tare-observe", b"");
    let [out, root] = ["out/p.json", "root"].map(|name| path(name).to_str().unwrap().to_owned());
    let mut tare = place.tare(&["profile", "--in-guest", &root, "--out", &out, "--", "/a"]);
    tare.env("TARE_INIT", init).env("TARE_CACHE", path("cache"));
    let programs = std::env::var("PATH").unwrap();
    tare.env("PATH", format!("{}:{programs}", path("bin").display()));
    let child = tare.spawn().unwrap();
    support::eventually("apt runs", || asked.exists());
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    fs::write(answer, "").unwrap();
    end(child).expect(143, "terminated");
    for dir in ["out", "cache/kernels/debian"] {
        let left: Vec<_> = fs::read_dir(path(dir)).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Reads `/proc/version` as often as its argument says, in its own children, and
/// ends with 5.
const READER: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char **words) {
    for (int i = atoi(words[1]); i > 0; i--) {
        if (fork() == 0) {
            char text[256];
            int file = open("/proc/version", O_RDONLY);
            _exit(read(file, text, sizeof text) <= 0);
        }
        wait(0);
        usleep(50000);
    }
    return 5;
}
"#;

/// Compiles a static program, which needs nothing of the root that it is in.
fn compile(source: &str, program: &Path) -> bool {
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    let file = program.with_extension("c");
    fs::write(&file, source).unwrap();
    let cc = Command::new("cc")
        .args(["-static", "-O1", "-o"])
        .args([program, &file])
        .status();
    let made = cc.is_ok_and(|status| status.success());
    if !made {
        skip("no C compiler makes a static program (scripts/setup.sh test)");
    }
    made
}

#[test]
fn every_path_that_is_found_is_recorded_with_what_was_asked() {
    const SOURCE: &str = r#"
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int count, char **words) {
    struct stat about;
    char target[64];
    if (chdir(words[1]) || stat("only/looked-at", &about)) return 1;
    stat("not-there", &about);
    if (readlink("link", target, sizeof target) < 0) return 2;
    closedir(opendir("listed"));
    int dir = open("only", O_RDONLY | O_DIRECTORY);
    if (faccessat(dir, "../opened", R_OK, 0)) return 3;
    close(open("link", O_RDONLY));
    close(open("made", O_WRONLY | O_CREAT, 0600));
    return 0;
}
"#;
    let place = TestDir::new();
    let program = place.path().join("finds");
    if !ready() || !compile(SOURCE, &program) {
        return;
    }
    let files = place.path().canonicalize().unwrap().join("files");
    for dir in ["only", "listed"] {
        fs::create_dir_all(files.join(dir)).unwrap();
    }
    for file in ["only/looked-at", "opened", "listed/a"] {
        fs::write(files.join(file), file).unwrap();
    }
    std::os::unix::fs::symlink("opened", files.join("link")).unwrap();
    let out = place.path().join("p.json").to_str().unwrap().to_owned();
    let (program, dir) = (program.to_str().unwrap(), files.to_str().unwrap());
    place
        .run(&["profile", "--out", &out, "--", program, dir])
        .expect(0, "Complete: every call, every path that was found");
    let profile = read(&out);
    let asked = |name: &str| profile["paths"][format!("{dir}/{name}")].clone();
    assert_eq!(asked("only/looked-at"), serde_json::json!(["stat"]));
    assert_eq!(asked("link"), serde_json::json!(["link", "open"]));
    assert_eq!(asked("listed"), serde_json::json!(["list"]));
    assert_eq!(asked("only/../opened"), serde_json::json!(["access"]));
    assert_eq!(asked("made"), serde_json::json!(["write"]));
    assert!(asked("not-there").is_null());
    assert_eq!(profile["paths"][program], serde_json::json!(["execute"]));
    assert_eq!(profile["paths"][dir], serde_json::json!(["enter"]));
    // A directory that is opened brings its own files, not those beside it. Its path stays as
    // the program wrote it if that ended first.
    let uses = profile["features"]["files"].as_array().unwrap();
    let is = |path: &Value, name: &str| *path == name || *path == format!("{dir}/{name}");
    let has = |name: &str| uses.iter().any(|it| is(&it["path"], name));
    assert!(has("listed") && has("only"), "{uses:?}");
}

#[test]
fn what_is_renamed_linked_removed_or_a_socket_is_recorded_too() {
    const SOURCE: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
int main(int count, char **words) {
    struct sockaddr_un place = { AF_UNIX, "socket" }, none = { AF_UNIX, "" };
    int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    if (chdir(words[1]) || rename("old", "new") || symlink("a", "soft")) return 1;
    int dir = open("dir", O_RDONLY | O_DIRECTORY);
    if (renameat(dir, "x", AT_FDCWD, "y") || symlinkat("soft", dir, "far")) return 2;
    if (link("new", "hard") || unlink("hard") || unlinkat(dir, "far", 0)) return 3;
    if (rename("absent", "nowhere") == 0) return 4;
    if (bind(server, (struct sockaddr *)&place, sizeof place) || listen(server, 1)) return 5;
    if (connect(client, (struct sockaddr *)&place, sizeof place)) return 6;
    strcpy(none.sun_path + 1, "abstract");
    return bind(socket(AF_UNIX, SOCK_DGRAM, 0), (struct sockaddr *)&none, sizeof none) ? 7 : 0;
}
"#;
    let place = TestDir::new();
    let program = place.path().join("moves");
    if !ready() || !compile(SOURCE, &program) {
        return;
    }
    let files = place.path().canonicalize().unwrap().join("files");
    fs::create_dir_all(files.join("dir")).unwrap();
    for file in ["old", "dir/x"] {
        fs::write(files.join(file), file).unwrap();
    }
    let out = place.path().join("p.json").to_str().unwrap().to_owned();
    let (program, dir) = (program.to_str().unwrap(), files.to_str().unwrap());
    place
        .run(&["profile", "--out", &out, "--", program, dir])
        .expect(0, "Complete: every call, every path that was found");
    let profile = read(&out);
    let asked = |name: &str| profile["paths"][format!("{dir}/{name}")].clone();
    for name in ["old", "new", "soft", "dir/x", "y", "dir/far", "hard"] {
        assert_eq!(asked(name), serde_json::json!(["change"]), "{name}");
    }
    assert_eq!(asked("socket"), serde_json::json!(["change", "write"]));
    for name in ["absent", "nowhere", "abstract", "a"] {
        assert!(asked(name).is_null(), "{name}");
    }
}

#[test]
fn what_the_library_os_lacks_for_a_program_is_named() {
    let place = TestDir::new();
    let script = place.file("script", b"#!/bin/sh\n");
    place
        .run(&["profile", &script])
        .expect(11, "not an ELF file");
    place.run(&["profile", "./none"]).expect(10, "./none");
    place
        .run(&["profile", &script, "--pid", "1"])
        .expect(2, "cannot be used with");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/");
    let compile = |name: &str, link: &str| {
        let program = place.path().join(name);
        let mut gcc = Command::new("gcc");
        gcc.args([link, "-w", "-o"]).arg(&program);
        let source = format!("{source}{name}.c");
        assert!(gcc.arg(source).status().unwrap().success(), "{name}");
        program.to_str().unwrap().to_owned()
    };
    if !installed("gcc") {
        skip("gcc is not installed");
        return;
    }
    let dynamic = compile("missing", "-fPIE");
    place
        .run(&["profile", &dynamic])
        .expect(126, "it is linked dynamically");
    if !ready() {
        return;
    }
    let program = compile("missing", "-static");
    let file = place.file("app.conf", b"x");
    let ended = place.run(&["profile", &program, "--", &file]);
    ended.expect(3, "On the library OS");
    let text = ended.err.split("On the library OS").nth(1).unwrap();
    assert!(text.contains("Missing: fanotify_init (1)\n"), "{ended:#?}");
    assert!(text.contains("Processes: "), "{ended:#?}");
    assert!(!text.contains("execve"), "its own start: {ended:#?}");
    for line in [
        "Sockets: AF_NETLINK protocol 9 (1)\n",
        "Options: SO_BROADCAST (1)\n",
        "Requests: TIOCOUTQ (1)\n",
        "Flags: O_PATH (1)\n",
        "Kernel files: /proc/self/smaps (1)\n",
    ] {
        assert!(text.contains(line), "{line}: {ended:#?}");
    }
    let files = text.split("\nFiles: ").nth(1).unwrap();
    assert!(files.replace("\n  ", "").contains("app.conf"), "{ended:#?}");
}

#[test]
fn a_script_s_interpreter_is_among_the_paths() {
    if !ready() {
        return;
    }
    let place = TestDir::new();
    let script = place.file("script", b"#!/bin/sh\nexit 3\n");
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let out = place.path().join("p.json").to_str().unwrap().to_owned();
    place
        .run(&["profile", "--out", &out, "--", &script])
        .expect(3, "system calls are in use");
    let profile = read(&out);
    for program in [script.as_str(), "/bin/sh"] {
        assert_eq!(profile["paths"][program][0], "execute");
    }
}

#[test]
fn a_congestion_control_that_is_set_is_named() {
    const SOURCE: &str = r#"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
int main(void) {
    int tcp = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(tcp, IPPROTO_TCP, TCP_CONGESTION, "no-such", 7);
    return setsockopt(tcp, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}
"#;
    let place = TestDir::new();
    let program = place.path().join("sets");
    if !ready() || !compile(SOURCE, &program) {
        return;
    }
    let out = place.path().join("p.json").to_str().unwrap().to_owned();
    place
        .run(&["profile", "--out", &out, "--", program.to_str().unwrap()])
        .expect(0, "TCP_CONGESTION=reno");
    assert!(!fs::read_to_string(&out).unwrap().contains("no-such"));
}

#[test]
fn calls_of_the_32_bit_table_and_numbers_of_no_call_are_counted_apart() {
    const SOURCE: &str = r#"
#include <unistd.h>
int main(void) {
    for (int i = 0; i < 50; i++) {
        long result;
        /* getppid of the 32-bit table; 64 is semget of the 64-bit one. */
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(64) : "memory", "r8", "r9", "r10", "r11");
    }
    syscall(600);
    syscall(-1);
    return 0;
}
"#;
    let place = TestDir::new();
    let program = place.path().join("calls");
    if !ready() || !compile(SOURCE, &program) {
        return;
    }
    let out = place.path().join("p.json").to_str().unwrap().to_owned();
    let program = program.to_str().unwrap();
    let ended = place.run(&["profile", "--out", &out, "--", program]);
    if ended.code != Some(0) {
        skip("this kernel has no system calls of 32-bit programs");
        return;
    }
    let profile = read(&out);
    assert_eq!(profile["calls"]["compat"]["count"], 50);
    assert_eq!(profile["calls"]["unknown"]["count"], 2);
    assert!(profile["calls"]["semget"].is_null());
}

#[test]
fn a_command_that_ends_at_once_is_profiled_whole() {
    if !ready() {
        return;
    }
    let place = TestDir::new();
    let out = place.path().join("p.json").to_str().unwrap().to_owned();
    place
        .run(&["profile", "--out", &out, "--", "/bin/false"])
        .expect(1, "system calls are in use");
    let profile = read(&out);
    assert_eq!(profile["calls"]["execve"]["count"], 1);
    assert_eq!(profile["calls"]["exit_group"]["count"], 1);
}

#[test]
fn a_process_that_runs_is_profiled_and_goes_on() {
    if !ready() {
        return;
    }
    let place = TestDir::new();
    let mut child = Command::new("/bin/sh")
        .args(["-c", "while :; do sleep 0.05; done"])
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    let out = place.path().join("p.json").to_str().unwrap().to_owned();
    let ended = place.run(&["profile", "--pid", &pid, "--seconds", "1", "--out", &out]);
    let goes_on = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    ended.expect(0, "clock_nanosleep");
    assert!(goes_on);
    assert_eq!(read(&out)["phases"][0]["taken"]["way"]["pid"], child.id());
}

/// A container of runc's, ended when dropped.
struct Contained {
    name: String,
    runc: std::process::Child,
}

impl Contained {
    /// Starts a program in one that reads a kernel file over and over.
    fn start(bundle: &Path) -> Option<Self> {
        let root = bundle.join("rootfs");
        if !support::installed("runc") {
            skip("a container needs runc");
            return None;
        }
        if !compile(READER, &root.join("bin/reader")) {
            return None;
        }
        for dir in ["proc", "dev", "sys"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        let spec = Command::new("runc")
            .arg("spec")
            .current_dir(bundle)
            .status();
        assert!(spec.unwrap().success());
        let path = bundle.join("config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        config["process"]["terminal"] = false.into();
        config["process"]["args"] = vec!["/bin/reader", "10000"].into();
        fs::write(&path, serde_json::to_vec(&config).unwrap()).unwrap();
        let name = format!("tare-profile-{}", std::process::id());
        let runc = Command::new("runc")
            .args(["run", "--bundle", bundle.to_str().unwrap(), &name])
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        Some(Self { name, runc })
    }

    fn runs(&self) -> bool {
        let state = Command::new("runc").args(["state", &self.name]).output();
        String::from_utf8_lossy(&state.unwrap().stdout).contains("\"running\"")
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        let _ = Command::new("runc")
            .args(["delete", "--force", &self.name])
            .status();
        let _ = self.runc.wait();
    }
}

#[test]
fn a_container_is_profiled_by_its_name() {
    if !ready() {
        return;
    }
    let place = TestDir::new();
    let Some(container) = Contained::start(place.path()) else {
        return;
    };
    let begin = Instant::now();
    while !container.runs() {
        if begin.elapsed() > Duration::from_secs(20) {
            skip("runc starts no container here");
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let out = place.path().join("p.json").to_str().unwrap().to_owned();
    let name = container.name.as_str();
    place
        .run(&[
            "profile",
            "--container",
            name,
            "--seconds",
            "1",
            "--out",
            &out,
        ])
        .expect(0, "/proc/version");
    assert!(container.runs());
    let profile = read(&out);
    let tasks = profile["tasks"].as_array().unwrap();
    assert!(tasks.len() > 1, "{tasks:#?}");
    assert!(
        tasks.iter().all(|task| task["name"] == "reader"),
        "{tasks:#?}"
    );
}

#[test]
fn an_application_in_a_guest_is_profiled_with_call_graphs() {
    let place = TestDir::new();
    let root = place.path().join("root");
    let graphs = place.path().join("graphs");
    if Command::new("qemu-system-x86_64")
        .arg("--version")
        .output()
        .is_err()
        || tare_rootfs::guest::find_init().is_err()
        || Cache::open_default().map_or(true, |cache| debian::find(&cache).is_none())
    {
        skip("a guest needs QEMU, Debian's kernel and cargo xtask init");
        return;
    }
    if !compile(READER, &root.join("bin/reader")) {
        return;
    }
    let out = place.path().join("p.json").to_str().unwrap().to_owned();
    let port = format!("{}:80", free_port());
    let args = [
        "profile",
        "--in-guest",
        root.to_str().unwrap(),
        "--out",
        &out,
        "--publish",
        &port,
        "--graph",
        "read",
        "--graph-out",
        graphs.to_str().unwrap(),
        "--",
        "/bin/reader",
        "1",
    ];
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let in_use = format!("{}:80", taken.local_addr().unwrap().port());
    let refused = args.map(|word| if word == port { &in_use } else { word });
    place.run(&refused).expect(30, "Address already in use");
    place.run(&args).expect(5, "system calls are in use");
    let profile = read(&out);
    assert!(
        profile["phases"][0]["taken"]["kernel_release"]
            .as_str()
            .unwrap()
            .contains("cloud")
    );
    let run = &profile["phases"][0]["taken"]["way"]["guest"];
    assert_eq!(run["root"], root.to_str().unwrap());
    assert_eq!(run["command"], json!(["/bin/reader", "1"]));
    let files = profile["features"]["files"].as_array().unwrap();
    assert!(
        files.iter().any(|file| file["path"] == "/proc/version"),
        "{files:#?}"
    );
    let text = fs::read_to_string(graphs.join("read.txt")).unwrap();
    assert!(text.contains("vfs_read"), "{text}");
    assert!(
        fs::read_to_string(graphs.join("read.svg"))
            .unwrap()
            .contains("vfs_read")
    );
    let folded = fs::read_to_string(graphs.join("read.folded")).unwrap();
    assert!(folded.contains(";vfs_read"), "{folded}");
}
