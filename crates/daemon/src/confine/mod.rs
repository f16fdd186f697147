//! Confinement: what each thread may still ask of the kernel once a guest
//! runs. No new privileges, Landlock (`files`), no capabilities
//! (`capabilities`), system calls with their arguments (`calls`).

mod calls;
mod capabilities;
mod files;
mod reader;
mod violation;

pub use calls::Role;
pub use capabilities::{drop_capabilities, drop_capabilities_but_removal};
pub use files::Files;
pub use reader::read_confined;
pub use violation::{OnViolation, install as install_violation_handler};

/// Why a thread cannot be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// `PR_SET_NO_NEW_PRIVS`.
    #[error("the kernel refused to take away new privileges")]
    NoNewPrivs(#[source] std::io::Error),
    /// `capset`.
    #[error("the kernel refused to take away capabilities")]
    Capabilities(#[source] std::io::Error),
    /// Landlock is there and refused the rules.
    #[error("Landlock refused the rules for files")]
    Landlock(#[from] landlock::RulesetError),
    /// A handler of forbidden calls cannot be set.
    #[error("the kernel refused a handler of forbidden calls")]
    Handler(#[source] std::io::Error),
    /// A path of the rules cannot be opened.
    #[error("a directory for Landlock cannot be opened")]
    Path(#[from] landlock::PathFdError),
    /// The list of system calls is not a filter.
    #[error("the system call filter cannot be built")]
    Filter(#[from] seccompiler::BackendError),
    /// The kernel refused the filter.
    #[error("the kernel refused the system call filter")]
    Install(#[from] seccompiler::Error),
}

/// Confines a process with one thread for its set-up, in which it reads what others wrote:
/// [`confine`] narrows this down for each thread later.
pub fn confine_set_up(files: Files) -> Result<(), ConfineError> {
    rustix::thread::set_no_new_privs(true)
        .map_err(|errno| ConfineError::NoNewPrivs(errno.into()))?;
    violation::remember(Role::Main);
    files.restrict()?;
    calls::restrict_set_up()
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
