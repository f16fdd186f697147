//! `build-run`: installs and builds what `make run` starts.
//!
//! Two halves run side by side: the packages of `scripts/setup.sh run`, then the programs of
//! the host, which need them; and dependencies, guest images and programs of Linux guests, which
//! need only the compiler. The host's programs take longer, so those of guests have the lower
//! priority. A half that fails reports at once, the other one stops after its step, and the exit
//! code is that of the first command that failed.

use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;

use tare_toolchain::build::{self, Bin, INIT, Priority};
use tare_toolchain::command::{StepError, run, say, setup};

/// The image that `make run` boots, and that for the programs that it proposes to try next.
const IMAGES: [Bin<'_>; 2] = [
    Bin {
        package: "tare-guest-http",
        name: "http",
    },
    Bin {
        package: "tare-guest-linux",
        name: "linux",
    },
];

fn main() -> ExitCode {
    let failure = Failure::default();
    thread::scope(|scope| {
        scope.spawn(|| failure.half(&[&dependencies, &images, &linux]));
        // Once more: the packages may have brought QEMU after the other half looked for it.
        failure.half(&[&packages, &|| build::host(&[]), &linux]);
    });
    failure.exit_code()
}

/// All dependencies, also those of tests: a host without a network may have fewer, and then each
/// build says what it lacks.
fn dependencies() -> Result<(), StepError> {
    if let Err(error) = build::fetch() {
        say(format_args!(
            "build-run: {error}; continuing with what cargo has"
        ));
    }
    Ok(())
}

/// The guest images, beside the packages.
fn images() -> Result<(), StepError> {
    build::images(&IMAGES, Priority::Low)
}

/// What the host's programs need to compile and to run.
fn packages() -> Result<(), StepError> {
    run(&mut setup("run"))
}

/// The programs of Linux guests, with which `make run` compares where QEMU is installed.
fn linux() -> Result<(), StepError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|dir| dir.join("qemu-system-x86_64").is_file());
    if is_there {
        build::linux(&[INIT], Priority::Low)
    } else {
        Ok(())
    }
}

/// The exit code of the first command that failed, of either half.
#[derive(Default)]
struct Failure(Mutex<Option<u8>>);

impl Failure {
    /// Runs steps in order, until one of either half has failed.
    fn half(&self, steps: &[&dyn Fn() -> Result<(), StepError>]) {
        for step in steps {
            if self.code().is_some() {
                return;
            }
            if let Err(error) = step() {
                say(format_args!("error: {error}"));
                if let Some(hint) = error.hint() {
                    say(format_args!("hint: {hint}"));
                }
                self.lock().get_or_insert(error.code());
            }
        }
    }

    fn code(&self) -> Option<u8> {
        *self.lock()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<u8>> {
        self.0.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    fn exit_code(&self) -> ExitCode {
        self.code().map_or(ExitCode::SUCCESS, ExitCode::from)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::process::Command;

    use super::*;

    fn ends_with(code: &str) -> Result<(), StepError> {
        run(Command::new("sh").args(["-c", code]))
    }

    #[test]
    fn the_first_failure_decides_and_stops_what_follows() {
        let failure = Failure::default();
        let ran = Cell::new(0);
        let step = |code: &'static str| {
            let ran = &ran;
            move || {
                ran.set(ran.get() + 1);
                ends_with(code)
            }
        };
        failure.half(&[&step("exit 0"), &step("exit 9"), &step("exit 3")]);
        assert_eq!((ran.get(), failure.code()), (2, Some(9)));
        failure.half(&[&step("exit 3")]);
        assert_eq!((ran.get(), failure.code()), (2, Some(9)));
    }

    #[test]
    fn without_a_failure_the_exit_code_is_zero() {
        let failure = Failure::default();
        failure.half(&[&|| ends_with("true")]);
        assert_eq!(failure.code(), None);
    }
}
