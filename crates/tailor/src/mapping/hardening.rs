//! Options that harden a kernel, by who names them, and why the default kernel lacks some:
//! data, in `mapping/hardening.toml`.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{Symbol, renamed};
use crate::source::Series;

/// The data file.
const FILE: &str = include_str!("../../mapping/hardening.toml");

/// The lists for one series, with its names of symbols.
#[derive(Debug)]
pub struct Hardening {
    /// Those that are on in Debian's kernel.
    pub debian: BTreeSet<Symbol>,
    /// Those that the Kernel Self-Protection Project recommends.
    pub kspp: BTreeSet<Symbol>,
    /// Those that no row of the default kernel needs.
    pub exceptions: Vec<Exception>,
}

/// Options that the default kernel lacks for one reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    /// The options.
    pub options: Vec<Symbol>,
    /// The reason.
    pub why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    debian: BTreeSet<Symbol>,
    kspp: BTreeSet<Symbol>,
    only: Vec<Only>,
    exception: Vec<Exception>,
}

/// What one series has alone.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Only {
    series: Series,
    #[serde(default)]
    debian: BTreeSet<Symbol>,
    #[serde(default)]
    kspp: BTreeSet<Symbol>,
}

/// The lists for a series.
///
/// # Panics
///
/// If the data file of this build is malformed, which its tests rule out.
pub fn of(series: Series) -> Hardening {
    let file: File = match toml::from_str(FILE) {
        Ok(file) => file,
        Err(error) => panic!("the list of hardening options of this build is malformed: {error}"),
    };
    let (mut debian, mut kspp) = (file.debian, file.kspp);
    for only in file.only.into_iter().filter(|it| it.series == series) {
        debian.extend(only.debian);
        kspp.extend(only.kspp);
    }
    let names = |symbols: BTreeSet<Symbol>| {
        let symbols = symbols.into_iter();
        symbols.map(|symbol| renamed(symbol, series)).collect()
    };
    let exceptions = file.exception.into_iter().map(|exception| Exception {
        options: exception
            .options
            .into_iter()
            .map(|symbol| renamed(symbol, series))
            .collect(),
        ..exception
    });
    Hardening {
        debian: names(debian),
        kspp: names(kspp),
        exceptions: exceptions.collect(),
    }
}

impl Hardening {
    /// Why the default kernel lacks an option; `None` for one that it has.
    pub fn why(&self, option: &Symbol) -> Option<&str> {
        let mut exceptions = self.exceptions.iter();
        let exception = exceptions.find(|it| it.options.contains(option))?;
        Some(&exception.why)
    }
}
