//! Every figure of the experiment.

use tare_lab::kit::Figure;
use tare_platform::{Mode, Platform};

use super::analysis::{overhead, pin_gain, sizes};
use super::data::Data;
use super::fit::split;
use super::instrument;

/// Every figure of the experiment; `costs` names the workloads that measure for the model alone.
pub(crate) fn figures(data: &Data, costs: &[String]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for workload in data.workloads() {
        for c in data.cells(&workload) {
            let ratio = overhead(data, &workload, c.place);
            figures.extend(ratio.map(|r| r.figure(&format!("ratio.{workload}.{}", c.place), "x")));
        }
        if let Some(split) = split(data, &workload, Platform::Vm, Mode::Vanilla) {
            figures.push(split.constant.figure(&format!("pto_pct.{workload}"), "%"));
        }
        if let Some(split) = split(data, &workload, Platform::Container, Mode::Vanilla) {
            for (size, falling) in split.falling {
                figures.push(falling.figure(&format!("pso_pct.{workload}.{size}"), "%"));
            }
        }
        for platform in Platform::ALL {
            for size in sizes(data, &workload) {
                let Some((what, gain)) = pin_gain(data, &workload, platform, size) else {
                    continue;
                };
                let name = format!("{}.{workload}.{}.{size}", what.name(), platform.name());
                figures.push(gain.figure(&name, "%"));
            }
        }
    }
    let mut applications = data.workloads();
    applications.retain(|workload| !costs.contains(workload));
    figures.extend(instrument::figures(data, &applications));
    figures
}
