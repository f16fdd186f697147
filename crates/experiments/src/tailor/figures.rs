//! Measurements and the figures derived from them.

use std::collections::BTreeMap;

use tare_lab::kit::{Figure, Goal, Metric, Samples, Statistic, median, metrics, without_error};
use tare_tailor::counter::Count;
use tare_tailor::kconfig::{Config, Prompts};

use super::calls::Calls;
use super::plan::{
    self, DEBIAN, FIRECRACKER, FIRECRACKER_UNHARDENED, Pair, TAILORED, TRUSTING, UNHARDENED,
};
use super::rates::Step;
use super::sample::Line;

metrics! {
    SYSCALLS_USED: neither("syscalls_used", "1");
    OPTIONS: less("options", "1");
    OPTIONS_SETTABLE: neither("options_settable", "1");
    IMAGE_BYTES: less("image_bytes", "bytes");
    CODE_KIB: less("code_kib", "KiB");
    CALLS_ANSWERED: less("calls_answered", "1");
    CVES: less("cves", "1");
    CVE_RECORDS: neither("cve_records", "1");
    BOOT_INSNS: less("boot_insns", "insns");
    BOOT_REPS: less("boot_rep_iterations", "1");
    KERNEL_BOOT_INSNS: less("kernel_boot_insns", "insns");
    BOOT_MS: less("boot_ms", "ms");
    PEAK_INSNS: less("peak_insns", "insns");
    PEAK_FASTEST: less("peak_insns_fastest", "insns");
    PEAK_KERNEL: less("peak_kernel_insns", "insns");
    PEAK_REPS: less("peak_rep_iterations", "1");
    BROWSING_INSNS: less("browsing_insns", "insns");
    BROWSING_FASTEST: less("browsing_insns_fastest", "insns");
    BROWSING_KERNEL: less("browsing_kernel_insns", "insns");
    BROWSING_REPS: less("browsing_rep_iterations", "1");
    GUEST_RSS: less("guest_rss_kib", "KiB");
    ANSWERS_DIFFER: less("answers_differ", "1");
    RPS_MAX: more("rps_max", "1/s");
    RESPONSE: less("response_us", "us");
    CALL: less("syscall_cycles", "insns");
    REQUEST: less("request_pct", "%");
    BROWSING: less("browsing_pct", "%");
    BOOT: less("boot_pct", "%");
    KERNEL_BOOT: less("kernel_boot_pct", "%");
    OF_UNHARDENED: less("request_of_unhardened_pct", "%");
    OF_FIRECRACKER: less("request_of_firecracker_pct", "%");
    OF_FIRECRACKER_UNHARDENED: less("request_of_firecracker_unhardened_pct", "%");
    GAIN: more("gain_pct", "%");
    CALL_GAIN: more("call_gain_pct", "%");
}

/// A request 35 % below Debian's kernel and 30 % below that of Firecracker's configuration, each
/// of equal safety, and a quarter of Debian's own boot. With all trust it is held against
/// Debian's kernel with the same trust by boot parameters.
pub(super) const GOALS: &[Goal] = &[
    Goal::on_any("request_pct.tailored", 65.0),
    Goal::on_any("request_of_firecracker_pct.tailored", 70.0),
    Goal::on_any("request_of_unhardened_pct.trusting", 75.0),
    Goal::on_any("kernel_boot_pct.tailored", 25.0),
    Goal::on_any("image_bytes.tailored", 3_000_000.0),
    Goal::on_any("answers_differ.tailored", 0.0),
    Goal::on_any("answers_differ.trusting", 0.0),
];

/// What single requests of a phase are: its name, their instructions, the mean of the fastest,
/// those in the kernel, and iterations of REP.
const PHASES: [(&str, [Metric; 4]); 2] = [
    ("peak", [PEAK_INSNS, PEAK_FASTEST, PEAK_KERNEL, PEAK_REPS]),
    (
        "browsing",
        [
            BROWSING_INSNS,
            BROWSING_FASTEST,
            BROWSING_KERNEL,
            BROWSING_REPS,
        ],
    ),
];

/// What has no error: sizes, counts of options and of answers, and the kernel's own start, whose
/// instructions the translator counts one by one.
const EXACT: [Metric; 10] = [
    SYSCALLS_USED,
    OPTIONS,
    OPTIONS_SETTABLE,
    IMAGE_BYTES,
    CODE_KIB,
    CALLS_ANSWERED,
    CVES,
    CVE_RECORDS,
    KERNEL_BOOT_INSNS,
    ANSWERS_DIFFER,
];

