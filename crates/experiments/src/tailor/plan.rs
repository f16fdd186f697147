//! Which kernels are measured, and how often.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;
use tare_lab::kit::{Depth, Turn, rounds};
use tare_tailor::cut::Cut;

/// One kernel of a weighing.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Arm {
    /// Its name in figures.
    pub(super) name: String,
    /// What its kernel is made of.
    pub(super) kernel: MadeOf,
    /// Parameters that it is booted with, besides those of every guest.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) parameters: &'static str,
}

/// What a kernel is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MadeOf {
    /// Debian's package, as it is.
    Debian,
    /// Firecracker's configuration on the sources of the tailored ones.
    Firecracker,
    /// What the application needs, with these cuts.
    Cuts(BTreeSet<Cut>),
}

impl MadeOf {
    /// Its cuts; a kernel that is not tailored has none to name.
    pub(super) fn cuts(&self) -> Option<&BTreeSet<Cut>> {
        match self {
            Self::Cuts(cuts) => Some(cuts),
            Self::Debian | Self::Firecracker => None,
        }
    }
}

/// The plan of one run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Plan {
    /// Name of the depth.
    pub(super) depth: &'static str,
    /// The application.
    pub(super) app: String,
    /// Kernels that are measured completely.
    pub(super) arms: Vec<Arm>,
    /// Kernels with one cut more or fewer: only instructions are counted.
    pub(super) single: Vec<Arm>,
    /// Boots of each of the first kernels, in which requests are counted.
    pub(super) boots: usize,
    /// Fuzzed connections.
    pub(super) dialogs: usize,
    /// Requests, or visits, of each boot that are counted one by one.
    pub(super) requests: usize,
    /// Rates to try, rising, until one is not carried.
    pub(super) rates: Vec<f64>,
    /// Length of one rate's load.
    pub(super) load_ms: u64,
    /// System calls of each kind.
    pub(super) calls: usize,
}

/// Name of the kernel that others are compared with.
pub(super) const DEBIAN: &str = "debian";
/// Debian's again, with the safety that [`TRUSTING`] gives up given up by boot parameters,
/// so that the gain of a build and the gain of parameters are separate.
pub(super) const UNHARDENED: &str = "debian-unhardened";
/// Those parameters (Documentation/admin-guide/kernel-parameters.txt).
const NO_HARDENING: &str = "mitigations=off init_on_alloc=0 randomize_kstack_offset=off \
    hardened_usercopy=off nokaslr lsm=capability apparmor=0 audit=0";
/// Of Firecracker's own configuration.
pub(super) const FIRECRACKER: &str = "firecracker";
/// The same, with the safety given up by boot parameters.
pub(super) const FIRECRACKER_UNHARDENED: &str = "firecracker-unhardened";
/// What [`NO_HARDENING`] is for a kernel with SELinux.
const NO_HARDENING_SELINUX: &str = "mitigations=off init_on_alloc=0 \
    randomize_kstack_offset=off hardened_usercopy=off nokaslr selinux=0 audit=0";
/// With the default cuts.
pub(super) const TAILORED: &str = "tailored";
/// The same, compiled by clang and optimized over all files.
pub(super) const TAILORED_LTO: &str = "tailored-lto";
/// The same as [`TAILORED`], optimized by what the application executes.
pub(super) const TAILORED_PGO: &str = "tailored-pgo";
/// With all cuts that give up safety besides.
pub(super) const TRUSTING: &str = "trusting";
/// Without any cut.
const NONE: &str = "none";

/// Requests, or visits, of a boot; the fastest tenth counts as the ideal case.
const REQUESTS: usize = 120;

impl Plan {
    /// The plan for a depth.
    pub(super) fn new(depth: Depth, app: Option<String>) -> Self {
        let plan = Self {
            depth: depth.name(),
            app: app.unwrap_or_else(|| "lighttpd".to_owned()),
            arms: arms(),
            single: Vec::new(),
            boots: 6,
            dialogs: 200,
            requests: REQUESTS,
            rates: rising(),
            load_ms: 1500,
            calls: 2000,
        };
        match depth {
            Depth::Standard => plan,
            Depth::Quick => Self {
                boots: 1,
                dialogs: 60,
                requests: 40,
                load_ms: 700,
                calls: 500,
                ..plan
            },
            Depth::Full => Self {
                single: single(&Cut::ALL),
                boots: 10,
                dialogs: 500,
                requests: 300,
                load_ms: 5000,
                ..plan
            },
        }
    }

