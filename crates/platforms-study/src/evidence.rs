//! What the study gives its findings to judge by.

use tare_platform::Workload;
use tare_platform::workload::find;

use super::Platforms;
use super::findings::Evidence;

impl Platforms {
    pub(crate) fn evidence(&self) -> Evidence<'_> {
        let ran = self.ran();
        let applications = ran.iter().filter(|workload| workload.cost.is_none());
        let many = ran
            .iter()
            .filter_map(|workload| Some((workload.name.clone(), workload.many_of.clone()?)));
        Evidence {
            data: &self.data,
            many: many.collect(),
            kinds: applications.map(|it| (it.name.clone(), it.kind)).collect(),
            translated: self.translated(),
            host_cpus: self.cpus_of_runs(),
        }
    }

    /// Names of the workloads that measure for the model alone: what the instrument does to them
    /// says nothing of applications.
    pub(crate) fn costs(&self) -> Vec<String> {
        let ran = self.ran().into_iter();
        let costs = ran.filter(|workload| workload.cost.is_some());
        costs.map(|workload| workload.name).collect()
    }

    /// The workloads of which there are runs, where their files are still there.
    pub(crate) fn ran(&self) -> Vec<Workload> {
        let ran = self.data.workloads().into_iter();
        ran.filter_map(|name| {
            let ours = self.workloads.iter().find(|w| w.name == name).cloned();
            ours.or_else(|| find(&name).ok())
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use tare_lab::kit::{Depth, Experiment as _, value};
    use tare_platform::{Mode, Place, Platform};

    use super::Platforms;
    use crate::observe::Sched;
    use crate::plan::Arm;
    use crate::tests::run;

    /// Pairs of a workload whose two arms differ by up to `noise`, and which observing slows.
    fn add(platforms: &mut Platforms, workload: &str, noise: f64, observer: f64) {
        let place = Place::new(Platform::Bare, Mode::Vanilla, 8, 8);
        for block in 0..12_u64 {
            let wave = noise * ((block % 5) as f64 - 2.0);
            for (arm, time) in [
                (Arm::Main, 1.0 + observer),
                (Arm::Control, 1.0 + observer + wave),
                (Arm::Unobserved, 1.0),
            ] {
                let mut run = run("a", workload, place, arm, time);
                run.block = Some(block);
                run.observed.sched = Some(Sched {
                    on_cpu_ns: 1_000_000,
                    observer_ns: (observer * 1e6) as u64,
                    observer_bpf_ns: Some(0),
                    ..Sched::default()
                });
                platforms.data.runs.push(run);
            }
        }
    }

    #[test]
    fn workloads_that_measure_for_the_model_do_not_judge_the_instrument() {
        let mut platforms = Platforms::new(Depth::Quick);
        add(&mut platforms, "ffmpeg", 0.001, 0.01);
        let of = |platforms: &Platforms| {
            let figures = platforms.figures();
            let names = [
                "aa_half_width_pct",
                "observer_cost_pct",
                "observer_accounted_pct",
            ];
            names.map(|name| value(&figures, name).unwrap())
        };
        let of_applications = of(&platforms);
        for cost in ["switches", "migrations"] {
            add(&mut platforms, cost, 0.05, 0.2);
        }
        assert_eq!(of(&platforms), of_applications);
        add(&mut platforms, "redis", 0.05, 0.2);
        let with_redis = of(&platforms);
        let grew = |(with, without): (f64, f64)| with > without;
        assert!(
            with_redis.into_iter().zip(of_applications).all(grew),
            "{with_redis:?}"
        );
    }
}
