//! Halt polling: KVM polls for the wake-up for a while before it schedules a halted
//! vCPU out (`Documentation/virt/kvm/halt-polling.rst`).

use super::explained::finding;
use crate::finding::{Basis, Breakdown, Cause, Finding};
use crate::load::Load;
use crate::text::percent;

pub(super) fn findings(load: &Load) -> Option<Finding> {
    let won = load.sum(|vcpu| vcpu.polling.won);
    let lost = load.sum(|vcpu| vcpu.polling.lost);
    let won_hz = load.sum(|vcpu| vcpu.polling.won_hz);
    let lost_hz = load.sum(|vcpu| vcpu.polling.lost_hz);
    if won_hz + lost_hz <= 0.0 {
        return None;
    }
    let all = load.all_polls_rate();
    let (lost_ends, won_ends) = (all.along(lost), all.along(won));
    let loses = match lost_ends.zip(won_ends) {
        Some(([lost_low, _], [_, won_high])) => lost_low > won_high,
        None => false,
    };
    let cause = if loses {
        Cause::PollingLoses
    } else {
        Cause::Polling
    };
    let what = format!(
        "halt polling (halt_poll_ns): {} polls failed, {} succeeded",
        load.poll_rate(lost_hz),
        load.poll_rate(won_hz).brief()
    );
    let parts = Breakdown {
        polling: won + lost,
        ..Breakdown::default()
    };
    let mut found = finding(load, cause, Basis::Measured, what, parts);
    found.share_interval = all.along(won + lost);
    found.evidence.push(format!(
        "failed polls took {} of a core, successful ones {}",
        percent(lost),
        percent(won)
    ));
    if lost > won && !loses {
        found
            .evidence
            .push("too few were counted to say which of both take longer".to_owned());
    }
    if let Some(us) = load.vcpus.iter().filter_map(|v| v.halt_median_us).max() {
        found
            .evidence
            .push(format!("half of the halts last {us} us or longer"));
    }
    Some(found)
}