    /// Counts each of these cuts alone and taken back, or of all cuts for none, by
    /// as many requests as the standard depth takes.
    pub(super) fn take_singly(&mut self, cuts: &[Cut]) {
        self.single = if cuts.is_empty() {
            single(&Cut::ALL)
        } else {
            single(cuts)
        };
        self.requests = self.requests.max(REQUESTS);
    }

    /// Leaves the kernels of Firecracker's configuration out.
    pub(super) fn without_firecracker(&mut self) {
        self.arms.retain(|arm| arm.kernel != MadeOf::Firecracker);
    }

    /// Leaves the kernel that clang compiles out.
    pub(super) fn without_lto(&mut self) {
        self.arms.retain(|arm| arm.name != TAILORED_LTO);
    }

    /// How long it takes where every kernel is made already.
    pub(super) fn planned(&self) -> Duration {
        let boots = (self.arms.len() * self.boots.max(1) + self.single.len()) as u64;
        let load = self.rates.len() as u64 * self.load_ms * self.arms.len() as u64;
        Duration::from_secs(8 * boots)
            + Duration::from_millis(80 * self.requests as u64 * boots + load)
    }
}

/// Boots after each kernel's first, which comes when it is made: rounds in rotated order.
pub(super) fn later_boots(boots: usize, kernels: usize) -> Vec<Turn> {
    rounds(boots, &[kernels], 1, |_, kernel, round| {
        (round > 0).then(|| Turn::new(kernel, "", Duration::ZERO))
    })
}

/// From 50 requests a second, two steps for each doubling, further than a
/// translated guest can follow.
fn rising() -> Vec<f64> {
    let rate = |step: i32| (50.0 * 2f64.powf(f64::from(step) / 2.0)).round();
    (0..20).map(rate).collect()
}

fn arms() -> Vec<Arm> {
    let tailored = MadeOf::Cuts(Cut::by_default());
    let and = |cut| MadeOf::Cuts(&Cut::by_default() | &BTreeSet::from([cut]));
    let trusting = MadeOf::Cuts(Cut::all_trusting());
    [
        (DEBIAN, MadeOf::Debian, ""),
        (UNHARDENED, MadeOf::Debian, NO_HARDENING),
        (FIRECRACKER, MadeOf::Firecracker, ""),
        (
            FIRECRACKER_UNHARDENED,
            MadeOf::Firecracker,
            NO_HARDENING_SELINUX,
        ),
        (TAILORED, tailored, ""),
        (TAILORED_LTO, and(Cut::ThinLto), ""),
        (TAILORED_PGO, and(Cut::Pgo), ""),
        (TRUSTING, trusting, ""),
    ]
    .map(|(name, kernel, parameters)| Arm {
        name: name.to_owned(),
        kernel,
        parameters,
    })
    .into()
}

/// Each cut taken alone, on a kernel without any, and then each one taken back from
/// the kernel with all; the compiler's flags only alone. In either family what
/// compiles few files again comes first and what compiles all of them last.
fn single(cuts: &[Cut]) -> Vec<Arm> {
    let all = Cut::all_trusting();
    let mut cuts: Vec<Cut> = cuts
        .iter()
        .copied()
        .filter(|it| is_in_the_kernel(*it))
        .collect();
    cuts.sort_by_key(|cut| (reach(*cut), *cut));
    cuts.dedup();
    let arm = |name, cuts| Arm {
        name,
        kernel: MadeOf::Cuts(cuts),
        parameters: "",
    };
    let alones = cuts
        .iter()
        .map(|cut| arm(alone(*cut), BTreeSet::from([*cut])));
    let backs = cuts.iter().filter(|cut| all.contains(cut)).map(|cut| {
        let others = all.iter().copied().filter(|it| it != cut);
        arm(back(*cut), others.collect())
    });
    let none = arm(NONE.to_owned(), BTreeSet::new());
    std::iter::once(none).chain(alones).chain(backs).collect()
}

