//! [`Held`]: what an open file or directory has of the tree.

use alloc::string::String;
use alloc::sync::Arc;

use super::node::Node;

/// A node that is open, and where it was found.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) node: Arc<Node>,
    /// As it was opened, absolute and without links.
    pub(crate) path: String,
}

impl Held {
    pub(crate) const fn new(node: Arc<Node>, path: String) -> Self {
        Self { node, path }
    }
}
