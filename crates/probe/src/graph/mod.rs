//! Call graphs: what the kernel does within a system call, and how long.
//!
//! `parse` reads the text of the kernel's `function_graph` tracer (with its option
//! `funcgraph-proc`), `tree` adds up what happens under the same callers, `flame`
//! draws it. The trace comes from a guest: lines that make no sense are counted
//! and left out.

mod flame;
mod parse;
mod tree;

pub use parse::parse;
pub use tree::{Graph, Node};