/// The cuts of the kernel that a single cut's is held against; `None` for that
/// kernel itself.
pub(super) fn beside(arm: &Arm) -> Option<BTreeSet<Cut>> {
    match arm.kernel.cuts()?.len() {
        0 => None,
        1 => Some(BTreeSet::new()),
        _ => Some(Cut::all_trusting()),
    }
}

/// Two kernels whose difference is what cuts are worth.
pub(super) struct Pair {
    /// The name of the gain in figures.
    pub(super) name: String,
    /// The kernel with the cuts.
    pub(super) with: String,
    /// The kernel that it is held against.
    pub(super) without: String,
}

const fn change(about: &'static str, from: &'static str, to: &'static str) -> Change {
    Change { about, from, to }
}

/// Changes between the kernels that are measured completely: what gives which gain.
pub(super) const CHANGES: [Change; 9] = [
    change(
        "hardening off by boot parameters, Debian's kernel",
        DEBIAN,
        UNHARDENED,
    ),
    change(
        "the same, kernel of Firecracker's configuration",
        FIRECRACKER,
        FIRECRACKER_UNHARDENED,
    ),
    change(
        "Firecracker's configuration for Debian's",
        DEBIAN,
        FIRECRACKER,
    ),
    change("tailored, for Debian's", DEBIAN, TAILORED),
    change(
        "clang and ThinLTO, for gcc: tailored",
        TAILORED,
        TAILORED_LTO,
    ),
    change(
        "optimized by what is executed: tailored",
        TAILORED,
        TAILORED_PGO,
    ),
    change(
        "tailored, for Firecracker's configuration",
        FIRECRACKER,
        TAILORED,
    ),
    change(
        "trusting, for Debian's without its hardening",
        UNHARDENED,
        TRUSTING,
    ),
    change(
        "trusting, for Firecracker's without its hardening",
        FIRECRACKER_UNHARDENED,
        TRUSTING,
    ),
];

/// One change: a kernel instead of another.
pub(super) struct Change {
    /// What changes, for the report.
    pub(super) about: &'static str,
    /// The kernel before.
    pub(super) from: &'static str,
    /// The kernel after.
    pub(super) to: &'static str,
}

/// What gains are read from: all cuts against Debian's kernel, each cut alone, and
/// each one where it is the last to be taken.
pub(super) fn pairs() -> Vec<Pair> {
    let pair = |name: String, with: &str, without: &str| Pair {
        name,
        with: with.to_owned(),
        without: without.to_owned(),
    };
    let whole = [TAILORED, TRUSTING].map(|kernel| pair(kernel.to_owned(), kernel, DEBIAN));
    let single = Cut::ALL.into_iter().flat_map(|cut| {
        [
            pair(cut.name().to_owned(), &alone(cut), NONE),
            pair(back(cut), TRUSTING, &back(cut)),
        ]
    });
    whole.into_iter().chain(single).collect()
}

/// How much is compiled again for a cut: some files, most of them, all.
const fn reach(cut: Cut) -> u8 {
    match cut {
        Cut::ReadOnlyNoexec | Cut::LookupPermission | Cut::InodePermission => 0,
        Cut::Audit | Cut::Lsm => 1,
        Cut::Smp | Cut::Native | Cut::O3 | Cut::ThinLto | Cut::Pgo => 3,
        _ => 2,
    }
}

/// The arm of a cut alone.
pub(super) fn alone(cut: Cut) -> String {
    format!("{}.alone", cut.name())
}

/// The arm without that cut only.
pub(super) fn back(cut: Cut) -> String {
    format!("{}.back", cut.name())
}

