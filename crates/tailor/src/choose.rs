//! From a profile to configuration symbols, each with its reasons.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tare_profile::{Call, FlagsUse, Profile};

use crate::mapping::{Row, Symbol, Trigger, rows};
use crate::spec::KernelSpec;

/// The symbols that a kernel needs, and what was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// Symbols with the reasons for each.
    pub symbols: BTreeMap<Symbol, BTreeSet<String>>,
    /// Symbols that are set to a number.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<Symbol, u64>,
    /// Symbols that are built where the sources have them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub where_known: BTreeSet<Symbol>,
    /// Symbols that something looked at and lives without, with what did.
    pub optional: BTreeMap<Symbol, BTreeSet<String>>,
    /// Calls that were answered by ENOSYS each time where they were
    /// profiled, and are not built in.
    pub never_there: Vec<String>,
    /// Parameters that the kernel has on its own command line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<String>,
}

/// Chooses the symbols.
pub fn choose(spec: &KernelSpec) -> Choice {
    let mut choice = Choice {
        never_there: never_there(&spec.profile),
        parameters: spec.parameters.clone(),
        ..Choice::default()
    };
    for row in rows(spec.series) {
        let is_taken = |cut| spec.cuts.contains(&cut);
        if row.cut.is_some_and(is_taken) || !row.taken.is_none_or(is_taken) {
            continue;
        }
        for reason in reasons(row, spec) {
            choice.values.extend(row.values.clone());
            if row.where_known {
                choice.where_known.extend(row.needs.iter().cloned());
                continue;
            }
            for symbol in &row.needs {
                let is_built = !row.optional || spec.keep.contains(symbol);
                let list = if is_built {
                    &mut choice.symbols
                } else {
                    &mut choice.optional
                };
                list.entry(symbol.clone())
                    .or_default()
                    .insert(reason.clone());
            }
        }
    }
    if !spec.parameters.is_empty() {
        let own = Symbol::new("CMDLINE_BOOL").into_iter();
        let why = BTreeSet::from(["its own parameters".to_owned()]);
        choice
            .symbols
            .extend(own.map(|symbol| (symbol, why.clone())));
    }
    for (symbol, why) in &spec.add {
        let reasons = choice.symbols.entry(symbol.clone()).or_default();
        reasons.insert(why.clone());
    }
    let Choice {
        symbols, optional, ..
    } = &mut choice;
    optional.retain(|symbol, _| !symbols.contains_key(symbol));
    choice
}

/// Why a row counts, a sentence for each observation.
fn reasons(row: &Row, spec: &KernelSpec) -> Vec<String> {
    let features = &spec.profile.features;
    match &row.trigger {
        Trigger::Always => vec!["every kernel".to_owned()],
        Trigger::Targets(targets) => named(targets.contains(&spec.target), "the machine"),
        Trigger::Parts(parts) => named(
            parts.iter().any(|part| spec.parts.contains(part)),
            "the machine",
        ),
        Trigger::Calls(calls) => seen(
            spec.profile
                .calls
                .iter()
                .filter(|(_, call)| !is_never_there(call))
                .map(|(name, _)| name),
            |name| calls.contains(name),
        ),
        Trigger::Families(families) => seen(
            features.sockets.iter().map(|socket| &socket.family),
            |family| families.contains(family),
        ),
        Trigger::Protocols(protocols) => features
            .sockets
            .iter()
            .map(|socket| format!("{} {}", socket.family, socket.protocol))
            .filter(|protocol| protocols.contains(protocol))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .map(|protocol| format!("a socket of {protocol}"))
            .collect(),
        Trigger::Options(options) => seen(
            features.socket_options.iter().map(|option| &option.name),
            |option| options.contains(option),
        ),
        Trigger::FileSystems(types) => seen(
            features
                .files
                .iter()
                .map(|file| &file.file_system)
                .chain(features.mounts.iter().map(|mount| &mount.file_system)),
            |kind| types.contains(kind),
        ),
        Trigger::Mounts(types) => seen(
            features.mounts.iter().map(|mount| &mount.file_system),
            |kind| types.contains(kind),
        ),
        Trigger::Paths(patterns) => seen(features.files.iter().map(|file| &file.path), |path| {
            patterns.iter().any(|pattern| pattern.matches(path))
        }),
        Trigger::Devices(patterns) => seen(spec.profile.devices.iter(), |path| {
            patterns.iter().any(|pattern| pattern.matches(path))
        }),
        Trigger::Ioctls(requests) => seen(
            features.ioctls.iter().map(|ioctl| &ioctl.request),
            |request| requests.contains(request),
        ),
        Trigger::Prctls(operations) => seen(
            features.prctls.iter().map(|prctl| &prctl.operation),
            |operation| operations.contains(operation),
        ),
        Trigger::Clones(flags) => seen(
            features.clones.iter().flat_map(|clone| &clone.flags),
            |flag| flags.contains(flag),
        ),
        Trigger::Flags(wanted) => {
            let of = |used: &FlagsUse| -> Vec<String> {
                let flags = used.flags.iter();
                flags.map(|flag| format!("{} {flag}", used.call)).collect()
            };
            let all: Vec<String> = features.flags.iter().flat_map(of).collect();
            seen(all.iter(), |flag| wanted.contains(flag))
        }
    }
}

fn named(counts: bool, reason: &str) -> Vec<String> {
    counts.then(|| reason.to_owned()).into_iter().collect()
}

fn seen<'a>(
    names: impl Iterator<Item = &'a String>,
    is_meant: impl Fn(&String) -> bool,
) -> Vec<String> {
    let names: BTreeSet<&String> = names.filter(|name| is_meant(name)).collect();
    names.into_iter().cloned().collect()
}

fn never_there(profile: &Profile) -> Vec<String> {
    let calls = profile.calls.iter();
    calls
        .filter(|(_, call)| is_never_there(call))
        .map(|(name, _)| name.clone())
        .collect()
}

fn is_never_there(call: &Call) -> bool {
    call.count > 0 && call.errors.get("ENOSYS") == Some(&call.count)
}

#[cfg(test)]
mod tests;
