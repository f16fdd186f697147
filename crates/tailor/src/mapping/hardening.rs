//! Options that harden a kernel, by who names them, and why the default kernel lacks some:
//! data, in `mapping/hardening.toml`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Symbol, renamed, rows};
use crate::kconfig::Config;
use crate::source::Series;
use crate::spec::KernelSpec;

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

/// Hardening that Debian's kernel has and another lacks, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lacking {
    /// The options.
    pub options: Vec<String>,
    /// The reason.
    pub why: String,
}

/// What a kernel of a specification lacks of the hardening in Debian's of the same series; by
/// Debian's list, where its configuration is not given.
pub fn lacking(spec: &KernelSpec, own: &Config, debian: Option<&Config>) -> Vec<Lacking> {
    let lists = of(spec.series);
    let mut by_reason: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for option in &lists.debian {
        let name = option.name();
        let is_on = |config: &Config| config.value(name).is_some_and(|value| value != "n");
        let is_off_there = debian.is_some_and(|debian| !is_on(debian));
        if is_on(own) || is_off_there {
            continue;
        }
        let why = match lists.why(option) {
            Some(why) => why.to_owned(),
            None => cut_of(spec, option).unwrap_or_else(|| "not part of this kernel".to_owned()),
        };
        by_reason.entry(why).or_default().push(name.to_owned());
    }
    let reasons = by_reason.into_iter();
    reasons
        .map(|(why, options)| Lacking { options, why })
        .collect()
}

/// The cut of a specification that takes an option away.
fn cut_of(spec: &KernelSpec, option: &Symbol) -> Option<String> {
    let mut all = rows(spec.series)
        .iter()
        .filter(|row| row.needs.contains(option));
    let cut = all.find_map(|row| row.cut.filter(|cut| spec.cuts.contains(cut)))?;
    Some(format!("cut {}: {}", cut.name(), cut.about()))
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tare_profile::Profile;

    use super::*;
    use crate::cut::Cut;
    use crate::target::Target;

    fn lines(options: &[&str]) -> String {
        options
            .iter()
            .map(|it| format!("CONFIG_{it}=y\n"))
            .collect()
    }

    fn of_cuts(cuts: BTreeSet<Cut>, debian: &str) -> Vec<Lacking> {
        let spec = KernelSpec {
            cuts,
            ..KernelSpec::new(Profile::empty(), Target::Qemu)
        };
        let own = Config::read(&lines(&["VMAP_STACK"]));
        lacking(&spec, &own, Some(&Config::read(debian)))
    }

    #[test]
    fn what_is_lacking_of_debians_hardening_has_its_reason() {
        let debian = lines(&["VMAP_STACK", "SECURITY_YAMA", "IMA", "STACKPROTECTOR"]);
        let found = of_cuts(Cut::all_trusting(), &debian);
        let why = |option: &str| {
            let mut all = found.iter();
            let found = all.find(|it| it.options.iter().any(|name| name == option));
            found.map(|it| it.why.clone())
        };
        assert!(why("SECURITY_YAMA").unwrap().starts_with("cut lsm: "));
        assert!(
            why("STACKPROTECTOR")
                .unwrap()
                .starts_with("cut hardening: ")
        );
        assert!(why("IMA").unwrap().contains("policy"));
        assert_eq!(why("VMAP_STACK"), None);
        // Off in that kernel of Debian's.
        assert_eq!(why("SECURITY_APPARMOR"), None);
    }

    #[test]
    fn without_debians_configuration_its_list_counts() {
        let spec = KernelSpec::new(Profile::empty(), Target::Qemu).on(Series::V6_12);
        let found = lacking(&spec, &Config::read(""), None);
        let has = |name: &str| found.iter().any(|it| it.options.contains(&name.to_owned()));
        assert!(
            has("SECURITY_IPE") && has("MITIGATION_RETPOLINE"),
            "{found:?}"
        );
    }
}
