//! A build of sources that somebody else wrote: their Makefile and scripts are programs of
//! their author's.
//!
//! They read and execute what is installed, the sources, and directories of programs; they change
//! files in one directory, that of the objects; they connect to nothing, and signal, trace and read no
//! process but their own. Namespaces and a user of its own are the caller's part
//! (`tare_daemon::jail`).
//! Limits: time, memory and space are not bounded. Without Landlock (kernels before 5.13) files are
//! held by the caller's part alone.

use std::path::{Path, PathBuf};

use rustix::thread::set_no_new_privs;

use super::{ConfineError, Files, calls, capabilities};

/// Confines the calling thread, and what it starts; whether the kernel has Landlock.
pub fn enter_build(
    sources: &Path,
    objects: &Path,
    programs: &[PathBuf],
) -> Result<bool, ConfineError> {
    let files = Files::build(sources, objects, programs)?;
    set_no_new_privs(true).map_err(|errno| ConfineError::NoNewPrivs(errno.into()))?;
    let has_landlock = files.restrict()?;
    capabilities::drop_all().map_err(ConfineError::Capabilities)?;
    calls::restrict_build()?;
    Ok(has_landlock)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::net::TcpListener;
    use std::process::{Command, Output, Stdio};

    use super::*;
    use crate::apart::apart;

    struct Place {
        dir: tempfile::TempDir,
    }

    impl Place {
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
        let place = Place::new();
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
        let place = Place::new();
        let makefile = "all: one two\none two:\n\techo $@ > $@\n\tcat $@\n";
        fs::write(place.path("sources/Makefile"), makefile).unwrap();
        if Command::new("make").arg("-v").output().is_err() {
            return println!("SKIP: make is not installed");
        }
        let output = place.bash("make -s -j2 -f \"$1/sources/Makefile\" | sort", "");
        assert_eq!(output.stdout, b"one\ntwo\n", "{output:?}");
    }

    #[test]
    fn a_build_changes_and_reads_nothing_elsewhere() {
        let place = Place::new();
        if !Files::none().unwrap().are_enforced() {
            return println!("SKIP: this kernel has no Landlock");
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
    fn a_build_connects_to_nothing_and_reaches_no_other_process() {
        let place = Place::new();
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
