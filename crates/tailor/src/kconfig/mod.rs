//! Configurations, solved by the kernel's own scripts.
//!
//! `make allnoconfig` with `KCONFIG_ALLCONFIG` starts from nothing and sets
//! what the list asks for, as far as dependencies allow
//! (`scripts/kconfig/conf.c`); the scripts drop the rest without a word. So the
//! result is held against the list, and what was not granted is an error that
//! names the symbol, who asked, and what the symbol depends on.

mod config;
mod depends;
mod given;
mod prompts;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub use config::Config;
pub use given::{GivenConfig, GivenError};
pub use prompts::Prompts;

use crate::choose::Choice;
use crate::mapping::Symbol;
use crate::objects;
use crate::output::{Watched, beginning, excerpt};
use crate::source::Tree;
use crate::starter::{Excess, Starter, end, excess_of_a_process, is_missing};
use crate::toolchain::Toolchain;

/// The requested list, in the build directory.
const REQUESTED: &str = "asked.config";
/// The result, in the build directory.
const RESULT: &str = ".config";
/// Most bytes of the scripts' errors that are looked at.
const ERROR_BYTES: u64 = 1 << 20;

/// Why a configuration cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum KconfigError {
    /// The kernel's scripts failed.
    #[error("the kernel's configuration scripts failed: {said}")]
    Scripts {
        /// The first line that says why they stopped, else their last.
        said: String,
    },
    /// They took too much.
    #[error("the kernel's configuration scripts were ended: {0}")]
    Excess(Excess),
    /// They were ended from outside.
    #[error("interrupted while the kernel's scripts made its configuration")]
    Interrupted,
    /// No `make`.
    #[error("cannot run make: install make, gcc, flex and bison")]
    NoMake(#[source] io::Error),
    /// Symbols that stayed unset.
    #[error("the kernel's configuration does not accept: {}", list(.0))]
    NotGranted(Vec<NotGranted>),
    /// A file of the build directory.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A symbol that stayed unset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotGranted {
    /// The symbol.
    pub symbol: Symbol,
    /// What asked for it.
    pub reasons: BTreeSet<String>,
    /// What it depends on, as its Kconfig file says; `None` where the tree has
    /// no such symbol.
    pub depends: Option<Vec<String>>,
}

fn list(all: &[NotGranted]) -> String {
    let sentence = |one: &NotGranted| {
        let reasons: Vec<&str> = one.reasons.iter().map(String::as_str).collect();
        let depends = match one.depends.as_deref() {
            None => "these sources have no such option".to_owned(),
            Some([]) => "other options around it rule it out".to_owned(),
            Some(depends) => format!("it depends on {}", depends.join(" and ")),
        };
        format!("{} (for {}; {depends})", one.symbol, reasons.join(", "))
    };
    all.iter().map(sentence).collect::<Vec<_>>().join("; ")
}

/// Has the kernel's scripts make a configuration with what was chosen, in
/// `build`, which then holds it as `.config`, as long as it `goes_on`.
pub(crate) fn solve(
    starter: &Starter,
    toolchain: &Toolchain,
    tree: &Tree,
    build: &Path,
    choice: &Choice,
    goes_on: &dyn Fn() -> bool,
) -> Result<Config, KconfigError> {
    let lines = fragment(choice);
    let config = solve_lines(starter, toolchain, tree, build, &lines, goes_on)?;
    match not_granted(tree, choice, &config) {
        none if none.is_empty() => Ok(config),
        some => Err(KconfigError::NotGranted(some)),
    }
}

/// The same for the lines of a configuration, without asking what was granted.
pub(crate) fn solve_lines(
    starter: &Starter,
    toolchain: &Toolchain,
    tree: &Tree,
    build: &Path,
    lines: &str,
    goes_on: &dyn Fn() -> bool,
) -> Result<Config, KconfigError> {
    let build = &made(build)?;
    let asked = write(build, REQUESTED, lines)?;
    let make = starter.make(toolchain, tree.dir(), build);
    run_scripts(starter, make, &["allnoconfig"], Some(&asked), goes_on)?;
    result(build)
}

/// A configuration of other sources on these: what it does not name is as the kernel's
/// defaults have it (`make olddefconfig`).
pub(crate) fn solve_given(
    starter: &Starter,
    tree: &Tree,
    build: &Path,
    given: &GivenConfig,
    goes_on: &dyn Fn() -> bool,
) -> Result<Config, KconfigError> {
    let build = &made(build)?;
    write(build, RESULT, &given.text())?;
    let make = starter.make(&Toolchain::Gnu, tree.dir(), build);
    run_scripts(starter, make, &["olddefconfig"], None, goes_on)?;
    result(build)
}

