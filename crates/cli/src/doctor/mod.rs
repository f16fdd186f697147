//! `tare doctor`: checks this host, one line for each feature, with the remedy where something is
//! missing or limited.
//!
//! Each module checks one part and returns findings. Only `--clean` changes anything.

mod cgroups;
mod clean;
mod confinement;
mod finding;
mod kvm;
mod memory;
mod network;
mod programs;
mod tracing;
mod weighings;

use tare_control::exit::ExitCode;

use crate::args::DoctorArgs;
use crate::failure::{CommandResult, Failure};
use crate::output::{print, width};
use finding::{Finding, Status, text};

/// Checks everything and prints the findings. Fails only if the host can run no machine.
pub(crate) fn doctor(args: &DoctorArgs) -> CommandResult {
    if args.clean {
        return clean::clean();
    }
    let findings = examine();
    if args.json {
        let json = serde_json::to_string_pretty(&findings)
            .map_err(|error| Failure::new(ExitCode::Internal, error))?;
        print(&(json + "\n"))?;
    } else {
        print(&text(&findings, width()))?;
    }
    let missing = |name| {
        findings
            .iter()
            .any(|finding| finding.name == name && finding.status == Status::Missing)
    };
    Ok(if missing("kvm") && missing("qemu") {
        ExitCode::NoEngine
    } else {
        ExitCode::Success
    })
}

fn examine() -> Vec<Finding> {
    let mut findings = kvm::findings();
    findings.extend(memory::findings());
    findings.extend(network::findings());
    findings.extend(programs::findings());
    findings.extend(tracing::findings());
    findings.extend(cgroups::findings());
    findings.extend(confinement::findings());
    findings.extend(weighings::findings());
    findings
}
