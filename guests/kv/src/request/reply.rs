//! Whether a command is answered.

/// Whether the client wants to hear what came of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It does.
    Wanted,
    /// It said `noreply`.
    Unwanted,
}
