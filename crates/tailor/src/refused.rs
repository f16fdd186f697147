//! What a kernel refuses an application and another does not: a program that says
//! nothing of what it lacks shows it by its system calls.

use std::collections::{BTreeMap, BTreeSet};

use tare_init::refusal::{self, Refusal};
use tare_profile::{
    Call, CloneUse, Features, FileUse, FlagsUse, IoctlUse, MountUse, OptionUse, PrctlUse, Profile,
    SocketUse, names, paths, table,
};

use crate::choose::{Choice, choose};
use crate::kconfig::Config;
use crate::mapping::Symbol;
use crate::spec::KernelSpec;

/// `SOCK_NONBLOCK` and `SOCK_CLOEXEC` (`include/linux/net.h`).
const SOCKET_FLAGS: u64 = 0o2_004_000;
/// The signal that `clone` names beside its flags (`CSIGNAL`).
const CLONE_SIGNAL: u64 = 0xff;
/// Integers of C.
const INT: u64 = u32::MAX as u64;

/// What is refused on one console and not on another.
pub(crate) fn only_here(here: &str, there: &str) -> BTreeSet<Refusal> {
    let of = |console| -> BTreeSet<Refusal> {
        let all = Refusal::all_on(console).into_iter();
        all.map(without_ids).collect()
    };
    &of(here) - &of(there)
}

/// Options that a configuration lacks and that these refusals point at, each with
/// what was refused.
pub(crate) fn suspects(
    refused: &BTreeSet<Refusal>,
    spec: &KernelSpec,
    config: &Config,
) -> BTreeMap<Symbol, String> {
    let chosen = |profile: Profile| {
        let spec = KernelSpec {
            profile,
            add: BTreeMap::new(),
            keep: BTreeSet::new(),
            ..spec.clone()
        };
        let Choice {
            mut symbols,
            optional,
            ..
        } = choose(&spec);
        symbols.extend(optional);
        symbols
    };
    // What every kernel of the order has is not for a refusal.
    let always = chosen(Profile::empty());
    let symbols = chosen(profile(refused)).into_iter();
    symbols
        .filter(|(symbol, _)| !always.contains_key(symbol) && !config.has(symbol))
        .map(|(symbol, reasons)| {
            let reasons = Vec::from_iter(reasons).join(", ");
            (symbol, format!("only this kernel refuses {reasons}"))
        })
        .collect()
}

/// Some of them as a sentence has them.
pub(crate) fn listed(refused: &BTreeSet<Refusal>) -> String {
    const MOST: usize = 4;
    let some: Vec<String> = refused.iter().take(MOST).map(sentence).collect();
    let more = match refused.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    some.join(", ") + &more
}

fn sentence(refusal: &Refusal) -> String {
    let call = table::name(refusal.call);
    let mut features = Features::default();
    add_features(refusal, &mut features);
    let Features {
        sockets,
        socket_options,
        ioctls,
        clones,
        prctls,
        flags,
        ..
    } = features;
    let what = sockets
        .into_iter()
        .map(|it| format!("{} {}", it.family, it.kind))
        .chain(socket_options.into_iter().map(|it| it.name))
        .chain(ioctls.into_iter().map(|it| it.request))
        .chain(clones.into_iter().map(|it| it.flags.join("|")))
        .chain(prctls.into_iter().map(|it| it.operation))
        .chain(flags.into_iter().map(|it| it.flags.join("|")))
        .chain(refusal.text.clone());
    let text: Vec<String> = std::iter::once(call).chain(what).collect();
    let plain = |c: char| if c.is_control() { '?' } else { c };
    let text: String = text.join(" ").chars().map(plain).collect();
    format!("{text} ({})", names::errno(refusal.error.into()))
}

/// A profile of what was refused, as if it were granted.
fn profile(refused: &BTreeSet<Refusal>) -> Profile {
    let mut profile = Profile::empty();
    for refusal in refused {
        let call = Call {
            number: refusal.call,
            count: 1,
            ..Call::default()
        };
        profile.calls.insert(table::name(refusal.call), call);
        add_features(refusal, &mut profile.features);
        let device = refusal
            .text
            .as_deref()
            .map(paths::normal)
            .filter(|path| path.starts_with("/dev/"));
        profile.devices.extend(device);
    }
    profile
}

