//! What is tried: boot parameters and sysctls of the mapping.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::kconfig::Config;
use crate::mapping::Symbol;

const DATA: &str = include_str!("../../mapping/settings.toml");
/// The option without which a kernel has no sysctls.
const SYSCTLS: &str = "PROC_SYSCTL";
/// How a boot parameter sets a sysctl (`fs/proc/proc_sysctl.c`).
const SYSCTL: &str = "sysctl.";
/// Characters of a word besides letters and digits: what a configuration's string may have, for
/// a word becomes part of the kernel's own command line.
const PLAIN: &str = "._,:/+=%-";

/// A boot parameter or sysctl with a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// As the kernel's command line has it: `audit=0`, `sysctl.vm.stat_interval=120`.
    pub word: String,
    /// What it does.
    pub about: String,
    /// The safety that it gives up; `None` for one that costs none.
    pub gives_up: Option<String>,
    /// Options without which it does nothing.
    #[serde(skip)]
    pub needs: Vec<Symbol>,
    /// Files of the kernel's sources that read it.
    #[serde(skip)]
    pub source: Vec<String>,
}

/// A setting that is not tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its word.
    pub word: String,
    /// Why.
    pub why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Data {
    setting: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    parameter: Option<String>,
    sysctl: Option<String>,
    about: String,
    #[serde(default)]
    needs: Vec<Symbol>,
    source: Vec<String>,
    gives_up: Option<String>,
}

/// All settings, the likeliest to help first.
///
/// # Panics
///
/// If the data file of this build is malformed, which its tests rule out.
pub fn all() -> &'static [Setting] {
    static ALL: OnceLock<Vec<Setting>> = OnceLock::new();
    ALL.get_or_init(|| match read(DATA) {
        Ok(all) => all,
        Err(error) => panic!("the settings of this build are malformed: {error}"),
    })
}

fn read(text: &str) -> Result<Vec<Setting>, String> {
    let data: Data = toml::from_str(text).map_err(|error| error.to_string())?;
    data.setting.into_iter().map(setting).collect()
}

fn setting(row: Row) -> Result<Setting, String> {
    let mut needs = Vec::new();
    let word = match (row.parameter, row.sysctl) {
        (Some(word), None) => word,
        (None, Some(sysctl)) => {
            needs.extend(Symbol::new(SYSCTLS));
            format!("{SYSCTL}{sysctl}")
        }
        _ => return Err(format!("one of parameter and sysctl: {}", row.about)),
    };
    needs.extend(row.needs);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || PLAIN.contains(c);
    if word.is_empty() || !word.chars().all(is_plain) {
        return Err(format!("`{word}` is not a plain word"));
    }
    Ok(Setting {
        word,
        about: row.about,
        gives_up: row.gives_up,
        needs,
        source: row.source,
    })
}

/// Settings to try on a kernel, and the others with why not; of a kernel whose configuration is
/// unknown all are tried. What gives up safety is tried for those who trust the guest's code.
pub fn candidates(config: Option<&Config>, trusting: bool) -> (Vec<Setting>, Vec<Skipped>) {
    let mut tried = Vec::new();
    let mut skipped = Vec::new();
    for setting in all() {
        let is_lacking = |symbol: &&Symbol| config.is_some_and(|config| !config.has(symbol));
        let lacks = setting.needs.iter().find(is_lacking);
        let why = match (lacks, &setting.gives_up) {
            (Some(symbol), _) => format!("the kernel has no {symbol}"),
            (None, Some(safety)) if !trusting => format!("only with --trusting: {safety}"),
            _ => {
                tried.push(setting.clone());
                continue;
            }
        };
        skipped.push(Skipped {
            word: setting.word.clone(),
            why,
        });
    }
    (tried, skipped)
}

/// Moves to the skipped ones what a kernel said that it does not know, when it was started with
/// all of them.
pub(super) fn without_refused(
    tried: Vec<Setting>,
    refused: &[String],
    skipped: &mut Vec<Skipped>,
) -> Vec<Setting> {
    let (out, tried): (Vec<Setting>, Vec<Setting>) = tried
        .into_iter()
        .partition(|setting| refused.contains(&setting.word));
    let why = || "the kernel does not know it".to_owned();
    skipped.extend(out.into_iter().map(|setting| Skipped {
        word: setting.word,
        why: why(),
    }));
    tried
}

