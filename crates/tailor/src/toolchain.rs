//! The compilers that build a kernel: gcc, or clang where a cut needs it.

use std::collections::BTreeSet;
use std::iter;
use std::path::Path;
use std::process::Command;

use tare_host::program::find_program;

use crate::cut::Cut;

/// The first version of LLVM that is taken. Earlier ones build kernels without return thunks, which
/// guard against Retbleed (`CC_HAS_RETURN_THUNK`, arch/x86/Kconfig).
const FIRST: u32 = 15;
/// The last version whose names are looked for.
const LAST: u32 = 30;
/// The distribution's Python.
const PYTHON: &str = "/usr/bin/python3";
/// What `LLVM=` has `make` execute (Documentation/kbuild/llvm.rst).
const LLVM: [&str; 8] = [
    "clang",
    "ld.lld",
    "llvm-ar",
    "llvm-nm",
    "llvm-objcopy",
    "llvm-objdump",
    "llvm-readelf",
    "llvm-strip",
];

/// What compiles and links a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Toolchain {
    /// gcc and binutils.
    Gnu,
    /// clang and lld, with what follows their names: nothing, or a version (`-19`).
    Llvm(String),
}

/// No LLVM for a cut that needs it.
#[derive(Debug, thiserror::Error)]
#[error(
    "the cut thin-lto needs clang, lld and llvm of one version from {FIRST} on: install them \
     (Debian 12: clang-19 lld-19 llvm-19)"
)]
pub struct NoLlvm;

impl Toolchain {
    /// What a kernel with these cuts needs.
    pub fn of(cuts: &BTreeSet<Cut>) -> Result<Self, NoLlvm> {
        if !cuts.contains(&Cut::ThinLto) {
            return Ok(Self::Gnu);
        }
        let versioned = (FIRST..=LAST).rev().map(|version| format!("-{version}"));
        let mut suffixes = iter::once(String::new()).chain(versioned);
        suffixes
            .find(|suffix| is_whole(suffix))
            .map(Self::Llvm)
            .ok_or(NoLlvm)
    }

    /// What it adds to the words after `make`.
    pub(crate) fn words(&self) -> Vec<String> {
        let llvm = match self {
            Self::Gnu => return Vec::new(),
            Self::Llvm(suffix) if suffix.is_empty() => "LLVM=1".to_owned(),
            Self::Llvm(suffix) => format!("LLVM={suffix}"),
        };
        // A script orders the initcalls. One of a version manager's does not start in a jail.
        let python = Path::new(PYTHON)
            .exists()
            .then(|| format!("PYTHON3={PYTHON}"));
        [llvm].into_iter().chain(python).collect()
    }

    /// First lines of the versions of what makes an image.
    pub fn versions(&self) -> Vec<String> {
        let programs = match self {
            Self::Gnu => ["gcc", "ld"].map(str::to_owned),
            Self::Llvm(suffix) => ["clang", "ld.lld"].map(|name| format!("{name}{suffix}")),
        };
        let line = |program: &String| format!("{program}: {}", version(program));
        programs.each_ref().map(line).to_vec()
    }
}

/// Whether all programs of LLVM are there by their names with `suffix`, of a version that is taken.
fn is_whole(suffix: &str) -> bool {
    let mut programs = LLVM.iter().map(|name| format!("{name}{suffix}"));
    programs.all(|program| find_program(&program).is_ok())
        && number(&version(&format!("clang{suffix}"))).is_some_and(|number| number >= FIRST)
}

/// The first number of a version, as in `Debian clang version 14.0.6`.
fn number(line: &str) -> Option<u32> {
    let (_, rest) = line.split_once("version ")?;
    rest.split('.').next()?.trim().parse().ok()
}

fn version(program: &str) -> String {
    let output = Command::new(program)
        .arg("--version")
        .env("LC_ALL", "C")
        .output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines()
        .next()
        .unwrap_or("of unknown version")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_link_time_optimization_takes_llvm() {
        assert_eq!(Toolchain::of(&Cut::all_trusting()).unwrap(), Toolchain::Gnu);
        match Toolchain::of(&BTreeSet::from([Cut::ThinLto])) {
            Ok(found) => assert!(found.words()[0].starts_with("LLVM="), "{found:?}"),
            Err(error) => assert!(error.to_string().contains("from 15 on: install"), "{error}"),
        }
    }

    #[test]
    fn make_is_given_the_version_that_was_found() {
        assert!(Toolchain::Gnu.words().is_empty());
        let word = |suffix: &str| Toolchain::Llvm(suffix.to_owned()).words()[0].clone();
        assert_eq!([word(""), word("-19")], ["LLVM=1", "LLVM=-19"]);
    }

    #[test]
    fn a_version_is_read_from_what_clang_prints() {
        for (line, right) in [
            ("Debian clang version 14.0.6", Some(14)),
            ("clang version 19.1.7 (3~deb12u1)", Some(19)),
            ("Ubuntu clang version 18", Some(18)),
            ("of unknown version", None),
            ("gcc (Debian 12.2.0-14) 12.2.0", None),
        ] {
            assert_eq!(number(line), right, "{line}");
        }
    }
}
