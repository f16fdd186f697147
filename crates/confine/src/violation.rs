//! A system call that a thread's filter does not allow: SIGSYS, one sentence,
//! exit code [`ExitCode::Internal`].

#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::OnceLock;

use tare_control::exit::ExitCode;
use vmm_sys_util::errno;
use vmm_sys_util::signal::register_signal_handler;

use super::Role;

thread_local!(static ROLE: Cell<Role> = const { Cell::new(Role::Main) });

static PROGRAM: OnceLock<OnViolation> = OnceLock::new();

/// What the handler needs to know of its program.
#[derive(Clone, Copy, Debug)]
pub struct OnViolation {
    /// The program's name, for the sentence.
    pub program: &'static str,
    /// Called before the end; async-signal-safe.
    pub restore: fn(),
}

/// Installs the handler, before any thread is confined.
pub fn install(program: OnViolation) -> Result<(), errno::Error> {
    let _ = PROGRAM.set(program);
    register_signal_handler(libc::SIGSYS, report)
}

pub(super) fn remember(role: Role) {
    ROLE.set(role);
}

/// Async-signal-safe: no allocation, no lock.
extern "C" fn report(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let mut digits = [0; 10];
    let number = decimal(system_call(info), &mut digits);
    let role = ROLE.get().name().as_bytes();
    let program = PROGRAM.get();
    if let Some(program) = program {
        (program.restore)();
    }
    let parts: [&[u8]; 6] = [
        program.map_or("tare", |it| it.program).as_bytes(),
        b": system call ",
        number,
        b" is not allowed (thread ",
        role,
        b")\n",
    ];
    for part in parts {
        let _ = rustix::io::write(rustix::stdio::stderr(), part);
    }
    // SAFETY: ends the process at once, as a handler may.
    unsafe { libc::_exit(ExitCode::Internal as i32) }
}

/// `si_syscall` of SIGSYS: after three ints, padding and an address
/// (`siginfo_t`, `asm-generic/siginfo.h`), which libc has no accessor for.
fn system_call(info: *const libc::siginfo_t) -> u32 {
    const OFFSET_OF_SYSCALL: usize = 24;
    // SAFETY: the kernel gives a whole siginfo of 128 bytes to a handler that
    // was registered with SA_SIGINFO, as vmm-sys-util does.
    let number = unsafe { info.cast::<u8>().add(OFFSET_OF_SYSCALL) };
    // SAFETY: four bytes from there lie in the same siginfo, which the kernel filled.
    unsafe { number.cast::<u32>().read_unaligned() }
}

fn decimal(mut value: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 || at == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_full() {
        for value in [0, 9, 10, 257, u32::MAX] {
            let mut digits = [0; 10];
            assert_eq!(decimal(value, &mut digits), value.to_string().as_bytes());
        }
    }
}
