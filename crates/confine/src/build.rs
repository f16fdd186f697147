//! A build of untrusted sources: their Makefile and scripts are programs of
//! their author's.
//!
//! They read and execute what is installed, the sources, and directories of programs; they change
//! files in one directory, that of the objects; they connect to nothing, and signal, trace and read no
//! process but their own. Namespaces and a separate user are the caller's part
//! (`tare_daemon::jail`), as are the time and space of all its processes together: here each has limits.
//! Limits: the memory of all of them together is not bounded. Without Landlock (kernels before 5.13) files are
//! held by the caller's part alone.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::set_no_new_privs;

use super::{ConfineError, Files, calls, capabilities};

/// Largest file of a build, bytes; a kernel with all its debug information has less than 2 GiB.
pub const FILE_BYTES: u64 = 4 << 30;
/// CPU time of one process of a build, seconds: no compiler or linker takes minutes for a file.
pub const CPU_SECONDS: u64 = 3600;
/// Address space of one process of a build, bytes.
const MEMORY_BYTES: u64 = 16 << 30;
/// Processes of the user that builds.
const PROCESSES: u64 = 4096;
/// What a process has to end in after it was asked to by SIGXCPU.
const LAST_SECONDS: u64 = 10;

/// Confines the calling thread, and what it starts; whether the kernel has Landlock.
pub fn enter_build(
    sources: &Path,
    objects: &Path,
    programs: &[PathBuf],
) -> Result<bool, ConfineError> {
    let files = Files::build(sources, objects, programs)?;
    limit().map_err(ConfineError::Limits)?;
    set_no_new_privs(true).map_err(|errno| ConfineError::NoNewPrivs(errno.into()))?;
    let has_landlock = files.restrict()?;
    capabilities::drop_all().map_err(ConfineError::Capabilities)?;
    calls::restrict_build()?;
    Ok(has_landlock)
}

