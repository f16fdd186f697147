//! Why the kernel refused, in one phrase.

use std::error::Error;
use std::io;

use aya::programs::ProgramError::{self, LoadError};
use rustix::io::Errno;

/// The phrase for an error and its sources. The verifier's log is left out.
pub(super) fn of(error: &(dyn Error + 'static)) -> String {
    let chain = || std::iter::successors(Some(error), source_of);
    let refused = chain()
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .find_map(Errno::from_io_error);
    let verified =
        chain().any(|error| matches!(error.downcast_ref::<ProgramError>(), Some(LoadError { .. })));
    match refused {
        Some(Errno::ACCESS | Errno::INVAL) if verified => {
            "this kernel's verifier refused the program".to_owned()
        }
        Some(Errno::PERM | Errno::ACCESS) => {
            "not permitted (needs root, or CAP_BPF and CAP_PERFMON)".to_owned()
        }
        Some(Errno::NOENT) => "this kernel has none of that name".to_owned(),
        Some(errno) => format!("the kernel refused it: {errno}"),
        None => chain()
            .last()
            .map_or_else(String::new, |error| first_line(&error.to_string())),
    }
}

fn source_of<'a>(error: &&'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let error: &'a (dyn Error + 'static) = *error;
    error.source()
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_for_want_of_privilege_says_what_is_needed() {
        let error = io::Error::from(Errno::PERM);
        assert!(of(&error).contains("CAP_BPF"));
    }

    #[test]
    fn a_missing_trace_point_is_named_as_missing() {
        assert!(of(&io::Error::from(Errno::NOENT)).contains("none of that name"));
    }
}
