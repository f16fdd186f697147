//! The probe's findings for people, a line each (`tare doctor`).

use std::fmt;

use super::{Capabilities, KvmKind, Probe, ProbeOutcome};

impl fmt::Display for KvmKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hardware => "hardware",
            Self::Emulated => "emulated",
        })
    }
}

impl fmt::Display for ProbeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Works => f.write_str("works"),
            Self::NotOffered => f.write_str("not offered by the processor"),
            Self::Fault(vector) => write!(f, "raises exception {vector}"),
            Self::NotEmulated => f.write_str("unknown to KVM's emulator"),
            Self::Hung => f.write_str("does not come to an end"),
            Self::Lost => f.write_str("leads nowhere"),
        }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_kind(f, self)?;
        write_broken(f, self)?;
        write_shown(f, self)?;
        write_capabilities(f, &self.capabilities)?;
        let millis = self.elapsed.as_secs_f64() * 1e3;
        write!(f, "\nprobed in      {millis:.1} ms")
    }
}

fn write_kind(f: &mut fmt::Formatter<'_>, probe: &Probe) -> fmt::Result {
    write!(f, "ring 0         {}", probe.kind)?;
    let count = probe.loop_instructions;
    let each = probe.loop_time.as_nanos() / u128::from(count.max(1));
    match probe.emulated_instructions {
        Some(emulated) => write!(f, ": {emulated} of {count} instructions emulated")?,
        None => write!(f, ": judged by time, KVM does not count")?,
    }
    write!(f, ", {each} ns each")
}

fn write_broken(f: &mut fmt::Formatter<'_>, probe: &Probe) -> fmt::Result {
    let names: Vec<_> = probe.broken().map(|it| it.instruction.name).collect();
    if names.is_empty() {
        return write!(f, "\ninstructions   all {} work", probe.instructions.len());
    }
    write!(f, "\ninstructions   do not work: {}", names.join(", "))
}

fn write_shown(f: &mut fmt::Formatter<'_>, probe: &Probe) -> fmt::Result {
    let names: Vec<_> = probe.shown_regardless.iter().map(|it| it.name).collect();
    if names.is_empty() {
        return Ok(());
    }
    write!(f, "\nCPUID          shows regardless: {}", names.join(", "))
}

fn write_capabilities(f: &mut fmt::Formatter<'_>, has: &Capabilities) -> fmt::Result {
    let said = |there: bool| if there { "yes" } else { "no" };
    let exits: Vec<_> = has.disable_exits.names().collect();
    write!(f, "\nirqfd          {}", said(has.irqfd))?;
    write!(
        f,
        "\nioeventfd      any length: {}",
        said(has.ioeventfd_any_length)
    )?;
    write!(f, "\nGSI routes     {}", has.gsi_routes)?;
    write!(f, "\nhalt polling   per machine: {}", said(has.halt_poll))?;
    write!(
        f,
        "\nexits to stop  {}",
        if exits.is_empty() {
            "none".to_owned()
        } else {
            exits.join(", ")
        }
    )?;
    write!(f, "\nstatistics     by descriptor: {}", said(has.stats_fd))?;
    write!(f, "\nTSC deadline   {}", said(has.tsc_deadline))?;
    write!(f, "\nx2APIC         32-bit IDs: {}", said(has.x2apic_api))?;
    write!(f, "\nvCPUs          up to {}", has.max_vcpus)?;
    match has.tsc_khz {
        Some(khz) => write!(f, "\nTSC            {} MHz", khz / 1000),
        None => write!(f, "\nTSC            unstable on this host"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::probe;

    #[test]
    fn what_does_not_work_is_named() {
        let text = probe(Vec::new(), &["popcnt", "clac"]).to_string();
        assert!(text.contains("emulated: 402 of 402"), "{text}");
        assert!(text.contains("do not work: popcnt, clac"), "{text}");
    }

    #[test]
    fn a_whole_processor_is_said_to_be_whole() {
        assert!(probe(Vec::new(), &[]).to_string().contains("all 52 work"));
    }
}
