//! One row: an observation and the symbols that it needs.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cut::Cut;
use crate::source::Series;
use crate::target::{Part, Target};

/// A configuration symbol that is set to `y`, without `CONFIG_`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(try_from = "String")]
pub struct Symbol(String);

impl Symbol {
    /// The symbol of a name with or without `CONFIG_`; `None` for what no
    /// symbol is called.
    pub fn new(name: &str) -> Option<Self> {
        let name = name.strip_prefix("CONFIG_").unwrap_or(name);
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
        (!name.is_empty() && name.len() <= 80 && name.chars().all(fits))
            .then(|| Self(name.to_owned()))
    }

    /// Its name without `CONFIG_`.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Symbol {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::new(&name).ok_or_else(|| format!("`{name}` is not a configuration symbol"))
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name, or all that begin with it where it ends with `*`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Pattern(String);

impl Pattern {
    /// Whether a name is meant.
    pub fn matches(&self, name: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == self.0,
        }
    }
}

/// What makes a row count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Every kernel.
    Always,
    /// The machine that the kernel is for.
    Targets(Vec<Target>),
    /// A part of that machine.
    Parts(Vec<Part>),
    /// A system call that was made.
    Calls(Vec<String>),
    /// A family of sockets.
    Families(Vec<String>),
    /// A socket's protocol, as `FAMILY NUMBER`.
    Protocols(Vec<String>),
    /// A socket option.
    Options(Vec<String>),
    /// A file system that files were opened on, or was mounted.
    FileSystems(Vec<String>),
    /// A file system that was mounted.
    Mounts(Vec<String>),
    /// A path below `/proc` or `/sys`.
    Paths(Vec<Pattern>),
    /// A device node.
    Devices(Vec<Pattern>),
    /// An `ioctl` request.
    Ioctls(Vec<String>),
    /// An operation of `prctl`.
    Prctls(Vec<String>),
    /// A flag of `clone` or `unshare`.
    Clones(Vec<String>),
    /// A flag of `open` or `mmap`, or a command of `fcntl`, as `CALL FLAG`.
    Flags(Vec<String>),
}

/// An observation and what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What makes it count.
    pub trigger: Trigger,
    /// The symbols, prerequisites first.
    pub needs: Vec<Symbol>,
    /// Symbols that are set to a number.
    pub values: BTreeMap<Symbol, u64>,
    /// Whether the symbols are left out, without an error, where the sources do not have them.
    pub where_known: bool,
    /// Files of the kernel tree that say so.
    pub source: Vec<String>,
    /// Whether programs live without it.
    pub optional: bool,
    /// The cut that leaves it out.
    pub cut: Option<Cut>,
    /// The cut that brings it: the replacement of what is left out.
    pub taken: Option<Cut>,
    /// The series of Linux that it is for.
    pub series: Vec<Series>,
    /// More, for the reader of a report.
    pub note: Option<String>,
}

/// A data file that says nothing sensible.
#[derive(Debug, thiserror::Error)]
pub enum MappingError {
    /// No TOML, or of another shape; the source has line and column.
    #[error("{file}")]
    Toml {
        /// The data file.
        file: String,
        /// What is wrong.
        source: Box<toml::de::Error>,
    },
    /// No trigger, or several.
    #[error("{file}: row {row} has {found} triggers instead of one")]
    Triggers {
        /// The data file.
        file: String,
        /// The row, counted from 1.
        row: usize,
        /// Its triggers.
        found: usize,
    },
}

pub(super) fn read(file: &str, text: &str) -> Result<Vec<Row>, MappingError> {
    let parsed: File = toml::from_str(text).map_err(|source| MappingError::Toml {
        file: file.to_owned(),
        source: Box::new(source),
    })?;
    let rows = parsed.row.into_iter().enumerate();
    rows.map(|(index, raw)| {
        raw.row().map_err(|found| MappingError::Triggers {
            file: file.to_owned(),
            row: index + 1,
            found,
        })
    })
    .collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    row: Vec<Raw>,
}

/// A row as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    always: Option<bool>,
    targets: Option<Vec<Target>>,
    parts: Option<Vec<Part>>,
    calls: Option<Vec<String>>,
    families: Option<Vec<String>>,
    protocols: Option<Vec<String>>,
    options: Option<Vec<String>>,
    file_systems: Option<Vec<String>>,
    #[serde(default)]
    mounts_only: bool,
    paths: Option<Vec<Pattern>>,
    devices: Option<Vec<Pattern>>,
    ioctls: Option<Vec<String>>,
    prctls: Option<Vec<String>>,
    clones: Option<Vec<String>>,
    flags: Option<Vec<String>>,
    #[serde(default)]
    needs: Vec<Symbol>,
    #[serde(default)]
    values: BTreeMap<Symbol, u64>,
    #[serde(default)]
    where_known: bool,
    source: Vec<String>,
    #[serde(default)]
    optional: bool,
    cut: Option<Cut>,
    taken: Option<Cut>,
    series: Option<Vec<Series>>,
    note: Option<String>,
}

impl Raw {
    /// The row, or how many triggers it has instead of one.
    fn row(self) -> Result<Row, usize> {
        let file_systems = if self.mounts_only {
            Trigger::Mounts
        } else {
            Trigger::FileSystems
        };
        let mut triggers = [
            self.always
                .filter(|always| *always)
                .map(|_| Trigger::Always),
            self.targets.map(Trigger::Targets),
            self.parts.map(Trigger::Parts),
            self.calls.map(Trigger::Calls),
            self.families.map(Trigger::Families),
            self.protocols.map(Trigger::Protocols),
            self.options.map(Trigger::Options),
            self.file_systems.map(file_systems),
            self.paths.map(Trigger::Paths),
            self.devices.map(Trigger::Devices),
            self.ioctls.map(Trigger::Ioctls),
            self.prctls.map(Trigger::Prctls),
            self.clones.map(Trigger::Clones),
            self.flags.map(Trigger::Flags),
        ]
        .into_iter()
        .flatten();
        let (Some(trigger), others) = (triggers.next(), triggers.count()) else {
            return Err(0);
        };
        if others > 0 {
            return Err(others + 1);
        }
        Ok(Row {
            trigger,
            needs: self.needs,
            values: self.values,
            where_known: self.where_known,
            source: self.source,
            optional: self.optional,
            cut: self.cut,
            taken: self.taken,
            series: self.series.unwrap_or(Series::ALL.to_vec()),
            note: self.note,
        })
    }
}
