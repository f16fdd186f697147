//! From arguments to a kernel specification: cuts, options, directory.

use std::path::{Path, PathBuf};

use tare_profile::Profile;
use tare_tailor::cut::Cut;
use tare_tailor::mapping::Symbol;
use tare_tailor::spec::KernelSpec;
use tare_tailor::target::Part;

use super::applications::Profiled;
use super::args::{Keep, TailorArgs};

/// Most characters of the applications' names in a directory's name.
const NAME_CHARS: usize = 80;

/// The specification for the arguments.
pub(super) fn spec(profile: Profile, args: &TailorArgs) -> KernelSpec {
    let mut spec = KernelSpec::new(profile, args.target.into());
    spec.parts
        .extend(args.parts.iter().map(|part| Part::from(*part)));
    if args.check.iter().any(|check| check.port().is_some()) || args.load.is_some() {
        spec.parts.insert(Part::Network);
    }
    if args.trusting {
        spec.cuts.extend(Cut::trusting());
    }
    if spec.parts.contains(&Part::SeveralCpus) {
        spec.cuts.remove(&Cut::Smp);
    }
    spec.cuts.extend(&args.cut);
    for keep in &args.keep {
        match keep {
            Keep::Cut(cut) => {
                spec.cuts.remove(cut);
                if *cut == Cut::Smp {
                    // What the cut removes exists only with several CPUs.
                    spec.parts.insert(Part::SeveralCpus);
                }
            }
            Keep::Option(symbol) => drop(spec.keep.insert(symbol.clone())),
        }
    }
    for symbol in &args.add {
        let why = "added by the user".to_owned();
        spec.add.insert(symbol.clone(), why);
    }
    spec
}

/// Makes the kernel keep file capabilities in the guest's root, which is a tmpfs.
pub(super) fn keep_capabilities(spec: &mut KernelSpec) {
    let symbols = ["TMPFS", "TMPFS_XATTR"].into_iter().filter_map(Symbol::new);
    for symbol in symbols {
        let why = "capabilities of files in the root".to_owned();
        spec.add.entry(symbol).or_insert(why);
    }
}

/// The directory of the kernel.
pub(super) fn place(args: &TailorArgs, applications: &[Profiled]) -> PathBuf {
    let names: Vec<&str> = applications.iter().map(|it| it.name.as_str()).collect();
    let names: String = names.join("-").chars().take(NAME_CHARS).collect();
    let own = || Path::new("out").join(format!("kernel-{names}"));
    args.out.clone().unwrap_or_else(own)
}

#[cfg(test)]
mod tests {
    use super::super::args::parsed;
    use super::*;

    fn has_smp(words: &[&str]) -> bool {
        let spec = spec(Profile::empty(), &parsed(words));
        let smp = Symbol::new("SMP").unwrap();
        tare_tailor::choose::choose(&spec)
            .symbols
            .contains_key(&smp)
    }

    #[test]
    fn several_cpus_come_with_the_part_or_with_the_cut_that_is_kept() {
        assert!(!has_smp(&[]));
        assert!(has_smp(&["--with", "cpus"]));
        assert!(has_smp(&["--keep", "smp"]));
        assert!(!has_smp(&["--with", "cpus", "--cut", "smp"]));
    }
}
