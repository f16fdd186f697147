//! What a program may do with its memory.

/// What a program may do with a page. One without any access keeps its contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Read. The processor has no memory that can be written and not read.
    pub read: bool,
    /// Write.
    pub write: bool,
    /// Execute.
    pub execute: bool,
}