/// The share of a boot's samples that is its ideal case: one in this many. Kernel Tailoring takes
/// the 30 fastest of any number, which of 40 requests are most of them.
const OF_FASTEST: usize = 10;
/// The ideal case has at least these.
const LEAST_FASTEST: usize = 4;
/// Answers that differ, in full, for the list of failures.
const SHOWN: usize = 3;

/// Everything measured.
#[derive(Debug, Default)]
pub(super) struct Weighed {
    samples: Samples,
    answers: BTreeMap<String, Vec<Vec<u8>>>,
    dialogs: Vec<Vec<u8>>,
    /// Rates of each kernel, for the chart.
    pub(super) steps: BTreeMap<String, Vec<Step>>,
    kernels: Vec<String>,
    /// Whether the samples are of a run that counted each iteration of a string instruction
    /// with REP as an instruction.
    pub(super) iterations_inside: bool,
}

impl Weighed {
    /// Takes a sample, measured now or read from a record.
    pub(super) fn take(&mut self, line: &Line) {
        match line {
            Line::Single { figure, value } => self.samples.add_of(METRICS, figure, *value),
            Line::Start { kernel, insns } => {
                self.samples.put(KERNEL_BOOT_INSNS, kernel, *insns as f64);
            }
            Line::Boot { of, insns, .. } => {
                self.samples.enter_round(of.round);
                self.samples
                    .put(BOOT_INSNS, &of.kernel, insns.total() as f64);
                // Where they are counted apart.
                if !self.iterations_inside {
                    self.samples
                        .put(BOOT_REPS, &of.kernel, insns.iterations as f64);
                }
            }
            Line::Requests { of, phase, insns } => {
                self.samples.enter_round(of.round);
                self.requests(&of.kernel, phase, insns);
            }
            Line::Memory { of, kib } => {
                self.samples.enter_round(of.round);
                self.samples.put(GUEST_RSS, &of.kernel, *kib as f64);
            }
            Line::Rates { kernel, steps } => self.rates(kernel, steps),
            Line::Calls { kernel, insns } => self.calls(kernel, insns),
        }
    }

    /// Whether a figure rests on boots of which the record has fewer than were planned: earlier
    /// versions recorded each kernel's first alone.
    pub(super) fn lacks_boots(&self, figure: &str, planned: usize) -> bool {
        let rests = [BOOT_INSNS, BOOT_REPS, BOOT];
        rests.iter().any(|metric| metric.is_of(figure))
            && self.samples.values(&BOOT_INSNS.of(DEBIAN)).len() < planned
    }

    /// Instructions of single requests of a phase, of one boot: they share its layout and are not
    /// independent.
    pub(super) fn requests(&mut self, kernel: &str, phase: &str, counts: &[Count]) {
        if !self.kernels.iter().any(|name| name == kernel) {
            self.kernels.push(kernel.to_owned());
        }
        let Some((_, [insns, fastest, in_kernel, iterations])) =
            PHASES.iter().find(|(name, _)| *name == phase)
        else {
            return;
        };
        let each = |of: fn(&Count) -> u64| counts.iter().map(|it| of(it) as f64).collect();
        let totals: Vec<f64> = each(|count| count.total());
        self.middle(*insns, kernel, &totals);
        self.ideal(*fastest, kernel, &totals);
        self.middle(*in_kernel, kernel, &each(|count| count.kernel));
        if !self.iterations_inside {
            self.middle(*iterations, kernel, &each(|count| count.iterations));
        }
    }

    /// One sample of a boot: its median.
    fn middle(&mut self, metric: Metric, of: &str, values: &[f64]) {
        if let Some(values) = tare_stats::summarize(values) {
            self.samples.put(metric, of, values.median);
        }
    }

    /// One sample of a boot: the mean of its fastest tenth.
    fn ideal(&mut self, metric: Metric, of: &str, values: &[f64]) {
        let sorted = tare_stats::sorted(values).unwrap_or_default();
        let count = (sorted.len() / OF_FASTEST).max(LEAST_FASTEST);
        let fastest = &sorted[..sorted.len().min(count)];
        if let Some(mean) = tare_stats::mean(fastest) {
            self.samples.put(metric, of, mean);
        }
    }

