//! Confinement: what each thread may still ask of the kernel once a guest
//! runs. No new privileges, Landlock (`files`), no capabilities
//! (`capabilities`), system calls with their arguments (`calls`). What is read before, and
//! what others wrote: a confined thread (`reader`), program (`program`) or build (`build`). `emulator` is for
//! QEMU.

mod apart;
mod build;
mod calls;
mod capabilities;
mod emulator;
mod error;
mod files;
mod program;
mod reader;
mod violation;

pub use build::{CPU_SECONDS, FILE_BYTES, enter_build};
pub use calls::Role;
pub use capabilities::{drop_capabilities, drop_capabilities_but_removal};
pub use emulator::enter_emulator;
pub use error::ConfineError;
pub use files::{Files, INSTALLED, Network, OF_COMPILERS, PLAIN_DEVICES, Reads};
pub use program::spawn_confined;
pub use reader::read_confined;
pub use violation::{OnViolation, install as install_violation_handler};

/// Confines a process with one thread for its set-up, in which it reads what others wrote:
/// [`confine`] narrows this down for each thread later.
pub fn confine_set_up(files: Files) -> Result<(), ConfineError> {
    rustix::thread::set_no_new_privs(true)
        .map_err(|errno| ConfineError::NoNewPrivs(errno.into()))?;
    violation::remember(Role::Main);
    files.restrict()?;
    calls::restrict_set_up()
}

/// Lets a program that gives up its groups go on where the kernel forbids that: in user namespaces of
/// ordinary users (`user_namespaces(7)`, `setgroups`). It keeps the groups of who started it. Needs
/// that no new privileges are possible.
pub fn pretend_to_set_groups() -> Result<(), ConfineError> {
    calls::pretend_to_set_groups()
}

/// Confines the calling thread until it ends.
pub fn confine(role: Role, files: Files) -> Result<(), ConfineError> {
    rustix::thread::set_no_new_privs(true)
        .map_err(|errno| ConfineError::NoNewPrivs(errno.into()))?;
    violation::remember(role);
    files.restrict()?;
    // The main thread removes files at the end: what that needs was decided by
    // `drop_capabilities`.
    if role != Role::Main {
        capabilities::drop_all().map_err(ConfineError::Capabilities)?;
    }
    calls::restrict(role)
}

#[cfg(test)]
mod tests {
    use rustix::process::getgroups;
    use rustix::thread::{Gid, set_no_new_privs, set_thread_groups};

    use super::*;

    #[test]
    fn groups_seem_given_up_and_stay() {
        let before = getgroups().unwrap();
        apart::apart(|| {
            set_no_new_privs(true).unwrap();
            pretend_to_set_groups()?;
            assert_eq!(set_thread_groups(&[Gid::from_raw(77)]), Ok(()));
            assert_eq!(getgroups().unwrap(), before);
            Ok(())
        })
        .unwrap();
    }
}
