//! Why threads cannot be made.

/// Why a thread could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    /// There is no such core.
    #[error("core {core} does not exist, there are {cores}")]
    NoSuchCore {
        /// The core asked for.
        core: usize,
        /// How many there are.
        cores: usize,
    },
    /// There is no memory for the stack.
    #[error("no memory for a stack of {bytes} bytes")]
    NoMemory {
        /// The stack's size.
        bytes: usize,
    },
}
