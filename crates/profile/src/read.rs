//! A profile from a file, which any user may have edited.

use crate::call::{Call, MAX_ARGUMENTS};
use crate::error::ProfileError;
use crate::older::{Older, WITHOUT_PATHS};
use crate::{Profile, SCHEMA};

/// Longest profile that is read, bytes. One of a browser with all its
/// processes has some 2 MB.
pub const MAX_BYTES: usize = 64 << 20;

/// What says which version wrote a file, whatever else it holds.
#[derive(serde::Deserialize)]
struct Header {
    schema: String,
}

impl Profile {
    /// Reads a profile and checks that its figures agree with each other.
    pub fn read(bytes: &[u8]) -> Result<Self, ProfileError> {
        if bytes.len() > MAX_BYTES {
            return Err(ProfileError::TooLarge {
                bytes: bytes.len(),
                limit: MAX_BYTES,
            });
        }
        let header: Header = serde_json::from_slice(bytes)?;
        let profile: Self = match header.schema.as_str() {
            SCHEMA => serde_json::from_slice(bytes)?,
            WITHOUT_PATHS => serde_json::from_slice::<Older>(bytes)?.into(),
            other => {
                return Err(ProfileError::Schema {
                    found: other.chars().take(40).collect(),
                    expected: SCHEMA,
                });
            }
        };
        if let Some(path) = profile.paths.keys().find(|path| !path.starts_with('/')) {
            return Err(ProfileError::Contradiction {
                what: format!("paths: {path:.80?} is not absolute"),
            });
        }
        for (name, call) in &profile.calls {
            if let Some(what) = contradiction(call) {
                return Err(ProfileError::Contradiction {
                    what: format!("{name}: {what}"),
                });
            }
        }
        Ok(profile)
    }

    /// The profile as its file holds it, with a line end at its end.
    pub fn to_json(&self) -> Result<Vec<u8>, ProfileError> {
        let mut json = serde_json::to_vec_pretty(self)?;
        json.push(b'\n');
        Ok(json)
    }
}

fn contradiction(call: &Call) -> Option<&'static str> {
    if call.arguments.len() > MAX_ARGUMENTS {
        return Some("more arguments than a system call has");
    }
    if call.time.count() > call.count {
        return Some("more times than calls");
    }
    let failed = call
        .errors
        .values()
        .fold(0_u64, |sum, count| sum.saturating_add(*count));
    if failed > call.count {
        return Some("more failures than calls");
    }
    call.time.contradiction()
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
