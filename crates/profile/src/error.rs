//! Why a profile cannot be used.

/// Why a profile cannot be used; each sentence says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Longer than any profile is.
    #[error("{bytes} bytes are too many for a profile (limit: {limit}): is it one?")]
    TooLarge {
        /// Its length, bytes.
        bytes: usize,
        /// The bound, bytes.
        limit: usize,
    },
    /// JSON of another kind, or cut off.
    #[error("not a profile, or a damaged one")]
    Json(#[from] serde_json::Error),
    /// Written by another version.
    #[error(
        "it has the schema `{found}`, this version reads `{expected}`: profile the application again"
    )]
    Schema {
        /// What the file says.
        found: String,
        /// What is read here.
        expected: &'static str,
    },
    /// Figures that contradict each other: edited by hand, or damaged.
    #[error("its numbers are inconsistent ({what}): profile the application again")]
    Contradiction {
        /// The place and what is wrong with it.
        what: String,
    },
}
