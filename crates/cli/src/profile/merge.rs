//! `tare profile merge`: several profiles as one.

use tare_control::exit::ExitCode;

use super::output::OutFile;
use super::{read, text};
use crate::args::MergeArgs;
use crate::failure::{CommandResult, Failure};
use crate::output::print;

/// Merges the profiles and writes the result.
pub(super) fn merge(args: &MergeArgs) -> CommandResult {
    let merged = read::merged(&args.files)?;
    let json = merged
        .to_json()
        .map_err(|error| Failure::new(ExitCode::Internal, error))?;
    OutFile::open(&args.out)?.write(&json)?;
    print(&text::of(&merged, Some(&args.out)))
}
