//! Child processes that end with this one, also when it is killed and cannot clean up.
//! Machines that `tare run` starts do this themselves
//! (`tare_control::parent_death`); this is for what is started without it.

use std::process::Command;

use tare_host::program::find_program;

/// Of util-linux.
const SETPRIV: &str = "setpriv";

/// `program`, killed when this thread's process ends. Where nothing can tie them, and where
/// there is no such program, the child starts without it.
pub(crate) fn ending_with_us(program: &str) -> Command {
    if !installed(SETPRIV) || !installed(program) {
        return Command::new(program);
    }
    let mut command = Command::new(SETPRIV);
    command.args(["--pdeathsig", "KILL", "--", program]);
    command
}

fn installed(program: &str) -> bool {
    find_program(program).is_ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::ErrorKind;
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    /// The thread that starts a program is its parent to the kernel.
    #[test]
    fn what_was_started_is_killed_when_its_starter_ends() {
        if !installed(SETPRIV) {
            return println!("SKIP: {SETPRIV} is not installed");
        }
        let start = || {
            let sleeper = ending_with_us("sleep").arg("60").spawn().unwrap();
            let name = format!("/proc/{}/comm", sleeper.id());
            while std::fs::read(&name).unwrap() != b"sleep\n" {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            sleeper
        };
        let mut sleeper = std::thread::spawn(start).join().unwrap();
        assert_eq!(sleeper.wait().unwrap().signal(), Some(9));
    }

    #[test]
    fn a_program_that_is_missing_is_named_as_ever() {
        let error = ending_with_us("no-such-program").spawn().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
