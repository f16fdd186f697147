//! CPU-Pinning 2020's findings beside this machine's: agrees, disagrees, or undecided
//! here, and why.

mod costs;

use tare_platform::workload::WorkloadKind;
use tare_platform::{Limit, Mode, Place, Platform};
use tare_policy::placement::{ChrRange, Class, chr_permille};

use self::costs::{CostRatio, Judged, adjusted_text, differs};
use super::analysis::{Pinning, overhead, quota_bound, sizes};
use super::data::Data;
use super::estimate::{ALPHA, Estimate};
use super::fit::split;
use tare_lab::kit::number;
use tare_stats::adjusted_by_holm;

/// Below this many percent nothing is gained.
const NOTHING_PCT: f64 = 3.0;

/// What this machine says to a finding.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Agreement {
    Agrees(String),
    Disagrees(String),
    CannotTell(String),
}

impl Agreement {
    /// Says which machines it is about.
    fn of_appliances(self) -> Self {
        let text = |why| format!("appliances, since KVM ran no Linux guest here: {why}");
        match self {
            Self::Agrees(why) => Self::Agrees(text(why)),
            Self::Disagrees(why) => Self::Disagrees(text(why)),
            Self::CannotTell(why) => Self::CannotTell(text(why)),
        }
    }

    pub(crate) fn text(&self) -> (&'static str, &str) {
        match self {
            Self::Agrees(why) => ("agrees", why),
            Self::Disagrees(why) => ("disagrees", why),
            Self::CannotTell(why) => ("undecided here", why),
        }
    }
}

/// What each agreement rests on.
pub(crate) struct Evidence<'a> {
    pub(crate) data: &'a Data,
    /// Workloads with what they wait for.
    pub(crate) kinds: Vec<(String, WorkloadKind)>,
    /// Workloads of many processes, each with the one whose work it does.
    pub(crate) many: Vec<(String, String)>,
    /// Whether machines are translated, not executed.
    pub(crate) translated: bool,
    pub(crate) host_cpus: u32,
}

/// Findings of CPU-Pinning 2020, each with its agreement.
pub(crate) fn table(evidence: &Evidence<'_>) -> Vec<(String, Agreement)> {
    let ranges = RANGES.map(|(kind, what)| {
        let (low, high) = ends(class(kind).chr());
        format!("{low} to {high} {what}")
    });
    let fixed = [
        (
            "The overhead of a VM is constant over its size (PTO)",
            evidence.of_machines(|platform| constant(evidence, platform)),
        ),
        (
            "A vanilla container's overhead shrinks as it grows (PSO; slides 23, 25)",
            shrinking(evidence),
        ),
        (
            "Pinning a small container that computes takes its overhead away",
            container_pin(evidence),
        ),
        (
            "Pinning a VM that computes gains nothing",
            evidence.of_machines(|platform| vm_pin(evidence, platform)),
        ),
        ("Pinning work that waits for I/O gains", io_pin(evidence)),
        (
            "A container in a VM beats a container for I/O-bound work",
            nested(evidence),
        ),
        (
            "What an application does decides what a platform costs it (slide 29)",
            application(evidence),
        ),
        (
            "A container may cost more than a VM (slide 29)",
            evidence.of_machines(|platform| container_costs_more(evidence, platform)),
        ),
        (
            "Many tasks at once cost a container more than one (slide 24)",
            multitasking(evidence),
        ),
    ];
    let fixed = fixed.map(|(finding, agreement)| (finding.to_owned(), agreement));
    let right = format!("The right CHR: {}", ranges.join(", "));
    fixed.into_iter().chain([(right, chr(evidence))]).collect()
}

