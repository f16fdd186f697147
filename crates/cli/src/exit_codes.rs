//! The table of exit codes, for `tare exit-codes`, its help, and
//! `docs/exit-codes.md`.

use std::fmt::Write as _;

use tare_control::exit::ExitCode;

/// The table as printed: a code and its meaning on each line.
pub(crate) fn table() -> String {
    let mut text = String::new();
    for (code, meaning) in ExitCode::ALL {
        let _ = writeln!(text, "{:>4}  {}", *code as u8, meaning.trim());
    }
    text
}

/// Help of the verb: the table itself, so that `tare help exit-codes` has it.
pub(crate) fn long_about() -> String {
    format!("The exit codes of tare and tare-monitor:\n\n{}", table())
}

/// `docs/exit-codes.md`.
#[cfg(test)]
fn markdown() -> String {
    let mut text = String::from(
        "# Exit codes\n\n\
         The exit codes of `tare` and `tare-monitor`. Tare never reuses a code for another\n\
         meaning. The status of a program (`tare run ./program`) or of a Linux guest's command\n\
         becomes the exit code unchanged, so it can equal a code of this table: then no line\n\
         that begins with `tare:` is on standard error. `tare exit-codes` prints this table.\n\n\
         | code | name | meaning |\n|---:|---|---|\n",
    );
    for (code, meaning) in ExitCode::ALL {
        let _ = writeln!(text, "| {} | {code:?} | {} |", *code as u8, meaning.trim());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_and_codes_agree() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/exit-codes.md");
        if std::env::var_os("TARE_BLESS").is_some() {
            std::fs::write(path, markdown()).expect("the document can be written");
        }
        let document = std::fs::read_to_string(path).expect("docs/exit-codes.md");
        assert_eq!(document, markdown(), "TARE_BLESS=1 rewrites it");
    }

    #[test]
    fn table_fits_a_terminal() {
        assert!(table().lines().all(|line| line.len() < 80));
    }
}
