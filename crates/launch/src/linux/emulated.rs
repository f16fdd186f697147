//! Linux on a KVM that emulates ring 0: CPUID alone does not keep a kernel from instructions that
//! the emulator lacks, but the kernel's own parameters do.
//!
//! Reference: Linux `Documentation/admin-guide/kernel-parameters.txt`.

use tare_hv::{KvmKind, Probe};

use crate::cmdline::{self, CmdlineError};

/// Parameters for what the emulator lacks.
const NO_XSAVE: &str = "noxsave";
const CLEAR: &str = "clearcpuid=";
/// Features that depend on XSAVE: a kernel without it disables them as well.
const WITH_XSAVE: &[&str] = &["xsave", "avx", "avx2", "fma", "f16c"];

/// The command line with the parameters that this KVM requires, before the user's; and a sentence
/// about them.
pub(crate) fn spare(
    cmdline: String,
    probe: Option<&Probe>,
) -> Result<(String, Option<String>), CmdlineError> {
    let Some(probe) = probe.filter(|probe| probe.kind == KvmKind::Emulated) else {
        return Ok((cmdline, None));
    };
    let hidden = probe.hidden_features();
    let parameters = parameters(hidden.map(|it| (it.name, it.linux_number())));
    let sentence = format!(
        "this KVM emulates ring 0: Linux starts slowly and reaches no further than its first \
         process; added to its command line: {parameters}"
    );
    Ok((cmdline::linux(&parameters, &cmdline)?, Some(sentence)))
}

/// Parameters for a kernel that must do without these features.
fn parameters<'a>(features: impl Iterator<Item = (&'a str, Option<u32>)>) -> String {
    let (with_xsave, others): (Vec<_>, Vec<_>) =
        features.partition(|(name, _)| name.starts_with("xsave") || WITH_XSAVE.contains(name));
    let mut numbers: Vec<u32> = others.iter().filter_map(|(_, number)| *number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
    let mut parameters = Vec::new();
    if !with_xsave.is_empty() {
        parameters.push(NO_XSAVE.to_owned());
    }
    if !numbers.is_empty() {
        parameters.push(format!("{CLEAR}{}", numbers.join(",")));
    }
    parameters.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_emulator_lacks_is_kept_from_linux() {
        let features = [
            ("smap", Some(308)),
            ("xsavec", Some(321)),
            ("avx", Some(156)),
            ("cx16", Some(141)),
            ("smap", Some(308)),
        ];
        assert_eq!(
            parameters(features.into_iter()),
            "noxsave clearcpuid=141,308"
        );
        assert_eq!(parameters([].into_iter()), "");
    }

    #[test]
    fn a_command_line_stays_as_it_is_without_a_probe() {
        let spared = spare("a".to_owned(), None);
        assert_eq!(spared, Ok(("a".to_owned(), None)));
    }
}
