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