/// What each process may take. Without capabilities none raises its limits again.
fn limit() -> std::io::Result<()> {
    for (resource, asked, most) in [
        (Resource::Fsize, FILE_BYTES, FILE_BYTES),
        (Resource::Cpu, CPU_SECONDS, CPU_SECONDS + LAST_SECONDS),
        (Resource::As, MEMORY_BYTES, MEMORY_BYTES),
        (Resource::Nproc, PROCESSES, PROCESSES),
        (Resource::Core, 0, 0),
    ] {
        // Who starts it may have less.
        let had = getrlimit(resource);
        let at_most = |had: Option<u64>, limit: u64| Some(had.map_or(limit, |had| had.min(limit)));
        let limit = Rlimit {
            current: at_most(had.current, asked),
            maximum: at_most(had.maximum, most),
        };
        setrlimit(resource, limit)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpListener;
    use std::process::{Command, Output, Stdio};

    use super::*;
    use crate::apart::apart;

    struct TestDirs {
        dir: tempfile::TempDir,
    }

    impl TestDirs {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            for name in ["sources", "objects"] {
                fs::create_dir(dir.path().join(name)).unwrap();
            }
            fs::write(dir.path().join("secret"), "secret").unwrap();
            fs::write(dir.path().join("sources/given"), "given").unwrap();
            Self { dir }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        /// What bash does with `script` in the objects' directory; `$1` is where all is, `$2` a word.
        fn bash(&self, script: &str, word: &str) -> Output {
            let mut bash = Command::new("bash");
            bash.args(["-c", script, "bash"]).arg(self.dir.path());
            bash.arg(word).env("LC_ALL", "C");
            bash.current_dir(self.path("objects"));
            bash.stdin(Stdio::null()).stdout(Stdio::piped());
            bash.stderr(Stdio::piped());
            let (sources, objects) = (self.path("sources"), self.path("objects"));
            let start = || {
                enter_build(&sources, &objects, &[])?;
                bash.spawn().map_err(ConfineError::Start)
            };
            apart(start).unwrap().wait_with_output().unwrap()
        }
    }

    #[test]
    fn a_build_makes_files_and_processes_in_its_directory() {
        let place = TestDirs::new();
        let script = "set -e; cat \"$1/sources/given\" | cat > a; mkdir -p d/e; mv a d/e/b; \
                      ln -s b d/e/link; ln d/e/b hard; chmod 600 hard; touch -d @7 hard; \
                      mkfifo pipe; cat pipe & echo x > pipe; wait; truncate -s 3 hard; \
                      sleep 60 & kill $!; : > /dev/null; head -c 4 /dev/urandom > random; \
                      test -r /proc/self/status; rm d/e/link; cat hard";
        let output = place.bash(script, "");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout, b"x\ngiv", "{output:?}");
        assert_eq!(fs::read(place.path("objects/d/e/b")).unwrap(), b"giv");
    }

    /// `make` starts programs by `posix_spawn(3)`, with its own user again.
    #[test]
    fn make_starts_programs_in_a_build() {
        let place = TestDirs::new();
        let makefile = "all: one two\none two:\n\techo $@ > $@\n\tcat $@\n";
        fs::write(place.path("sources/Makefile"), makefile).unwrap();
        if Command::new("make").arg("-v").output().is_err() {
            return tare_vmtest::lacks("make is not installed");
        }
        let output = place.bash("make -s -j2 -f \"$1/sources/Makefile\" | sort", "");
        assert_eq!(output.stdout, b"one\ntwo\n", "{output:?}");
    }

    #[test]
    fn a_build_changes_and_reads_nothing_elsewhere() {
        let place = TestDirs::new();
        if !Files::none().unwrap().are_enforced() {
            return tare_vmtest::lacks("this kernel has no Landlock");
        }
        for script in [
            "cat \"$1/secret\"",
            "ln -s \"$1/secret\" link && cat link",
            "ln \"$1/secret\" hard",
            "mv \"$1/secret\" moved",
            "ls \"$1\"",
            "echo x > \"$1/new\"",
            "echo x > \"$1/sources/new\"",
            "echo x >> \"$1/secret\"",
            "rm \"$1/sources/given\"",
            ": > made; mv made \"$1/sources/made\"",
            "mknod device c 1 3",
            "cat /etc/hostname /etc/passwd",
        ] {
            let output = place.bash(script, "");
            assert!(!output.status.success(), "{script}: {output:?}");
            assert!(!output.stdout.starts_with(b"secret"), "{script}");
        }
        let names = |name| fs::read_dir(place.path(name)).unwrap().count();
        assert_eq!((names(""), names("sources")), (3, 1));
    }

    #[test]
    fn each_process_of_a_build_has_limits_that_it_cannot_raise() {
        let place = TestDirs::new();
        let all = "ulimit -f; ulimit -t; ulimit -v; ulimit -c";
        // In blocks of 1,024 bytes, seconds, and again blocks.
        let expected = format!(
            "{}\n{CPU_SECONDS}\n{}\n0\n",
            FILE_BYTES >> 10,
            MEMORY_BYTES >> 10
        );
        let output = place.bash(all, "");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
        for raise in [
            "ulimit -f unlimited",
            "ulimit -v unlimited",
            "ulimit -Ht unlimited",
        ] {
            let output = place.bash(raise, "");
            assert!(!output.status.success(), "{raise}: {output:?}");
        }
        // A hole is no less a file.
        let output = place.bash("truncate -s 5G large", "");
        assert!(!output.status.success(), "{output:?}");
        let bytes = fs::metadata(place.path("objects/large")).map_or(0, |file| file.len());
        assert!(bytes <= FILE_BYTES, "{bytes}");
    }

    #[test]
    fn a_build_connects_to_nothing_and_reaches_no_other_process() {
        let place = TestDirs::new();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let output = place.bash("echo x > /dev/tcp/127.0.0.1/$2", &port);
        assert!(!output.status.success(), "{output:?}");
        assert!(listener.accept().is_err());
        if Files::none().unwrap().are_enforced() {
            // This process, which the same user runs.
            let own = std::process::id().to_string();
            for script in ["kill -0 $2", "cat /proc/$2/environ"] {
                let output = place.bash(script, &own);
                assert!(!output.status.success(), "{script}: {output:?}");
            }
        }
    }
}