impl Evidence<'_> {
    fn of(&self, kind: WorkloadKind) -> impl Iterator<Item = &str> {
        let of = move |(_, k): &&(String, WorkloadKind)| *k == kind;
        self.kinds.iter().filter(of).map(|(name, _)| name.as_str())
    }

    /// Workloads that wait for input and output, much or nearly all the time.
    fn waiting(&self) -> impl Iterator<Item = &str> {
        self.of(WorkloadKind::Io)
            .chain(self.of(WorkloadKind::HeavyIo))
    }

    fn all(&self) -> impl Iterator<Item = &str> {
        self.kinds.iter().map(|(name, _)| name.as_str())
    }

    /// A place that is left to the scheduler.
    fn vanilla(&self, platform: Platform, size: u32) -> Place {
        Place::new(platform, Mode::Vanilla, size, self.host_cpus)
    }

    /// Whether a vanilla container of a size was held to it: not by a quota that stopped nothing.
    fn holds_container(&self, workload: &str, size: u32) -> bool {
        let place = self.vanilla(Platform::Container, size);
        quota_bound(self.data, workload, place) != Some(false)
    }

    /// What a vanilla container that was held to its size costs over a vanilla machine of it.
    fn container_over(
        &self,
        workload: &str,
        size: u32,
        machine: Platform,
    ) -> Option<(String, CostRatio)> {
        let sides =
            [Platform::Container, machine].map(|platform| (workload, self.vanilla(platform, size)));
        let holds = self.holds_container(workload, size);
        let cost = holds.then(|| CostRatio::of(self.data, sides))??;
        let what = format!("{workload}, {size} CPUs, container over {}", machine.name());
        Some((format!("{what}: {}", cost.ratio.text()), cost))
    }

    /// Why Linux guests cannot be judged here.
    fn no_linux_guest(&self) -> Option<Agreement> {
        let why = "machines are translated by QEMU here (no hardware KVM): what is measured is \
                   the translator";
        self.translated
            .then(|| Agreement::CannotTell(why.to_owned()))
    }

    /// What `judge` says of the machines here: those with Linux, or where these are translated or
    /// did not run the appliances, which KVM runs.
    fn of_machines(&self, judge: impl Fn(Platform) -> Agreement) -> Agreement {
        let ran = |platform| {
            let mut runs = self.data.runs.iter();
            runs.any(|run| run.cell.place.platform == platform && run.time.is_some())
        };
        if ran(Platform::Appliance) && (self.translated || !ran(Platform::Vm)) {
            return judge(Platform::Appliance).of_appliances();
        }
        self.no_linux_guest().unwrap_or_else(|| judge(Platform::Vm))
    }
}

/// The agreement of several workloads: each says whether it supports the finding, with
/// its text, or nothing where its interval holds both.
fn vote(votes: Vec<(String, Option<bool>)>) -> Agreement {
    let text: Vec<&str> = votes.iter().map(|(text, _)| text.as_str()).collect();
    let text = text.join("; ");
    let count = |wanted| {
        votes
            .iter()
            .filter(|(_, vote)| *vote == Some(wanted))
            .count()
    };
    match (count(true), count(false)) {
        (0, 0) if votes.is_empty() => {
            Agreement::CannotTell("nothing of it was measured".to_owned())
        }
        (0, 0) => Agreement::CannotTell(format!("nothing decides: {text}")),
        (for_it, against) if for_it > against => Agreement::Agrees(text),
        (for_it, against) if for_it < against => Agreement::Disagrees(text),
        _ => Agreement::CannotTell(format!("the workloads differ: {text}")),
    }
}

/// Whether a ratio is 1 by its whole interval, but for what is nothing.
fn is_nothing(ratio: &Estimate) -> bool {
    let ends = ratio.percent().interval;
    ends.is_some_and(|it| it.low > -NOTHING_PCT && it.high < NOTHING_PCT)
}

fn said(name: &str, estimate: &Estimate) -> String {
    format!("{name} {} %", estimate.text())
}

