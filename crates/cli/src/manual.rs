//! Completions and manual pages, made from the command line's definition.

use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use clap_mangen::Man;
use tare_control::exit::ExitCode;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::{CommandResult, Explain, Failure};
use crate::output::print;

/// A page that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", path.display())]
struct WriteError {
    path: PathBuf,
    source: std::io::Error,
}

impl Explain for WriteError {
    fn code(&self) -> ExitCode {
        ExitCode::Output
    }
}

/// `tare completions SHELL`.
pub(crate) fn completions(args: &CompletionsArgs) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tare", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// `tare man`: the main page, or all pages into a directory.
pub(crate) fn man(args: &ManArgs) -> CommandResult {
    match &args.out {
        None => {
            let mut page = Vec::new();
            Man::new(Cli::command())
                .render(&mut page)
                .map_err(|error| Failure::new(ExitCode::Output, error))?;
            print(&String::from_utf8_lossy(&page))
        }
        Some(dir) => {
            write_all(dir).map_err(|source| WriteError {
                path: dir.clone(),
                source,
            })?;
            Ok(ExitCode::Success)
        }
    }
}

fn write_all(dir: &Path) -> std::io::Result<()> {
    fs::create_dir_all(dir)?;
    clap_mangen::generate_to(Cli::command(), dir)
}
