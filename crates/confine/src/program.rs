//! A program that reads untrusted input (a decompressor, the reader of a package), from
//! its standard input to its standard output.
//!
//! A thread confines itself and starts it, so that the program is confined from its first
//! instruction on, with everything that it starts. It may read and execute what is installed
//! ([`crate::INSTALLED`]), or every file of its user ([`Reads`]), and writes, connects, signals nothing. Its memory is its own: unlike
//! [`crate::read_confined`] this holds foreign code as well.
//! Limits: without Landlock (kernels before 5.13) it may read the files of its user. It does not end
//! with this process, but by the end of the pipe that it writes to.

use std::process::{Child, Command};

use rustix::thread::{CapabilitySet, set_no_new_privs};

use super::apart::apart;
use super::{ConfineError, Files, Reads, calls, capabilities};

/// Starts a program, confined. It gets the streams that `command` gives it.
pub fn spawn_confined(command: &mut Command, reads: Reads) -> Result<Child, ConfineError> {
    let files = Files::execute(reads)?;
    apart(|| {
        set_no_new_privs(true).map_err(|errno| ConfineError::NoNewPrivs(errno.into()))?;
        let has_landlock = files.restrict()?;
        let kept = match reads {
            Reads::Installed => CapabilitySet::empty(),
            Reads::Everything => capabilities::of_a_reader(calls::Opens::Below, has_landlock),
        };
        capabilities::keep_only(kept).map_err(ConfineError::Capabilities)?;
        calls::restrict_program()?;
        command.spawn().map_err(ConfineError::Start)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::process::{Output, Stdio};

    use super::*;

    /// What a shell does with `script`, whose first argument is `word`.
    fn shell(reads: Reads, script: &str, word: &str) -> Output {
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh", word]).env("LC_ALL", "C");
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn_confined(shell.stderr(Stdio::piped()), reads).unwrap();
        // A shell that ends before does not read it.
        let _ = child.stdin.take().unwrap().write_all(b"given");
        child.wait_with_output().unwrap()
    }

    #[test]
    fn a_confined_program_reads_its_input_and_starts_others() {
        let output = shell(Reads::Installed, "cat; echo more | cat", "");
        assert_eq!(output.stdout, b"givenmore\n", "{output:?}");
        assert!(output.status.success(), "{output:?}");
    }

    #[test]
    fn a_confined_program_writes_and_reads_no_file_of_the_users() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::write(path("secret"), "secret").unwrap();
        let directory = place.path().to_str().unwrap();
        let scripts = [
            "echo x > \"$1/new\"",
            "echo x >> \"$1/secret\"",
            "rm \"$1/secret\"",
            "mkdir \"$1/made\"",
            "ln -s / \"$1/link\"",
            "chmod 777 \"$1/secret\"",
            "kill -0 $PPID",
        ];
        for script in scripts {
            for reads in [Reads::Installed, Reads::Everything] {
                let output = shell(reads, script, directory);
                assert!(!output.status.success(), "{script}: {output:?}");
            }
        }
        let read = "cat \"$1/secret\"";
        let output = shell(Reads::Everything, read, directory);
        assert_eq!(output.stdout, b"secret", "{output:?}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        assert_eq!(fs::read(path("secret")).unwrap(), b"secret");
        if Files::none().unwrap().are_enforced() {
            let output = shell(Reads::Installed, read, directory);
            assert!(output.stdout.is_empty(), "{output:?}");
        } else {
            tare_vmtest::lacks("this kernel has no Landlock");
        }
        // This process has what it had.
        fs::write(path("after"), "x").unwrap();
    }

    #[test]
    fn a_program_that_is_missing_is_an_error_of_the_start() {
        let error =
            spawn_confined(&mut Command::new("no-such-program"), Reads::Installed).unwrap_err();
        let ConfineError::Start(error) = error else {
            panic!("{error:?}");
        };
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    }
}