fn constant(evidence: &Evidence<'_>, machine: Platform) -> Agreement {
    let splits = evidence.all().filter_map(|workload| {
        let split = split(evidence.data, workload, machine, Mode::Vanilla)?;
        let falling = split.falling.first()?.1;
        let text = said(&format!("{workload}: constant"), &split.constant);
        Some((text, CostRatio::of_percent(falling)))
    });
    let constant = |(text, ratio, falls): Judged| {
        // A fall that was not shown may still exist.
        let is_small = is_nothing(&ratio).then_some(true);
        (text, is_small.or(falls.map(|_| false)))
    };
    let judged = costs::judged(splits.collect()).into_iter();
    vote(judged.map(constant).collect())
}

fn shrinking(evidence: &Evidence<'_>) -> Agreement {
    let splits = evidence.of(WorkloadKind::Cpu).filter_map(|workload| {
        let split = split(evidence.data, workload, Platform::Container, Mode::Vanilla)?;
        let (size, falling) = split.falling.first()?;
        let text = said(&format!("{workload}: at {size} CPU, by quota,"), falling);
        Some((text, CostRatio::of_percent(*falling)))
    });
    vote(costs::votes(splits.collect()))
}

/// Whether workloads gain by pinning, as is `claimed`, at each size.
fn gains<'a>(
    evidence: &Evidence<'_>,
    workloads: impl Iterator<Item = &'a str>,
    platform: Platform,
    claimed: bool,
) -> Agreement {
    let mut compared = Vec::new();
    let mut other = false;
    for workload in workloads {
        for size in sizes(evidence.data, workload) {
            let place = |mode| Place::new(platform, mode, size, evidence.host_cpus);
            let sides = [Mode::Vanilla, Mode::Pinned].map(|mode| (workload, place(mode)));
            let Some(cost) = CostRatio::of(evidence.data, sides) else {
                continue;
            };
            if Pinning::of(platform, size, evidence.host_cpus) != Pinning::Gain {
                other = true;
                continue;
            }
            let what = format!("{workload}, {size} CPUs: gain");
            compared.push((said(&what, &cost.ratio.percent()), cost));
        }
    }
    if compared.is_empty() && other {
        return Agreement::CannotTell(
            "at the host's size vanilla and pinned are bound alike, and below it a vanilla \
             container is held by quota, another mechanism than a set of CPUs"
                .to_owned(),
        );
    }
    let gained = |(text, ratio, gains): Judged| {
        let is_nothing = ratio.percent().is_below(NOTHING_PCT);
        let gains = gains.or(is_nothing.then_some(false));
        (text, gains.map(|gains| gains == claimed))
    };
    vote(costs::judged(compared).into_iter().map(gained).collect())
}

fn container_pin(evidence: &Evidence<'_>) -> Agreement {
    let workloads = evidence.of(WorkloadKind::Cpu);
    gains(evidence, workloads, Platform::Container, true)
}

fn vm_pin(evidence: &Evidence<'_>, machine: Platform) -> Agreement {
    let workloads = evidence.of(WorkloadKind::Cpu);
    gains(evidence, workloads, machine, false)
}

fn io_pin(evidence: &Evidence<'_>) -> Agreement {
    gains(evidence, evidence.waiting(), Platform::Container, true)
}

fn nested(evidence: &Evidence<'_>) -> Agreement {
    if let Some(why) = evidence.no_linux_guest() {
        return why;
    }
    let compared = evidence.waiting().filter_map(|workload| {
        let size = *sizes(evidence.data, workload).first()?;
        evidence.container_over(workload, size, Platform::VmContainer)
    });
    vote(costs::votes(compared.collect()))
}

/// What workloads pay for containers of one size that one limit holds: only these are compared.
struct Alike<'a> {
    size: u32,
    costs: Vec<(&'a str, Estimate)>,
}