/// Cuts of the root file system, and of what a guest with one CPU and no disk
/// has not, change nothing that is counted here.
pub(super) fn is_in_the_kernel(cut: Cut) -> bool {
    !matches!(cut, Cut::Packages | Cut::IoScheduler)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_full_weighing_takes_each_cut_alone_and_back() {
        assert!(Plan::new(Depth::Standard, None).single.is_empty());
        let full = Plan::new(Depth::Full, None);
        let names: Vec<&str> = full.single.iter().map(|arm| arm.name.as_str()).collect();
        for name in [
            "none",
            "dac.alone",
            "dac.back",
            "smp.alone",
            "smp.back",
            "o3.alone",
        ] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
        assert!(!names.contains(&"o3.back"));
    }

    #[test]
    fn later_boots_are_of_every_kernel_in_each_round_and_rotate() {
        let turns = later_boots(3, 3).into_iter();
        let order: Vec<(usize, usize)> = turns.map(|it| (it.round, it.index)).collect();
        assert_eq!(order, [(1, 1), (1, 2), (1, 0), (2, 2), (2, 0), (2, 1)]);
        assert!(later_boots(1, 3).is_empty());
    }

    #[test]
    fn kernels_that_share_objects_follow_each_other() {
        let names: Vec<String> = single(&[Cut::Smp, Cut::O3, Cut::Packages, Cut::Audit, Cut::Smp])
            .into_iter()
            .map(|arm| arm.name)
            .collect();
        let right = [
            "none",
            "audit.alone",
            "smp.alone",
            "o3.alone",
            "audit.back",
            "smp.back",
        ];
        assert_eq!(names, right);
    }

    #[test]
    fn each_single_cut_is_held_against_none_or_all() {
        for arm in single(&Cut::ALL) {
            let beside = beside(&arm).map(|it| it.len());
            let right = match arm.name.rsplit_once('.') {
                Some((_, "alone")) => Some(0),
                Some(_) => Some(14),
                None => None,
            };
            assert_eq!(beside, right, "{}", arm.name);
        }
    }

    #[test]
    fn cuts_are_counted_at_any_depth() {
        let mut quick = Plan::new(Depth::Quick, None);
        quick.take_singly(&[]);
        assert_eq!(
            quick.single.len(),
            Plan::new(Depth::Full, None).single.len()
        );
        assert_eq!(quick.requests, Plan::new(Depth::Standard, None).requests);
        assert_eq!(quick.boots, 1);
    }

    #[test]
    fn both_general_kernels_stand_with_and_without_their_hardening() {
        let mut plan = Plan::new(Depth::Standard, None);
        let names = |plan: &Plan| {
            let arms = plan.arms.iter();
            arms.map(|arm| arm.name.clone()).collect::<Vec<_>>()
        };
        let right = [
            DEBIAN,
            UNHARDENED,
            FIRECRACKER,
            FIRECRACKER_UNHARDENED,
            TAILORED,
            TAILORED_LTO,
            TAILORED_PGO,
            TRUSTING,
        ];
        assert_eq!(names(&plan), right);
        for arm in &plan.arms {
            let parameters: Vec<&str> = arm.parameters.split(' ').collect();
            let gives_up = arm.name.ends_with("-unhardened");
            for word in ["mitigations=off", "init_on_alloc=0", "nokaslr"] {
                assert_eq!(parameters.contains(&word), gives_up, "{}: {word}", arm.name);
            }
        }
        plan.without_firecracker();
        plan.without_lto();
        assert_eq!(
            names(&plan),
            [DEBIAN, UNHARDENED, TAILORED, TAILORED_PGO, TRUSTING]
        );
    }

    #[test]
    fn tailored_gives_up_no_safety_and_trusting_all() {
        let plan = Plan::new(Depth::Quick, None);
        let cuts = |name: &str| {
            let arm = plan.arms.iter().find(|arm| arm.name == name);
            let cuts = arm.and_then(|arm| arm.kernel.cuts().cloned());
            cuts.unwrap_or_default()
        };
        assert!(cuts(TAILORED).iter().all(|cut| cut.gives_up().is_none()));
        assert!(cuts(TRUSTING).contains(&Cut::Mitigations));
        assert!(cuts(DEBIAN).is_empty());
    }
}