    /// Takes the answers to the fuzzed requests; how many differ from Debian's, but for its own.
    pub(super) fn answers(
        &mut self,
        kernel: &str,
        dialogs: &[Vec<u8>],
        answers: Vec<Vec<u8>>,
    ) -> Option<Line> {
        self.dialogs = dialogs.to_vec();
        self.answers.insert(kernel.to_owned(), answers);
        let differ = self.different(kernel).len() as f64;
        (kernel != DEBIAN).then(|| Line::single(ANSWERS_DIFFER, kernel, differ))
    }

    fn rates(&mut self, kernel: &str, steps: &[Step]) {
        // No rate is tried where the server speaks first.
        let Some(first) = steps.first() else { return };
        let carried = steps.iter().filter(|step| step.carried);
        let most = carried.map(|step| step.rate).fold(0.0, f64::max);
        self.samples.put(RPS_MAX, kernel, most);
        if let Some(us) = first.p50_us {
            self.samples.put(RESPONSE, kernel, us);
        }
        self.steps.insert(kernel.to_owned(), steps.to_vec());
    }

    fn calls(&mut self, kernel: &str, calls: &Calls) {
        for (call, times) in calls {
            let times: Vec<f64> = times.iter().map(|time| *time as f64).collect();
            let of = format!("{call}.{kernel}");
            self.middle(CALL, &format!("{of}.p50"), &times);
            self.ideal(CALL, &of, &times);
        }
    }

    /// Places of the answers that are others than Debian's kernel gave.
    fn different(&self, kernel: &str) -> Vec<usize> {
        let (Some(right), Some(given)) = (self.answers.get(DEBIAN), self.answers.get(kernel))
        else {
            return Vec::new();
        };
        let pairs = right.iter().zip(given).enumerate();
        pairs
            .filter(|(_, (a, b))| a != b)
            .map(|(at, _)| at)
            .collect()
    }

    /// A sentence for each of the first answers that differ.
    pub(super) fn failures(&self, right: &str) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut sentences = Vec::new();
        for (kernel, given) in &self.answers {
            for at in self.different(kernel).into_iter().take(SHOWN) {
                sentences.push(format!(
                    "{kernel} answers {:?} by {:?}, {right} by {:?}",
                    text(&self.dialogs[at]),
                    text(&given[at]),
                    text(&self.answers[right][at]),
                ));
            }
        }
        sentences
    }

    /// Medians, ideal cases, and what they are against Debian's kernel.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let mut figures = self.samples.figures();
        let is_exact = |name: &str| EXACT.iter().any(|metric| metric.is_of(name));
        without_error(&mut figures, &self.samples, is_exact);
        for figure in figures.iter_mut().filter(|it| is_of_fastest(&it.name)) {
            figure.statistic = Statistic::MeanOfFastest;
        }
        for kernel in self.kernels.iter().filter(|name| *name != DEBIAN) {
            let kernels = [kernel.as_str(), DEBIAN];
            for (of, metric) in [
                (PEAK_INSNS, REQUEST),
                (BROWSING_INSNS, BROWSING),
                (BOOT_INSNS, BOOT),
            ] {
                figures.extend(self.percent(of, metric, kernels));
            }
            let alone = exact_percent(&figures, KERNEL_BOOT_INSNS, KERNEL_BOOT, kernels);
            figures.extend(alone);
        }
        for (metric, kernels) in [
            (OF_UNHARDENED, [TRUSTING, UNHARDENED]),
            (OF_FIRECRACKER, [TAILORED, FIRECRACKER]),
            (
                OF_FIRECRACKER_UNHARDENED,
                [TRUSTING, FIRECRACKER_UNHARDENED],
            ),
        ] {
            figures.extend(self.percent(PEAK_INSNS, metric, kernels));
        }
        let of_request = |kernel: &str| PEAK_FASTEST.value(&figures, kernel);
        let mut gained = gains(of_request, |name| GAIN.of(name));
        for call in calls_of(&figures) {
            let of_call = |kernel: &str| CALL.value(&figures, &format!("{call}.{kernel}"));
            let name = |name: &str| CALL_GAIN.of(&format!("{name}.{call}"));
            gained.extend(gains(of_call, name));
        }
        figures.extend(gained);
        figures
    }

    /// A kernel's figure as a percentage of another's, in pairs of boots of one round.
    fn percent(&self, of: Metric, metric: Metric, kernels: [&str; 2]) -> Option<Figure> {
        let pairs = self.samples.pairs(of.name, kernels);
        let percents: Vec<f64> = pairs.iter().map(|(a, b)| 100.0 * a / b).collect();
        metric.paired(kernels[0], &percents)
    }
}

