//! `tare check`: a site's file.

use tare_host::printable::printable;
use tare_launch::site;

use crate::args::CheckArgs;
use crate::failure::CommandResult;
use crate::output::print;

/// Prints a summary of the file, or its mistakes.
pub(crate) fn check(args: &CheckArgs) -> CommandResult {
    let site = site::read(&args.file)?;
    let mut parts = vec![
        counted(site.paths(), "path"),
        counted(site.redirects(), "redirect"),
    ];
    if site.hosts() > 0 {
        parts.push(counted(site.hosts(), "host"));
    }
    parts.extend(site.lists().then(|| "directories are listed".to_owned()));
    parts.extend(site.page().map(|page| format!("missing files get {page}")));
    let file = args.file.to_string_lossy();
    let line = format!("{file}: valid: {}", parts.join(", "));
    print(&format!("{}\n", printable(&line)))
}

fn counted(count: usize, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{plural}")
}
