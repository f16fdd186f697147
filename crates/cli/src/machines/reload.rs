//! `tare reload`: another root for a running machine, by `tare_launch::reload`.

use std::time::Duration;

use tare_launch::reload::ReloadRequest;

use crate::args::ReloadArgs;
use crate::failure::CommandResult;
use crate::output::{Stderr, print};

/// Gives a machine another root, and prints how many files it now serves.
pub(crate) fn reload(args: ReloadArgs) -> CommandResult {
    let request = ReloadRequest {
        name: args.name,
        root: args.root,
        site: args.site,
        limit: Duration::from_secs(args.time.into()),
    };
    let files = tare_launch::reload::reload(&request, &Stderr)?;
    print(&format!("{}: serving {files} files\n", request.name))
}
