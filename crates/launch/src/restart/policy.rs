//! Which ends lead to a new start.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// `--restart`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// No end.
    #[default]
    No,
    /// Ends by a panic, a fault, an exit code other than 0, or a fatal signal; not requested ends.
    OnFailure {
        /// Starts in a row before the machine is given up.
        most: Option<u32>,
    },
}

/// A policy that cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid restart policy: use no, on-failure, or on-failure:N with N of at least 1")]
pub struct RestartError;

impl FromStr for Restart {
    type Err = RestartError;

    fn from_str(text: &str) -> Result<Self, RestartError> {
        if text == "no" {
            return Ok(Self::No);
        }
        let most = match text.strip_prefix("on-failure").ok_or(RestartError)? {
            "" => None,
            count => {
                let count = count
                    .strip_prefix(':')
                    .ok_or(RestartError)?
                    .parse()
                    .ok()
                    .filter(|count| *count > 0);
                Some(count.ok_or(RestartError)?)
            }
        };
        Ok(Self::OnFailure { most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_as_written() {
        assert_eq!("no".parse(), Ok(Restart::No));
        let on_failure = |most| Ok(Restart::OnFailure { most });
        assert_eq!("on-failure".parse(), on_failure(None));
        assert_eq!("on-failure:1".parse(), on_failure(Some(1)));
        assert_eq!("on-failure:4294967295".parse(), on_failure(Some(u32::MAX)));
        for wrong in [
            "",
            "always",
            "on-failure:",
            "on-failure:0",
            "on-failure:-1",
            "on-failure:4294967296",
            "on-failures",
            "No",
        ] {
            assert_eq!(wrong.parse::<Restart>(), Err(RestartError), "{wrong}");
        }
    }
}