/// A configuration that targets of the kernel's Makefile make (`x86_64_defconfig`), in `build`; from
/// `lines`, if there are any.
pub fn made_by(
    starter: &Starter,
    tree: &Tree,
    build: &Path,
    targets: &[&str],
    lines: Option<&str>,
    goes_on: &dyn Fn() -> bool,
) -> Result<Config, KconfigError> {
    let build = &made(build)?;
    let asked = lines
        .map(|lines| write(build, REQUESTED, lines))
        .transpose()?;
    let make = starter.make(&Toolchain::Gnu, tree.dir(), build);
    run_scripts(starter, make, targets, asked.as_deref(), goes_on)?;
    result(build)
}

/// The build directory; the scripts run in the tree, where a relative one is another.
fn made(build: &Path) -> Result<PathBuf, KconfigError> {
    fs::create_dir_all(build)
        .and_then(|()| build.canonicalize())
        .map_err(file(build))
}

/// Writes a file of the build directory.
fn write(build: &Path, name: &str, text: &str) -> Result<PathBuf, KconfigError> {
    let path = build.join(name);
    let written = objects::create(build, name)
        .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(file(&path))?;
    Ok(path)
}

fn result(build: &Path) -> Result<Config, KconfigError> {
    let result = build.join(RESULT);
    let text = objects::read_text(build, RESULT).map_err(file(&result))?;
    Ok(Config::read(&text))
}

fn file(path: &Path) -> impl FnOnce(io::Error) -> KconfigError {
    let path = path.to_owned();
    move |source| KconfigError::File { path, source }
}

fn fragment(choice: &Choice) -> String {
    let on = choice.symbols.keys().chain(&choice.where_known);
    let on = on.map(|symbol| (symbol, "y".to_owned()));
    let numbers = choice.values.iter();
    let numbers = numbers.map(|(symbol, value)| (symbol, value.to_string()));
    let all: BTreeMap<&Symbol, String> = on.chain(numbers).collect();
    let all = all.into_iter();
    let mut lines: String = all
        .map(|(symbol, value)| format!("CONFIG_{symbol}={value}\n"))
        .collect();
    if !choice.parameters.is_empty() {
        let parameters = choice.parameters.join(" ");
        lines.push_str(&format!("CONFIG_CMDLINE=\"{parameters}\"\n"));
    }
    lines
}

fn run_scripts(
    starter: &Starter,
    make: io::Result<Command>,
    targets: &[&str],
    asked: Option<&Path>,
    goes_on: &dyn Fn() -> bool,
) -> Result<(), KconfigError> {
    let mut make = make
        .map_err(KconfigError::NoMake)?
        .args(targets)
        .env_remove("KCONFIG_ALLCONFIG")
        .envs(asked.map(|asked| ("KCONFIG_ALLCONFIG", asked)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(KconfigError::NoMake)?;
    let errors = make.stderr.take();
    let said = errors.map(|errors| beginning(Watched::new(errors, goes_on), ERROR_BYTES));
    let is_interrupted = !goes_on();
    if is_interrupted {
        end(&mut make);
    }
    let status = make.wait().map_err(KconfigError::NoMake)?;
    if is_interrupted {
        return Err(KconfigError::Interrupted);
    }
    if status.success() {
        return Ok(());
    }
    let said = said.unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let of_a_process = || said.lines().find_map(excess_of_a_process);
    if let Some(excess) = starter.excess(status).or_else(of_a_process) {
        return Err(KconfigError::Excess(excess));
    }
    if is_missing(status) {
        return Err(KconfigError::NoMake(io::ErrorKind::NotFound.into()));
    }
    Err(KconfigError::Scripts { said: why(&said) })
}

/// Why scripts stopped: the line before make's own where a program was not found, else
/// make's, else the last one.
fn why(said: &str) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    let lines: Vec<&str> = lines.into_iter().filter(|line| !line.is_empty()).collect();
    let stopped = lines.iter().position(|line| line.contains("***"));
    let before = stopped.and_then(|at| lines[..at].last());
    // As a shell says it, and as make does.
    let is_missing =
        |line: &&&str| line.ends_with("not found") || line.ends_with("No such file or directory");
    let missing = before.filter(is_missing);
    let stopped = stopped.map(|at| &lines[at]);
    let why = missing.or(stopped).or(lines.last());
    excerpt(why.copied().unwrap_or("they said nothing"))
}

fn not_granted(tree: &Tree, choice: &Choice, config: &Config) -> Vec<NotGranted> {
    let missing = choice
        .symbols
        .iter()
        .filter(|(symbol, _)| !config.has(symbol));
    let not_granted = |symbol: &Symbol, reasons| NotGranted {
        symbol: symbol.clone(),
        reasons,
        depends: depends::of(tree, symbol),
    };
    let other = choice
        .values
        .iter()
        .filter(|(symbol, value)| config.value(symbol.name()) != Some(&value.to_string()));
    missing
        .map(|(symbol, reasons)| not_granted(symbol, reasons.clone()))
        .chain(other.map(|(symbol, value)| {
            not_granted(symbol, BTreeSet::from([format!("the value {value}")]))
        }))
        .collect()
}

#[cfg(test)]
mod tests;