/// Options that are on, and those of them that a person can set.
pub(super) fn options(name: &str, config: &Config, prompts: &Prompts) -> [Line; 2] {
    let settable = prompts.count(config) as f64;
    [
        Line::single(OPTIONS, name, config.options() as f64),
        Line::single(OPTIONS_SETTABLE, name, settable),
    ]
}

/// Whether a figure is the mean of the fastest of each boot.
fn is_of_fastest(figure: &str) -> bool {
    let of_phase = PHASES.iter().any(|(_, [_, it, ..])| it.is_of(figure));
    of_phase || (CALL.is_of(figure) && !figure.ends_with(".p50"))
}

/// The same of figures that are measured once: exact, if both are.
fn exact_percent(
    figures: &[Figure],
    of: Metric,
    metric: Metric,
    [kernel, other]: [&str; 2],
) -> Option<Figure> {
    let [kernels, others] = [kernel, other].map(|kernel| of.find(figures, kernel));
    let (kernels, others) = (kernels?, others?);
    let percent = metric.median(kernel, &[100.0 * kernels.value / others.value])?;
    let are_exact = [kernels, others].map(|it| it.statistic == Statistic::Exact);
    Some(match are_exact {
        [true, true] => Figure {
            statistic: Statistic::Exact,
            ..percent
        },
        _ => percent,
    })
}

/// What cuts take off a figure of each kernel, for requests and calls by the
/// fastest samples, which differ least from run to run.
fn gains(of: impl Fn(&str) -> Option<f64>, name: impl Fn(&str) -> String) -> Vec<Figure> {
    let gain = |pair: Pair| {
        let share = 100.0 * (1.0 - of(&pair.with)? / of(&pair.without)?);
        median(&name(&pair.name), GAIN.unit, &[share])
    };
    plan::pairs().into_iter().filter_map(gain).collect()
}