/// Whether workloads pay differently for a container. At the host's size nothing limits a
/// container: that is a control.
fn application(evidence: &Evidence<'_>) -> Agreement {
    let mut all: Vec<u32> = evidence
        .all()
        .flat_map(|workload| sizes(evidence.data, workload))
        .collect();
    all.sort_unstable();
    all.dedup();
    let cost = |workload, place| Some((workload, overhead(evidence.data, workload, place)?));
    let alike = all.into_iter().map(|size| {
        let place = evidence.vanilla(Platform::Container, size);
        let limited = evidence.all().filter(|workload| {
            place.limit == Limit::Quota && evidence.holds_container(workload, size)
        });
        let costs = limited
            .filter_map(|workload| cost(workload, place))
            .collect();
        Alike { size, costs }
    });
    let alike: Vec<Alike<'_>> = alike.filter(|it| it.costs.len() > 1).collect();
    if alike.is_empty() {
        return Agreement::CannotTell(
            "no two workloads were held to one size below the host's by quota; at the host's size \
             nothing limits a container"
                .to_owned(),
        );
    }
    let mut votes = pays_differently(&alike);
    // One size at which two workloads pay differently is enough; none is shown by all.
    if votes.iter().any(|(_, vote)| *vote == Some(true)) {
        votes.retain(|(_, vote)| *vote == Some(true));
    } else if votes.iter().any(|(_, vote)| vote.is_none()) {
        votes.retain(|(_, vote)| vote.is_none());
    }
    vote(votes)
}

/// Of each size the two workloads that differ most clearly, and whether they do: p is adjusted
/// (Holm 1979) for all pairs of workloads of all sizes.
fn pays_differently(alike: &[Alike<'_>]) -> Vec<(String, Option<bool>)> {
    let (mut compared, mut p_values) = (Vec::new(), Vec::new());
    for Alike { size, costs } in alike {
        for (index, first) in costs.iter().enumerate() {
            for second in &costs[index + 1..] {
                if let Some(p) = differs(&first.1, &second.1) {
                    compared.push((*size, [first, second]));
                    p_values.push(p);
                }
            }
        }
    }
    let adjusted = adjusted_by_holm(&p_values);
    let of_size = |Alike { size, costs }: &Alike<'_>| {
        let here = compared
            .iter()
            .zip(&adjusted)
            .filter(|(it, _)| it.0 == *size);
        let Some(((_, [first, second]), p)) = here.min_by(|a, b| a.1.total_cmp(b.1)) else {
            let text =
                format!("no two workloads have an interval in containers of {size} CPUs by quota");
            return (text, None);
        };
        let text = format!(
            "{} {} and {} {} in containers of {size} CPUs by quota: {}",
            first.0,
            first.1.text(),
            second.0,
            second.1.text(),
            adjusted_text(*p, compared.len())
        );
        let is_nothing = costs.iter().all(|(_, cost)| is_nothing(cost));
        let differs = *p < ALPHA;
        (
            text,
            if differs {
                Some(true)
            } else {
                is_nothing.then_some(false)
            },
        )
    };
    alike.iter().map(of_size).collect()
}

/// One workload that pays more in a container than in a machine is enough.
fn container_costs_more(evidence: &Evidence<'_>, machine: Platform) -> Agreement {
    let compared = evidence.all().flat_map(|workload| {
        let sizes = sizes(evidence.data, workload).into_iter();
        sizes.filter_map(move |size| evidence.container_over(workload, size, machine))
    });
    let mut votes = costs::votes(compared.collect());
    if votes.iter().any(|(_, vote)| *vote == Some(true)) {
        votes.retain(|(_, vote)| *vote == Some(true));
    }
    vote(votes)
}

/// The same work in many processes and in one, in a vanilla container that was held to its size.
fn multitasking(evidence: &Evidence<'_>) -> Agreement {
    let compared = evidence.many.iter().flat_map(|(many, one)| {
        let sizes = sizes(evidence.data, many).into_iter();
        sizes.filter_map(move |size| {
            let place = evidence.vanilla(Platform::Container, size);
            let mut both = [many, one].into_iter();
            let hold = both.all(|workload| evidence.holds_container(workload, size));
            let sides = [(many.as_str(), place), (one.as_str(), place)];
            let cost = hold.then(|| CostRatio::of(evidence.data, sides))??;
            let text = format!(
                "{many} over {one} in a container of {size} CPUs: {}",
                cost.ratio.text()
            );
            Some((text, cost))
        })
    });
    vote(costs::votes(compared.collect()))
}

