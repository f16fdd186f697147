//! From words to an order: cuts, options, place.

use std::path::{Path, PathBuf};

use tare_profile::{Profile, Way};
use tare_tailor::check::Check;
use tare_tailor::choose::Part;
use tare_tailor::cut::Cut;
use tare_tailor::kernel::Order;

use super::args::{Keep, TailorArgs};

/// The order that the words mean.
pub(super) fn order(profile: Profile, args: &TailorArgs) -> Order {
    let mut order = Order::new(profile, args.target.into());
    order
        .parts
        .extend(args.parts.iter().map(|part| Part::from(*part)));
    if args.check.as_ref().and_then(Check::port).is_some() {
        order.parts.insert(Part::Network);
    }
    if args.trusting {
        order.cuts.extend(Cut::trusting());
    }
    if order.parts.contains(&Part::SeveralCpus) {
        order.cuts.remove(&Cut::Smp);
    }
    order.cuts.extend(&args.cut);
    for keep in &args.keep {
        match keep {
            Keep::Cut(cut) => {
                order.cuts.remove(cut);
                if *cut == Cut::Smp {
                    // What the cut would take is there for several CPUs only.
                    order.parts.insert(Part::SeveralCpus);
                }
            }
            Keep::Option(symbol) => drop(order.keep.insert(symbol.clone())),
        }
    }
    for symbol in &args.add {
        let why = "added by the user".to_owned();
        order.add.insert(symbol.clone(), why);
    }
    order
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
        let order = parsed.map(|args| order(Profile::empty(), &args));
        let smp = Symbol::new("SMP");
        order.is_ok_and(|order| smp.is_some_and(|smp| order.choice().symbols.contains_key(&smp)))
    }

    #[test]
    fn several_cpus_come_with_the_part_or_with_the_cut_that_is_kept() {
        assert!(!has_smp(&[]));
        assert!(has_smp(&["--with", "cpus"]));
        assert!(has_smp(&["--keep", "smp"]));
        assert!(!has_smp(&["--with", "cpus", "--cut", "smp"]));
    }
}
