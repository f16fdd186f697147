//! What the Makefile of a kernel's sources may do (`docs/adr/0065-builds-of-sources-in-a-jail.md`).

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command};
use std::time::Duration;

use tare_launch::building::{self, Bounds};

use super::Bench;
use super::support::process::{
    as_user, can_refuse_namespaces, may_make_namespaces, users_make_namespaces, without_namespaces,
};
use super::support::{end, eventually};

/// What the sources' author would like to know and do: `$1` is the directory of objects, `$2` the
/// place of the test, `$3` a port, `$4` a process of the same user.
const ATTACK: &str = "cd \"$1\"
exec 2>> said
cat \"$2/secret\" > secret
ln \"$2/secret\" hard
cat /etc/shadow > shadow
cat /etc/hostname > hostname
echo x > \"$2/outside\"
echo x > \"$2/tree/changed\"
echo x > \"$2/out/beside\"
exec 3<> /dev/tcp/127.0.0.1/\"$3\" && echo reached > reached
kill \"$4\" && echo killed > killed
cat /proc/\"$4\"/environ > environ
env > env
id -u > user
setsid sleep 712.3 < /dev/null > /dev/null 2>&1 &
";

/// Has sources with that attack in their Makefile, where the configuration is made and where the image
/// is. The "secret" and all else is this user's, or that of `start`'s.
fn attacks(bench: &Bench, start: impl FnOnce(Command) -> Child) -> TcpListener {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    fs::write(bench.path("secret"), "secret").unwrap();
    fs::write(bench.path("tree/attack.sh"), ATTACK).unwrap();
    bench.makes("exit 1");
    let profile = bench.profile(&["read"], &[]);
    let makefile = fs::read_to_string(bench.path("tree/Makefile")).unwrap();
    let mut command = bench.command(&profile, &[]);
    command.env("SECRET_TOKEN", "secret");
    let place = bench.place.path().display().to_string();
    // Started by the shell that becomes `tare`, so that it is the same user's.
    let attack =
        format!("$(shell bash $(CURDIR)/attack.sh $(O) {place} {port} $$(cat $(CURDIR)/victim))");
    let makefile = makefile.replacen(
        "SUBLEVEL = 1\n",
        &format!("SUBLEVEL = 1\nX := {attack}\n"),
        1,
    );
    fs::write(bench.path("tree/Makefile"), makefile).unwrap();
    let mut victim = Command::new("sleep").arg("600").spawn().unwrap();
    fs::write(bench.path("tree/victim"), victim.id().to_string()).unwrap();
    let ended = end(start(command));
    let survived = victim.try_wait().unwrap().is_none();
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert!(!bench.path("out/build/killed").exists() && survived);
    ended.expect(46, "the kernel did not compile");
    listener
}

/// What the attack achieved.
fn holds(bench: &Bench, listener: &TcpListener) {
    let found = |name: &str| fs::read(bench.path("out/build").join(name)).unwrap_or_default();
    let said = found("said");
    let said = String::from_utf8_lossy(&said);
    assert!(!said.is_empty(), "the attack ran");
    for name in ["secret", "hard", "shadow", "hostname", "environ", "reached"] {
        assert!(found(name).is_empty(), "{name}: {said}");
    }
    for name in ["outside", "tree/changed", "out/beside"] {
        assert!(!bench.path(name).exists(), "{name}: {said}");
    }
    assert!(listener.accept().is_err(), "{said}");
    let env = String::from_utf8(found("env")).unwrap();
    assert!(env.contains("PATH=") && !env.contains("secret"), "{env}");
    assert!(!sleeps("712.3"), "a process of the build is left");
}

#[test]
fn the_makefile_of_sources_reads_connects_and_changes_nothing_of_the_hosts() {
    if !may_make_namespaces() {
        return;
    }
    let bench = Bench::new("");
    let listener = attacks(&bench, |mut tare| tare.spawn().unwrap());
    holds(&bench, &listener);
    let user = fs::read_to_string(bench.path("out/build/user")).unwrap();
    let own = rustix::process::geteuid();
    let is_another = user.trim() != own.as_raw().to_string();
    assert_eq!(is_another, own.is_root(), "{user}");
}

#[test]
fn the_makefile_of_an_ordinary_users_sources_is_held_as_well() {
    if !users_make_namespaces() {
        return;
    }
    let bench = Bench::new("");
    let place = bench.place.path().to_owned();
    let listener = attacks(&bench, |tare| as_user(&place, &tare).spawn().unwrap());
    holds(&bench, &listener);
}

/// Whether a process `sleep` with that argument is there.
fn sleeps(argument: &str) -> bool {
    let cmdline = format!("sleep\0{argument}\0");
    let mut processes = fs::read_dir("/proc").unwrap().flatten();
    processes.any(|entry| {
        fs::read(entry.path().join("cmdline")).is_ok_and(|found| found == cmdline.as_bytes())
    })
}

