//! One subject with its facts and its advice.

use serde::Serialize;
use tare_advise::{Facts, Report, Resources, Runs, rules};
use tare_pin::Host;
use tare_probe::Unavailable;

/// One subject with its advice: an element of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Advised {
    pub(super) subject: String,
    pub(super) facts: Facts,
    #[serde(flatten)]
    pub(super) report: Report,
    pub(super) unavailable: Vec<Unavailable>,
}

impl Advised {
    pub(super) fn of(
        subject: String,
        facts: Facts,
        unavailable: Vec<Unavailable>,
        runs: &Runs,
    ) -> Self {
        Self {
            report: rules::advise(&facts, runs),
            subject,
            facts,
            unavailable,
        }
    }
}

/// Facts of a host without a target.
pub(super) fn facts_of(host: &Host, name: &str) -> Facts {
    Facts {
        name: name.to_owned(),
        emulated: !tare_probe::proc::has_hardware_virtualisation(),
        kvm_opens: tare_hv::Kvm::open().is_ok(),
        resources: Resources {
            host_cpus: host.cpus.len() as u64,
            host_nodes: host.nodes() as u64,
            isolated_cpus: host.isolated().count().into(),
            ..Resources::default()
        },
        ..Facts::default()
    }
}
