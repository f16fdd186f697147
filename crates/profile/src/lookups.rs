//! Paths that an application found, and what it asked of each.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Absolute paths as the application names them, without `.`: links are not followed,
/// and `..` stays.
pub type Lookups = BTreeMap<String, BTreeSet<Asked>>;

/// What was asked of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Asked {
    /// Whether it may be used (`access`).
    Access,
    /// To be made, renamed or removed, or to get other attributes (`mkdir`, `rename`,
    /// `unlink`, `chmod`, `bind`, ...).
    Change,
    /// To be the working directory or the root.
    Enter,
    /// To be run, or to run a script.
    Execute,
    /// Where it points to (`readlink`).
    Link,
    /// Its names: a directory was opened.
    List,
    /// Its content.
    Open,
    /// Its attributes (`stat`, `statfs`, `getxattr`, `O_PATH`, ...).
    Stat,
    /// To be opened for writing, or connected to (a UNIX socket).
    Write,
}

impl Asked {
    /// Whether it may make or change the file, so that what is there now may not be
    /// what the application found.
    pub fn changes(self) -> bool {
        matches!(self, Self::Change | Self::Write)
    }
}
