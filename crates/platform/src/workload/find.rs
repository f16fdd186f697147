//! Which workloads there are: those that came with Tare, and files of the user's.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{ParseError, Workload, parse};
use crate::place::Platform;

/// Name and text of those that came with Tare.
const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/workloads.rs"));
/// Where a user's own are looked for besides.
pub(crate) const DIRECTORY: &str = "lab/workloads";
/// More than any workload with its programs.
const MAX_BYTES: u64 = 1 << 20;

/// An unavailable workload.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// No such workload.
    #[error("there is no workload '{name}'; there are: {}; or give the path of a file", known.join(", "))]
    Unknown {
        /// Requested.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The file cannot be read.
    #[error("cannot read the workload {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is too large.
    #[error("the workload {} is larger than 1 MiB", .0.display())]
    TooLarge(PathBuf),
    /// The file has a mistake.
    #[error(transparent)]
    Parse(#[from] ParseError),
}

/// Names of all workloads.
pub fn known() -> Vec<String> {
    texts().into_keys().collect()
}

impl Platform {
    /// Names of the workloads that came with Tare, by which platforms are compared.
    pub fn workloads() -> Vec<&'static str> {
        BUILT_IN.iter().map(|(name, _)| *name).collect()
    }
}

/// The workload of this name, or in this file.
pub fn find(name: &str) -> Result<Workload, FindError> {
    if name.ends_with(".toml") || name.contains('/') {
        return read(Path::new(name));
    }
    match texts().remove(name) {
        Some(Text::BuiltIn(text)) => {
            let file = Path::new(DIRECTORY).join(format!("{name}.toml"));
            Ok(parse(name, &file, text)?)
        }
        Some(Text::File(path)) => read(&path),
        None => Err(FindError::Unknown {
            name: name.to_owned(),
            known: known(),
        }),
    }
}

enum Text {
    BuiltIn(&'static str),
    File(PathBuf),
}

/// A file in the directory here takes the place of one that came with Tare.
fn texts() -> BTreeMap<String, Text> {
    let built_in = BUILT_IN
        .iter()
        .map(|(name, text)| ((*name).to_owned(), Text::BuiltIn(text)));
    let mut texts: BTreeMap<String, Text> = built_in.collect();
    let entries = fs::read_dir(DIRECTORY).into_iter().flatten();
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let is_toml = path.extension().is_some_and(|end| end == "toml");
        if let (true, Some(stem)) = (is_toml, path.file_stem()) {
            texts.insert(stem.to_string_lossy().into_owned(), Text::File(path));
        }
    }
    texts
}

fn read(path: &Path) -> Result<Workload, FindError> {
    let failed = |source| FindError::Read {
        path: path.to_owned(),
        source,
    };
    if fs::metadata(path).map_err(failed)?.len() > MAX_BYTES {
        return Err(FindError::TooLarge(path.to_owned()));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    Ok(parse(&stem, path, &text)?)
}