fn add_features(refusal: &Refusal, features: &mut Features) {
    let selectors: Vec<u64> = refusal.selectors.iter().map(|it| it & INT).collect();
    match (refusal.call, selectors.as_slice()) {
        (refusal::SOCKET | refusal::SOCKETPAIR, &[family, kind, protocol]) => {
            let kind = kind & !SOCKET_FLAGS;
            features
                .sockets
                .push(SocketUse::of(family, kind, protocol, 1));
        }
        (refusal::SETSOCKOPT | refusal::GETSOCKOPT, &[level, option]) => {
            features
                .socket_options
                .push(OptionUse::of(level, option, 1));
        }
        (refusal::FCNTL, &[command]) => features.flags.push(FlagsUse::of_fcntl(command, 1)),
        (refusal::IOCTL, &[request]) => features.ioctls.push(IoctlUse::of(request, 1)),
        (refusal::CLONE | refusal::UNSHARE, &[flags]) => {
            features.clones.push(CloneUse::of(flags & !CLONE_SIGNAL, 1));
        }
        (refusal::PRCTL, &[operation]) => features.prctls.push(PrctlUse::of(operation, 1)),
        (refusal::ARCH_PRCTL, &[operation]) => {
            features.prctls.push(PrctlUse::of_arch(operation, 1));
        }
        _ => {}
    }
    match (refusal.call, &refusal.text) {
        (refusal::MOUNT | refusal::FSOPEN, Some(kind)) => features.mounts.push(MountUse {
            file_system: kind.clone(),
            count: 1,
        }),
        (_, Some(path)) => {
            let path = paths::normal(path);
            if let Some(file_system) = paths::file_system(&path) {
                features.files.push(FileUse {
                    file_system: file_system.to_owned(),
                    path: paths::in_profile(&path),
                    count: 1,
                });
            }
        }
        (_, None) => {}
    }
}

/// Process IDs differ from boot to boot.
fn without_ids(mut refusal: Refusal) -> Refusal {
    let kernels = refusal
        .text
        .as_deref()
        .map(paths::normal)
        .filter(|path| paths::file_system(path).is_some());
    if let Some(path) = kernels {
        refusal.text = Some(paths::in_profile(&path));
    }
    refusal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    fn refusal(call: &str, error: u16, selectors: &[u64], text: Option<&str>) -> Refusal {
        Refusal {
            call: table::number(call).unwrap(),
            error,
            selectors: selectors.to_owned(),
            text: text.map(str::to_owned),
        }
    }

    fn console(refusals: &[Refusal]) -> String {
        let lines: Vec<String> = refusals.iter().map(Refusal::line).collect();
        lines.join("\r\n")
    }

    fn spec() -> KernelSpec {
        KernelSpec::new(Profile::empty(), Target::Qemu)
    }

    #[test]
    fn what_is_refused_elsewhere_too_is_not_what_is_missing() {
        let preload = refusal("openat", 2, &[], Some("/etc/ld.so.preload"));
        let ptmx = refusal("openat", 2, &[], Some("/dev/ptmx"));
        let own = |pid| refusal("openat", 2, &[], Some(&format!("/proc/{pid}/x")));
        let here = console(&[preload.clone(), ptmx.clone(), own(41)]);
        let there = console(&[preload, own(73)]);
        assert_eq!(only_here(&here, &there), [ptmx].into());
    }

    #[test]
    fn a_refusal_points_at_the_option() {
        let cases = [
            (refusal("openat", 2, &[], Some("/dev/ptmx")), "UNIX98_PTYS"),
            (refusal("socket", 97, &[10, 0o2_000_001, 0], None), "IPV6"),
            (refusal("epoll_create1", 38, &[], None), "EPOLL"),
            (refusal("fcntl", 13, &[6], None), "FILE_LOCKING"),
            (refusal("mount", 19, &[], Some("xfs")), "XFS_FS"),
            (refusal("unshare", 22, &[0x4000_0000], None), "NET_NS"),
            (
                refusal("access", 2, &[], Some("/proc//pressure/cpu")),
                "PSI",
            ),
        ];
        for (refusal, symbol) in cases {
            let refused = [refusal].into();
            let found = suspects(&refused, &spec(), &Config::read(""));
            let names: Vec<&str> = found.keys().map(Symbol::name).collect();
            assert!(names.contains(&symbol), "{refused:?}: {names:?}");
            let has = Config::read(&format!("CONFIG_{symbol}=y\n"));
            let found = suspects(&refused, &spec(), &has);
            assert!(!found.keys().any(|it| it.name() == symbol), "{symbol}");
        }
    }

    #[test]
    fn what_has_no_option_points_at_none() {
        let refused = [refusal("openat", 2, &[], Some("/etc/passwd"))].into();
        assert_eq!(
            suspects(&refused, &spec(), &Config::read("")),
            BTreeMap::new()
        );
    }

    #[test]
    fn refusals_have_the_kernels_names() {
        let refused = [
            refusal("socket", 97, &[10, 1, 0], None),
            refusal("openat", 2, &[], Some("/dev/\u{1b}x")),
            refusal("ioctl", 25, &[0x5413], None),
        ];
        assert_eq!(
            listed(&refused.into()),
            "ioctl TIOCGWINSZ (ENOTTY), socket AF_INET6 SOCK_STREAM (EAFNOSUPPORT), \
             openat /dev/?x (ENOENT)"
        );
        let many = (0..9).map(|call| refusal("read", call, &[], None));
        assert!(listed(&many.collect()).ends_with("and 5 more"));
    }
}
