//! A [`Probe`] as a document: the monitor takes over `tare`'s result instead of creating a
//! temporary machine again.

use std::time::Duration;

use kvm_bindings::kvm_cpuid_entry2;
use serde::{Deserialize, Serialize};

use super::instructions::INSTRUCTIONS;
use super::{Capabilities, Feature, InstructionResult, KvmKind, Probe, ProbeOutcome};

/// The document. Instructions and features have names.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedProbe {
    kind: KvmKind,
    emulated_instructions: Option<u64>,
    loop_instructions: u64,
    loop_time: Duration,
    instructions: Vec<(String, ProbeOutcome)>,
    shown_regardless: Vec<String>,
    capabilities: Capabilities,
    elapsed: Duration,
    /// Function, index, flags, EAX, EBX, ECX, EDX.
    supported: Vec<[u32; 7]>,
}

/// The document is of another version of Tare.
#[derive(Debug, thiserror::Error)]
#[error("the probe result is of another version: {0:?} is unknown")]
pub(super) struct UnknownName(String);

impl From<Probe> for SavedProbe {
    fn from(probe: Probe) -> Self {
        let results = probe.instructions.iter();
        let features = probe.shown_regardless.iter();
        let leaves = probe.supported.iter();
        Self {
            kind: probe.kind,
            emulated_instructions: probe.emulated_instructions,
            loop_instructions: probe.loop_instructions,
            loop_time: probe.loop_time,
            instructions: results
                .map(|it| (it.instruction.name.to_owned(), it.outcome))
                .collect(),
            shown_regardless: features.map(|it| it.name.to_owned()).collect(),
            supported: leaves
                .map(|it| {
                    [
                        it.function,
                        it.index,
                        it.flags,
                        it.eax,
                        it.ebx,
                        it.ecx,
                        it.edx,
                    ]
                })
                .collect(),
            capabilities: probe.capabilities,
            elapsed: probe.elapsed,
        }
    }
}

impl TryFrom<SavedProbe> for Probe {
    type Error = UnknownName;

    fn try_from(saved: SavedProbe) -> Result<Self, UnknownName> {
        let instructions = saved.instructions.into_iter().map(result);
        let features = saved.shown_regardless.into_iter().map(feature);
        Ok(Self {
            kind: saved.kind,
            emulated_instructions: saved.emulated_instructions,
            loop_instructions: saved.loop_instructions,
            loop_time: saved.loop_time,
            instructions: instructions.collect::<Result<_, _>>()?,
            shown_regardless: features.collect::<Result<_, _>>()?,
            capabilities: saved.capabilities,
            elapsed: saved.elapsed,
            supported: saved.supported.into_iter().map(leaf).collect(),
        })
    }
}

fn result((name, outcome): (String, ProbeOutcome)) -> Result<InstructionResult, UnknownName> {
    let instruction = INSTRUCTIONS.iter().find(|it| it.name == name);
    Ok(InstructionResult {
        instruction: instruction.ok_or(UnknownName(name))?,
        outcome,
    })
}

fn feature(name: String) -> Result<Feature, UnknownName> {
    let mut known = INSTRUCTIONS.iter().filter_map(|it| it.feature);
    known.find(|it| it.name == name).ok_or(UnknownName(name))
}

fn leaf([function, index, flags, eax, ebx, ecx, edx]: [u32; 7]) -> kvm_cpuid_entry2 {
    kvm_cpuid_entry2 {
        function,
        index,
        flags,
        eax,
        ebx,
        ecx,
        edx,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::feature::SMAP;
    use crate::probe::testing::probe;

    #[test]
    fn a_probe_comes_back_from_its_document() {
        let entry = leaf([7, 0, 1, 2, 3, 4, 5]);
        let mut before = probe(vec![entry], &["fwait", "int3"]);
        before.shown_regardless = vec![SMAP];
        let document = serde_json::to_string(&before).expect("a document");
        let after: Probe = serde_json::from_str(&document).expect("a probe");
        assert_eq!(format!("{before:?}"), format!("{after:?}"));
    }

    #[test]
    fn names_of_another_version_are_refused() {
        let document = serde_json::to_string(&probe(Vec::new(), &[])).expect("a document");
        let other = document.replace("\"fwait\"", "\"fwait2\"");
        let read = serde_json::from_str::<Probe>(&other);
        assert!(read.is_err_and(|error| error.to_string().contains("fwait2")));
    }

    #[test]
    fn a_name_stands_for_one_instruction() {
        let mut names: Vec<_> = INSTRUCTIONS.iter().map(|it| it.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), INSTRUCTIONS.len());
    }
}