/// Words of these settings that a kernel's console says are unknown: parameters as
/// `print_unknown_bootoptions` of `init/main.c` lists them, sysctls as `process_sysctl_arg` of
/// `fs/proc/proc_sysctl.c` fails to set them.
pub(super) fn refused(settings: &[Setting], console: &str) -> Vec<String> {
    let unknown: Vec<&str> = console
        .lines()
        .filter(|line| line.contains("nknown kernel command line parameters"))
        .flat_map(|line| line.split(['"', ' ']))
        .collect();
    let is_refused = |word: &str| match word.strip_prefix(SYSCTL) {
        Some(sysctl) => {
            let said = format!("Failed to set sysctl parameter '{sysctl}'");
            console.contains(&said)
        }
        None => unknown.contains(&word),
    };
    let words = settings.iter().map(|setting| setting.word.as_str());
    words
        .filter(|word| is_refused(word))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;

    #[test]
    fn every_setting_is_plain_and_stands_once() {
        let words: BTreeSet<&str> = all().iter().map(|it| it.word.as_str()).collect();
        assert_eq!(words.len(), all().len());
        assert!(all().len() >= 24);
        assert!(all().iter().all(|it| !it.source.is_empty()));
        for wrong in [
            "[[setting]]\nabout = \"a\"\nsource = []\n",
            "[[setting]]\nparameter = \"a\"\nsysctl = \"b\"\nabout = \"a\"\nsource = []\n",
            "[[setting]]\nparameter = \"a b\"\nabout = \"a\"\nsource = []\n",
            "[[setting]]\nparameter = \"$(a)\"\nabout = \"a\"\nsource = []\n",
            "[[setting]]\nword = \"a\"\nabout = \"a\"\nsource = []\n",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_gives_up_safety_is_tried_by_those_who_trust_only() {
        let config =
            "CONFIG_PROC_SYSCTL=y\nCONFIG_CPU_MITIGATIONS=y\nCONFIG_SPECULATION_MITIGATIONS=y\n";
        let config = Config::read(config);
        let has = |trusting, word: &str| {
            let (tried, _) = candidates(Some(&config), trusting);
            tried.iter().any(|it| it.word == word)
        };
        assert!(has(true, "mitigations=off") && !has(false, "mitigations=off"));
        assert!(has(false, "sysctl.vm.stat_interval=120"));
        let (tried, skipped) = candidates(Some(&config), false);
        assert!(tried.iter().all(|it| it.gives_up.is_none()));
        assert_eq!(tried.len() + skipped.len(), all().len());
        assert_eq!(candidates(None, true).0.len(), all().len());
        let mitigations = skipped.iter().find(|it| it.word == "mitigations=off");
        assert!(
            mitigations
                .unwrap()
                .why
                .starts_with("only with --trusting: ")
        );
    }

    #[test]
    fn sysctls_that_a_kernel_lacks_are_named() {
        let (tried, skipped) = candidates(Some(&Config::read("CONFIG_NET=y\n")), true);
        assert!(tried.iter().all(|it| !it.word.starts_with(SYSCTL)));
        let sysctl = skipped.iter().find(|it| it.word.starts_with(SYSCTL));
        assert_eq!(sysctl.unwrap().why, "the kernel has no PROC_SYSCTL");
    }

    #[test]
    fn what_a_kernel_says_that_it_does_not_know_is_skipped() {
        let named = |words: &[&str]| -> Vec<Setting> {
            let one = |word: &&str| Setting {
                word: (*word).to_owned(),
                ..all()[0].clone()
            };
            words.iter().map(one).collect()
        };
        let all = named(&["psi=0", "audit=0", "sysctl.a.b=1", "sysctl.a.c=1"]);
        let console = "[    0.0] Unknown kernel command line parameters \"psi=0 x=1\", will be passed to user space.\r\n\
                       [    0.9] Failed to set sysctl parameter 'a.c=1': parameter not found\r\n";
        let refused = refused(&all, console);
        assert_eq!(refused, ["psi=0", "sysctl.a.c=1"]);
        let mut skipped = Vec::new();
        let left = without_refused(all, &refused, &mut skipped);
        assert_eq!((left.len(), skipped.len()), (2, 2));
    }

    #[test]
    fn the_sources_read_every_setting_in_the_files_that_it_names() {
        let Some(tree) = crate::testing::tree() else {
            return;
        };
        for setting in all() {
            let word = setting.word.strip_prefix(SYSCTL);
            let name = word.unwrap_or(&setting.word);
            let name = name.split('=').next().unwrap();
            let name = name.rsplit('.').next().unwrap();
            let mut files = setting.source.iter();
            let reads = |file: &String| {
                let text = fs::read_to_string(tree.dir().join(file))
                    .unwrap_or_else(|error| panic!("{file}: {error}"));
                text.contains(name)
            };
            assert!(files.any(reads), "{} in {:?}", setting.word, setting.source);
        }
    }
}