/// Whether two intervals have nothing in common.
fn apart(a: &Estimate, b: &Estimate) -> bool {
    let ends = a.interval.zip(b.interval);
    ends.is_some_and(|(a, b)| a.high < b.low || b.high < a.low)
}

/// What the workloads do for which CPU-Pinning 2020 recommends a range of CHR each.
const RANGES: [(WorkloadKind, &str); 3] = [
    (WorkloadKind::Cpu, "computing"),
    (WorkloadKind::Io, "I/O"),
    (WorkloadKind::HeavyIo, "much I/O"),
];
/// CPUs of the smallest host of which a size by a set of CPUs lies in the lowest range.
const LEAST_HOST: u32 = 16;

/// The class of the recommendation.
const fn class(kind: WorkloadKind) -> Class {
    match kind {
        WorkloadKind::Cpu => Class::CpuBound,
        WorkloadKind::Io => Class::IoBound,
        WorkloadKind::HeavyIo => Class::UltraIoBound,
    }
}

/// A range's ends, as shares.
fn ends(range: ChrRange) -> (f64, f64) {
    let share = |permille| f64::from(permille) / 1000.0;
    (share(range.low_permille), share(range.high_permille))
}

/// Each range needs a workload that decides it; without one the finding is undecided.
fn chr(evidence: &Evidence<'_>) -> Agreement {
    let cpus = evidence.host_cpus;
    if cpus < LEAST_HOST {
        let least = number(1.0 / f64::from(cpus));
        return Agreement::CannotTell(format!(
            "{cpus} CPUs allow no CHR below {least} by sets of CPUs; smaller ones only by quota, \
             another mechanism"
        ));
    }
    let (mut votes, mut untested) = (Vec::new(), Vec::new());
    for (kind, what) in RANGES {
        let of_kind = evidence.of(kind);
        let of_kind: Vec<_> = of_kind
            .filter_map(|workload| least_overhead(evidence, workload, class(kind).chr()))
            .collect();
        if of_kind.iter().all(|(_, vote)| vote.is_none()) {
            untested.push(what);
        }
        votes.extend(of_kind);
    }
    match vote(votes) {
        Agreement::Agrees(text) if !untested.is_empty() => {
            let untested = untested.join(" and ");
            Agreement::CannotTell(format!("{text}; nothing decides the range of {untested}"))
        }
        agreement => agreement,
    }
}

/// Whether a workload's least overhead in a container lies within the range; `None` of it where
/// a size on the other side may be as good.
fn least_overhead(
    evidence: &Evidence<'_>,
    workload: &str,
    range: ChrRange,
) -> Option<(String, Option<bool>)> {
    let cpus = evidence.host_cpus;
    let cost = |size| {
        let place = evidence.vanilla(Platform::Container, size);
        let cost = overhead(evidence.data, workload, place)?;
        let holds = evidence.holds_container(workload, size);
        holds.then_some((size, cost))
    };
    let sizes = sizes(evidence.data, workload).into_iter();
    let costs: Vec<(u32, Estimate)> = sizes.filter_map(cost).collect();
    let best = costs
        .iter()
        .min_by(|a, b| a.1.value.total_cmp(&b.1.value))?;
    let within = |size: u32| {
        let chr = chr_permille(u64::from(size) * 1000, u64::from(cpus));
        chr.is_some_and(|chr| range.place(chr).is_eq())
    };
    // Only sizes whose interval excludes the best one's are worse.
    let rival =
        |(size, cost): &&(u32, Estimate)| within(*size) != within(best.0) && !apart(cost, &best.1);
    let decided = costs.iter().find(rival).is_none();
    let (low, high) = ends(range);
    let text = format!(
        "{workload}: least overhead {} at CHR {} (range {low} to {high})",
        best.1.text(),
        number(f64::from(best.0) / f64::from(cpus))
    );
    Some((text, decided.then(|| within(best.0))))
}

#[cfg(test)]
mod tests;
