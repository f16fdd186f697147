//! Builds the guest's command line from options.

use tare_abi::cmdline::{self as parameters, Idle};
use tare_abi::layout::{CMDLINE_MAX, LINUX_CMDLINE_MAX};
use tare_control::exit::ExitCode;

use crate::failure::Explain;

/// An invalid command line for a guest.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CmdlineError {
    /// Longer than the space for it.
    #[error("the guest's command line has {bytes} bytes; the limit is {most}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// What fits.
        most: usize,
    },
    /// Control characters, or not ASCII.
    #[error("the guest's command line has {0:?}: only printable ASCII may be used")]
    NotPrintable(char),
}

impl Explain for CmdlineError {
    fn code(&self) -> ExitCode {
        ExitCode::Cmdline
    }
}

/// Values of `ip=` and `ip6=`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) v4: String,
    pub(crate) v6: String,
}

/// Joins the parameters of the network and of `--idle` with the user's, which come last because
/// later parameters win.
pub(crate) fn build(
    addresses: Option<Addresses>,
    idle: Option<Idle>,
    ring: Option<u8>,
    user: &str,
) -> Result<String, CmdlineError> {
    let mut line = Vec::new();
    if let Some(Addresses { v4, v6 }) = addresses {
        line.push(format!("{}={v4}", parameters::IP));
        line.push(format!("{}={v6}", parameters::IP6));
    }
    line.extend(idle.map(|idle| format!("{}={}", parameters::IDLE, idle.name())));
    line.extend(ring.map(|ring| format!("{}={ring}", parameters::RING)));
    line.extend(Some(user.trim().to_owned()).filter(|user| !user.is_empty()));
    check(line.join(" "), CMDLINE_MAX - 1)
}

/// Joins the parameters that Linux needs with the user's, which come last.
pub(crate) fn linux(needed: &str, user: &str) -> Result<String, CmdlineError> {
    let line = format!("{needed} {}", user.trim());
    check(line.trim_end().to_owned(), LINUX_CMDLINE_MAX - 1)
}

fn check(line: String, most: usize) -> Result<String, CmdlineError> {
    if let Some(c) = line.chars().find(|c| !matches!(c, ' '..='~')) {
        return Err(CmdlineError::NotPrintable(c));
    }
    match line.len() {
        bytes if bytes > most => Err(CmdlineError::TooLong { bytes, most }),
        _ => Ok(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_words_come_last_and_win() {
        let line = build(
            Some(Addresses {
                v4: "10.0.2.15/24,10.0.2.2".to_owned(),
                v6: "off".to_owned(),
            }),
            Some(Idle::Spin),
            Some(3),
            " ip=dhcp x ",
        );
        let line = line.expect("a command line");
        assert_eq!(
            line,
            "ip=10.0.2.15/24,10.0.2.2 ip6=off idle=spin ring=3 ip=dhcp x"
        );
        assert_eq!(parameters::value(&line, parameters::IP), Some("dhcp"));
        assert_eq!(build(None, None, None, ""), Ok(String::new()));
    }

    #[test]
    fn what_does_not_fit_or_print_is_refused() {
        let fits = "x".repeat(CMDLINE_MAX - 1);
        assert!(build(None, None, None, &fits).is_ok());
        assert_eq!(
            build(None, None, None, &format!("{fits}x")),
            Err(CmdlineError::TooLong {
                bytes: CMDLINE_MAX,
                most: CMDLINE_MAX - 1
            })
        );
        // Linux would cut what is longer, and boot without its end.
        let fits = "x".repeat(LINUX_CMDLINE_MAX - 3);
        assert!(linux("q", &fits).is_ok());
        assert_eq!(
            linux("q", &format!("{fits}x")),
            Err(CmdlineError::TooLong {
                bytes: LINUX_CMDLINE_MAX,
                most: LINUX_CMDLINE_MAX - 1
            })
        );
        assert_eq!(
            build(None, None, None, "a\nb"),
            Err(CmdlineError::NotPrintable('\n'))
        );
        assert_eq!(
            build(None, None, None, "ä"),
            Err(CmdlineError::NotPrintable('ä'))
        );
    }
}
