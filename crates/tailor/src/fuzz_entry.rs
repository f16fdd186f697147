//! Entry points for fuzzing: bytes are the consoles of two guests, or a lock or configuration of
//! other parties'. Whatever they say, nothing panics, what is reported of it is bounded and has no control
//! characters, and no line of it is a command.

use std::path::Path;

use tare_init::Figures;
use tare_profile::Profile;

use crate::counts::ExecutionCounts;
use crate::kconfig::{Config, GivenConfig};
use crate::lock::Lock;
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
    for why in missing::suspects(&here, &config, spec.series).values() {
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

/// Reads a lock, and a configuration as a lock or a file has it.
///
/// # Panics
///
/// When a line is taken that make or a shell would execute, or a lock is not read as it was written.
pub fn lock(bytes: &[u8]) {
    let place = Path::new("kernel.lock");
    match Lock::parse(place, bytes) {
        Ok(lock) => {
            let written = serde_json::to_vec(&lock).unwrap_or_default();
            let again = Lock::parse(place, &written);
            assert!(again.is_ok_and(|again| again == lock), "read as written");
            take(GivenConfig::of_lines(lock.config.iter().map(String::as_str)).ok());
        }
        Err(error) => assert!(error.to_string().len() < 512, "{error}"),
    }
    take(GivenConfig::read(bytes).ok());
}

/// Reads execution counts as a guest sends them, and as a file has them.
///
/// # Panics
///
/// When counts are not read as they were written, or have a name that leads out of the objects.
pub fn counts(bytes: &[u8]) {
    let list = tare_init::counts::restored(bytes, 1 << 20).unwrap_or_default();
    let of_guest = ExecutionCounts::of_guest(&list, Path::new("/out/build")).ok();
    let of_file = ExecutionCounts::of_shortened(bytes).ok();
    for counts in of_guest.into_iter().chain(of_file) {
        let again = ExecutionCounts::of_shortened(&counts.shortened()).ok();
        assert_eq!(again.as_ref(), Some(&counts), "read as written");
        let mut sum = counts.clone();
        sum.add(&counts);
        assert_eq!(sum.objects(), counts.objects());
        for name in counts.mangled_names() {
            assert!(!name.contains('/') && name.len() < 256, "{name}");
        }
    }
}

fn take(given: Option<GivenConfig>) {
    let Some(given) = given else { return };
    let text = given.text();
    assert!(commands_nothing(&text), "{text}");
    // The kernel's scripts read the same options.
    let again = GivenConfig::read(text.as_bytes()).ok();
    assert_eq!(again.map(|again| again.text()), Some(text));
}

/// Whether no line has a character that make or a shell acts on, but for the `#` of an option that is off.
fn commands_nothing(text: &str) -> bool {
    let acts = |c: char| matches!(c, '$' | '`' | ';' | '\\' | '&' | '|' | '<' | '>' | '#');
    text.lines().all(|line| {
        let line = line.strip_prefix("# CONFIG_").unwrap_or(line);
        !line.contains(acts)
    })
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

    #[test]
    fn the_corpus_of_counts_does_no_harm() {
        super::corpus::replay("kernel_counts", super::counts);
    }

    #[test]
    fn the_corpus_of_locks_does_no_harm() {
        super::corpus::replay("kernel_lock", super::lock);
    }
}
