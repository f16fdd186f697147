//! Halt polling: KVM looks for the wake-up for a while before it schedules a
//! halted vCPU out (`Documentation/virt/kvm/halt-polling.rst`).

use super::finding;
use crate::finding::{Basis, Cause, Finding};
use crate::load::Load;
use crate::words::{percent, rate};

pub(super) fn findings(load: &Load) -> Option<Finding> {
    let won = load.sum(|vcpu| vcpu.polling.won);
    let lost = load.sum(|vcpu| vcpu.polling.lost);
    let won_hz = load.sum(|vcpu| vcpu.polling.won_hz);
    let lost_hz = load.sum(|vcpu| vcpu.polling.lost_hz);
    let (cause, what) = match lost > won {
        true => (
            Cause::PollingLoses,
            format!("halt polling that loses, {} polls in vain", rate(lost_hz)),
        ),
        false => (
            Cause::Polling,
            format!("halt polling, {} wake-ups seen", rate(won_hz)),
        ),
    };
    if won_hz + lost_hz <= 0.0 {
        return None;
    }
    let mut found = finding(load, cause, won + lost, Basis::Measured, what);
    found.evidence.push(format!(
        "{} polls gave up ({}), {} saw the wake-up ({})",
        rate(lost_hz),
        percent(lost),
        rate(won_hz),
        percent(won)
    ));
    if let Some(us) = load.vcpus.iter().filter_map(|v| v.halt_median_us).max() {
        found
            .evidence
            .push(format!("half of the halts last {us} us or longer"));
    }
    Some(found)
}
