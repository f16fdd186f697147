//! Why a thread cannot be confined.

/// Why a thread cannot be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// `PR_SET_NO_NEW_PRIVS`.
    #[error("the kernel refused to set no_new_privs")]
    NoNewPrivs(#[source] std::io::Error),
    /// `capset`.
    #[error("the kernel refused to drop capabilities")]
    Capabilities(#[source] std::io::Error),
    /// `setrlimit`.
    #[error("the kernel refused to limit the process")]
    Limits(#[source] std::io::Error),
    /// Landlock is there and refused the rules.
    #[error("Landlock refused the rules for files")]
    Landlock(#[from] landlock::RulesetError),
    /// A handler of forbidden calls cannot be set.
    #[error("the kernel refused a handler of forbidden calls")]
    Handler(#[source] std::io::Error),
    /// The program that was to be confined.
    #[error("cannot start the program")]
    Start(#[source] std::io::Error),
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