#[test]
fn a_build_ends_with_a_tare_that_is_killed() {
    if !may_make_namespaces() {
        return;
    }
    let bench = Bench::new("");
    bench.makes("setsid sleep 712.4");
    let profile = bench.profile(&["read"], &[]);
    let mut tare = bench.command(&profile, &[]).spawn().unwrap();
    eventually("the build has begun", || sleeps("712.4"));
    tare.kill().unwrap();
    tare.wait().unwrap();
    eventually("nothing of it is left", || !sleeps("712.4"));
}

const BOUNDS: Bounds = Bounds {
    time: Duration::from_secs(3600),
    memory: u64::MAX,
    bytes: 1 << 30,
    free_bytes: 0,
};

/// A build within these bounds, whose program is a script; `$1` is the directory of objects.
fn script(bench: &Bench, bounds: Bounds, script: &str) -> Command {
    let objects = bench.path("objects");
    fs::create_dir_all(&objects).unwrap();
    let tare = env!("CARGO_BIN_EXE_tare").as_ref();
    let mut bash = building::command(tare, &bench.path("tree"), &objects, bounds, "bash").unwrap();
    bash.args(["-c", script, "bash"]).arg(&objects);
    bash
}

/// Builds that do not end, with what they go beyond.
fn excesses() -> [(Bounds, &'static str, i32); 4] {
    // Two processes that keep 40 MiB each.
    let remembers = "x() { y=$(head -c 41943040 /dev/zero | tr '\\0' x); setsid sleep 712.5; }; \
                     x & x";
    let forever = "setsid sleep 712.5 & sleep 712.5";
    let fills = "setsid sleep 712.5 & n=0; while n=$((n + 1)); do \
                 head -c 1048576 /dev/zero > \"$1/$n\"; done";
    let time = Duration::from_secs(1);
    [
        (Bounds { time, ..BOUNDS }, forever, building::TOO_LONG),
        (
            Bounds {
                memory: 64 << 20,
                ..BOUNDS
            },
            remembers,
            building::TOO_MUCH_MEMORY,
        ),
        (
            Bounds {
                bytes: 16 << 20,
                ..BOUNDS
            },
            fills,
            building::TOO_LARGE,
        ),
        (
            Bounds {
                free_bytes: u64::MAX,
                ..BOUNDS
            },
            forever,
            building::TOO_FULL,
        ),
    ]
}

#[test]
fn a_build_beyond_its_bounds_is_ended_and_leaves_no_process() {
    let bench = Bench::new("");
    for (bounds, what, status) in excesses() {
        let ended = script(&bench, bounds, what).status().unwrap();
        assert_eq!(ended.code(), Some(status), "{what}");
        assert!(!sleeps("712.5"), "{what}: a process is left");
        fs::remove_dir_all(bench.path("objects")).unwrap();
    }
}

/// There no process namespace ends what the build leaves.
#[test]
fn a_build_without_namespaces_is_ended_beyond_its_bounds_too() {
    if !can_refuse_namespaces() {
        return;
    }
    let bench = Bench::new("");
    for (bounds, what, status) in excesses() {
        let what = what.replace("712.5", "712.6");
        let build = script(&bench, bounds, &what);
        let ended = end(without_namespaces(&build).spawn().unwrap());
        assert_eq!(ended.code, Some(status), "{what}: {ended:#?}");
        assert!(!sleeps("712.6"), "{what}: a process is left");
        fs::remove_dir_all(bench.path("objects")).unwrap();
    }
}

#[test]
fn a_build_that_makes_too_large_a_file_is_an_error_that_says_so() {
    let bench = Bench::new("truncate -s 5G $(O)/large");
    let profile = bench.profile(&["read"], &[]);
    let ended = end(bench.command(&profile, &[]).spawn().unwrap());
    ended.expect(46, "one of its files would be larger than 4096 MiB");
    ended.expect(46, "use other sources (--source)");
    assert!(fs::metadata(bench.path("out/build/large")).map_or(0, |it| it.len()) <= 4 << 30);
}

/// Neither the scripts' output nor a line of the compiler's costs `tare` memory.
#[test]
fn a_build_that_prints_without_end_costs_no_memory() {
    let bench = Bench::new("head -c 1000000000 /dev/zero; exit 1");
    let profile = bench.profile(&["read"], &[]);
    let tare = bench.command(&profile, &[]);
    let mut limited = Command::new("prlimit");
    limited
        .args(["--as=800000000", "--"])
        .arg(tare.get_program());
    limited.args(tare.get_args());
    for (name, value) in tare.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited.stdout(std::process::Stdio::piped());
    limited.stderr(std::process::Stdio::piped());
    let ended = end(limited.spawn().unwrap());
    ended.expect(46, "the kernel did not compile");
    let log = fs::metadata(bench.path("out/build/build.log"))
        .unwrap()
        .len();
    assert!(log <= 65 << 20, "{log}");
}