/// Names of the calls that were timed one by one on the kernel without cuts.
pub(super) fn calls_of(figures: &[Figure]) -> Vec<String> {
    let names = figures.iter().filter_map(|figure| {
        let call = figure.name.strip_prefix("syscall_cycles.")?;
        call.strip_suffix(".none").map(str::to_owned)
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use tare_control::stats::Kvm;

    use super::*;
    use tare_lab::kit::value;
    use tare_lab::results::{Judgement, judge};

    fn counts(user: u64, kernel: u64) -> Vec<Count> {
        (0..40)
            .map(|more| Count {
                user,
                kernel: kernel + more,
                iterations: 7,
            })
            .collect()
    }

    fn started_alone(weighed: &mut Weighed, kernel: &str, insns: u64) {
        let kernel = kernel.to_owned();
        weighed.take(&Line::Start { kernel, insns });
    }

    fn weighed() -> Weighed {
        let mut weighed = Weighed::default();
        for (kernel, insns) in [
            (DEBIAN, 900),
            (UNHARDENED, 600),
            (FIRECRACKER, 800),
            (FIRECRACKER_UNHARDENED, 500),
            ("tailored", 400),
            ("trusting", 300),
            ("none", 800),
            ("smp.alone", 700),
            ("smp.back", 350),
        ] {
            weighed.requests(kernel, "peak", &counts(100, insns));
        }
        weighed
    }

    #[test]
    fn the_ideal_case_is_the_mean_of_the_fastest_tenth() {
        let figures = weighed().figures();
        assert_eq!(value(&figures, "peak_insns.debian"), Some(1019.5));
        // 4 of 40.
        assert_eq!(value(&figures, "peak_insns_fastest.debian"), Some(1001.5));
        for (count, right) in [(1, 0.0), (5, 1.5), (39, 1.5), (120, 5.5), (300, 14.5)] {
            let mut weighed = Weighed::default();
            let counts: Vec<_> = (0..count)
                .map(|user| Count {
                    user,
                    ..Count::default()
                })
                .collect();
            weighed.requests(DEBIAN, "peak", &counts);
            let mean = value(&weighed.figures(), "peak_insns_fastest.debian");
            assert_eq!(mean, Some(right), "{count}");
        }
    }

    /// A few slow requests in many, as of PostgreSQL, are not in it.
    #[test]
    fn the_ideal_case_is_not_above_the_median() {
        let mut weighed = Weighed::default();
        let counts: Vec<_> = (0..40)
            .map(|at| Count {
                user: if at < 25 { 100 } else { 9_000 },
                ..Count::default()
            })
            .collect();
        weighed.requests(DEBIAN, "peak", &counts);
        let figures = weighed.figures();
        let of = |name: &str| value(&figures, name).unwrap();
        assert!(of("peak_insns_fastest.debian") <= of("peak_insns.debian"));
    }

    #[test]
    fn trust_is_held_against_the_same_trust_by_boot_parameters() {
        let share = value(&weighed().figures(), "request_of_unhardened_pct.trusting").unwrap();
        assert!((share - 100.0 * 419.5 / 719.5).abs() < 1e-9, "{share}");
    }

    #[test]
    fn tailored_is_held_against_firecrackers_configuration() {
        let mut weighed = weighed();
        for (kernel, insns) in [(DEBIAN, 1_000), (TAILORED, 240)] {
            started_alone(&mut weighed, kernel, insns);
        }
        let figures = weighed.figures();
        let of = |name: &str| value(&figures, name).unwrap();
        let tailored = of("request_of_firecracker_pct.tailored");
        assert!(
            (tailored - 100.0 * 519.5 / 919.5).abs() < 1e-9,
            "{tailored}"
        );
        let trusting = of("request_of_firecracker_unhardened_pct.trusting");
        assert!(
            (trusting - 100.0 * 419.5 / 619.5).abs() < 1e-9,
            "{trusting}"
        );
        assert_eq!(of("kernel_boot_pct.tailored"), 24.0);
    }

    /// Each is measured once, and none could be judged while it counted as a sample.
    #[test]
    fn goals_of_sizes_answers_and_starts_are_judged_by_one_measurement() {
        let mut weighed = weighed();
        for (kernel, insns) in [(DEBIAN, 1_000), (TAILORED, 240)] {
            started_alone(&mut weighed, kernel, insns);
            weighed.samples.put(IMAGE_BYTES, kernel, 3_000_001.0);
        }
        let answers = [b"1".to_vec()];
        for kernel in [DEBIAN, TAILORED] {
            let differ = weighed.answers(kernel, &answers, answers.to_vec());
            differ.iter().for_each(|line| weighed.take(line));
        }
        let figures = weighed.figures();
        for (name, wanted) in [
            ("kernel_boot_pct.tailored", Judgement::Met),
            ("image_bytes.tailored", Judgement::Missed),
            ("answers_differ.tailored", Judgement::Met),
            // Requests of one boot say nothing of another boot.
            ("request_pct.tailored", Judgement::Undecided),
        ] {
            let figure = tare_lab::kit::find(&figures, name).unwrap();
            let verdict = judge(figure, GOALS, Kvm::None).unwrap().verdict;
            assert_eq!(verdict, wanted, "{figure:?}");
        }
    }

    #[test]
    fn a_cuts_gain_is_against_the_kernel_without_it() {
        let figures = weighed().figures();
        let alone = value(&figures, "gain_pct.smp").unwrap();
        assert!((alone - 100.0 * 100.0 / 901.5).abs() < 1e-9, "{alone}");
        let back = value(&figures, "gain_pct.smp.back").unwrap();
        assert!((back - 100.0 * 50.0 / 451.5).abs() < 1e-9, "{back}");
        assert_eq!(value(&figures, "gain_pct.dac"), None);
    }

    #[test]
    fn a_cut_is_worth_something_to_single_calls_too() {
        let mut weighed = weighed();
        for (kernel, insns) in [("none", 200), ("smp.alone", 150), ("trusting", 90)] {
            let calls = Calls::from([("stat".to_owned(), vec![insns; 40])]);
            weighed.calls(kernel, &calls);
        }
        let figures = weighed.figures();
        assert_eq!(value(&figures, "call_gain_pct.smp.stat"), Some(25.0));
        assert_eq!(value(&figures, "call_gain_pct.smp.back.stat"), None);
        assert_eq!(calls_of(&figures), ["stat"]);
    }

    #[test]
    fn other_answers_than_debians_are_failures() {
        let mut weighed = weighed();
        let asked = [b"a".to_vec(), b"b".to_vec()];
        weighed.answers(DEBIAN, &asked, vec![b"1".to_vec(), b"2".to_vec()]);
        let differ = weighed.answers("tailored", &asked, vec![b"1".to_vec(), b"3".to_vec()]);
        weighed.take(&differ.unwrap());
        assert_eq!(
            value(&weighed.figures(), "answers_differ.tailored"),
            Some(1.0)
        );
        let failures = weighed.failures(DEBIAN);
        assert_eq!(
            failures,
            ["tailored answers \"b\" by \"3\", debian by \"2\""]
        );
    }
}
