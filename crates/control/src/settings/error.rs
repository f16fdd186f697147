//! Why settings cannot be changed.

/// Why settings cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// No `=`.
    #[error("{0:?} is not KEY=VALUE")]
    Form(String),
    /// The key is unknown.
    #[error("unknown setting")]
    NoSuchKey,
    /// The value is not of the setting's type.
    #[error("{0}")]
    Value(String),
    /// The machine has no network.
    #[error("net does not exist: the machine has no network")]
    NoNet,
    /// The machine has no such disk.
    #[error("{0} does not exist; disks are disk0, disk1, ... in the order of --disk")]
    NoSuchDisk(String),
    /// A disk's coalescing is invalid.
    #[error("{disk}")]
    Coalesce {
        /// The disk.
        disk: String,
        /// What about it.
        source: tare_policy::coalesce::SettingsError,
    },
    /// A change is made as a whole, and a size cannot be taken back.
    #[error("the sizes of several disks cannot be changed at once")]
    SeveralSizes,
    /// A disk that does not get another size.
    #[error("{disk}.size: {problem}")]
    Size {
        /// The disk.
        disk: String,
        /// Why not.
        problem: String,
    },
    /// To or from dedicated vCPUs.
    #[error("dedicated vCPUs can only be set at start: tare run --halt dedicated")]
    DedicatedAtStart,
    /// A way to wait that this host does not have.
    #[error("halt: {problem}")]
    Halt {
        /// Why not.
        problem: String,
    },
    /// About the setting of this name.
    #[error("{key}")]
    Key {
        /// The setting.
        key: String,
        /// What about it.
        #[source]
        source: Box<SettingsError>,
    },
}
