//! Entry point for fuzzing: bytes are the consoles of two guests. Whatever they say,
//! nothing panics, and what is reported of it is bounded and has no control characters.

use tare_init::Figures;
use tare_profile::Profile;

use crate::kconfig::Config;
use crate::spec::KernelSpec;
use crate::target::Target;
use crate::{machine, missing, refused};

/// Longest sentence of refusals, bytes: some texts, names around each, and three bytes
/// for one that was replaced.
const TOLD_BYTES: usize = 4 * (3 * tare_init::refusal::TEXT_BYTES + 256);

/// Reads the consoles of a tailored kernel and of Debian's, which a zero divides.
///
/// # Panics
///
/// When something beyond its bounds is reported: the fuzzer looks for that.
pub fn consoles(bytes: &[u8]) {
    let mut two = bytes
        .splitn(2, |byte| *byte == 0)
        .map(String::from_utf8_lossy);
    let (here, there) = (
        two.next().unwrap_or_default(),
        two.next().unwrap_or_default(),
    );
    let _ = (Figures::on(&here), machine::status(&here));
    let config = Config::read("CONFIG_EPOLL=y\n");
    let spec = KernelSpec::new(Profile::empty(), Target::Qemu);
    for why in missing::suspects(&here, &config).values() {
        assert!(!why.contains(char::is_control), "{why:?}");
    }
    let only_here = refused::only_here(&here, &there);
    for symbol in refused::suspects(&only_here, &spec, &config).keys() {
        assert!(!config.has(symbol), "{symbol} is there");
    }
    let told = refused::listed(&only_here);
    assert!(
        told.len() <= TOLD_BYTES && !told.contains(char::is_control),
        "{told:?}"
    );
}

#[cfg(test)]
#[path = "../../../fuzz/judges/corpus.rs"]
mod corpus;

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_of_consoles_does_no_harm() {
        super::corpus::replay("guest_console", super::consoles);
    }
}
