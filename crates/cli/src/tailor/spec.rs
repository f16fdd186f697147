//! From arguments to a kernel specification: cuts, options, directory.

use std::path::{Path, PathBuf};

use tare_profile::{Profile, Way};
use tare_tailor::check::Check;
use tare_tailor::cut::Cut;
use tare_tailor::spec::KernelSpec;
use tare_tailor::target::Part;

use super::args::{Keep, TailorArgs};

/// The specification that the arguments ask for.
pub(super) fn spec(profile: Profile, args: &TailorArgs) -> KernelSpec {
    let mut spec = KernelSpec::new(profile, args.target.into());
    spec.parts
        .extend(args.parts.iter().map(|part| Part::from(*part)));
    if args.check.as_ref().and_then(Check::port).is_some() {
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
                    // What the cut would take is there for several CPUs only.
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

/// Where the kernel is made.
pub(super) fn place(args: &TailorArgs, profile: &Profile) -> PathBuf {
    args.out
        .clone()
        .unwrap_or_else(|| Path::new("out").join(format!("kernel-{}", name(profile))))
}

/// The application's name: of its command, else of its profile's first task.
fn name(profile: &Profile) -> String {
    let command = profile
        .phases
        .iter()
        .find_map(|phase| match &phase.taken.way {
            Way::Command(words) => words.first().map(String::as_str),
            _ => None,
        });
    let task = || profile.tasks.first().map(|task| task.name.as_str());
    let name = command.or_else(task).unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or_default();
    let plain = |c: &char| c.is_ascii_alphanumeric() || "-_".contains(*c);
    match name.chars().filter(plain).take(40).collect::<String>() {
        name if name.is_empty() => "application".to_owned(),
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tare_tailor::mapping::Symbol;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        args: TailorArgs,
    }

    fn has_smp(words: &[&str]) -> bool {
        let all = [&["tailor", "p.json"], words].concat();
        let parsed = Words::try_parse_from(all).map(|words| words.args);
        let spec = parsed.map(|args| spec(Profile::empty(), &args));
        let smp = Symbol::new("SMP");
        spec.is_ok_and(|spec| {
            smp.is_some_and(|smp| {
                tare_tailor::choose::choose(&spec)
                    .symbols
                    .contains_key(&smp)
            })
        })
    }

    #[test]
    fn several_cpus_come_with_the_part_or_with_the_cut_that_is_kept() {
        assert!(!has_smp(&[]));
        assert!(has_smp(&["--with", "cpus"]));
        assert!(has_smp(&["--keep", "smp"]));
        assert!(!has_smp(&["--with", "cpus", "--cut", "smp"]));
    }
}
