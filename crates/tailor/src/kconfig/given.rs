//! Configurations from outside: of a file, of a lock.
//!
//! Values of strings end up unquoted in what make includes
//! (`include/config/auto.conf`), so that `$(shell ...)` in one would run a command. Only
//! values without characters of make and the shell are taken.

use std::collections::BTreeSet;

/// Most bytes of a file; Debian's has 260 KiB.
const MAX_BYTES: usize = 1 << 20;
/// Characters of strings besides letters and digits.
const PLAIN: &str = " ._,:/@+=%-";
/// What the scripts ask the compiler themselves, whatever a file says.
const FOUND_OUT: &str = "CC_VERSION_TEXT";
/// What the kernel calls a host without a name.
const NO_NAME: &str = "\"(none)\"";

/// Lines that set options or leave them off, as the kernel's scripts read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenConfig {
    lines: Vec<String>,
}

/// A configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GivenError {
    /// It is too long.
    #[error("the configuration has {0} bytes (limit: {MAX_BYTES})")]
    TooLong(usize),
    /// A line is something else.
    #[error(
        "line {number} neither sets an option to y, m, n, a number or a plain string nor leaves it off"
    )]
    Line {
        /// Its number, from 1.
        number: usize,
    },
    /// It sets nothing.
    #[error("it sets no option")]
    Empty,
}

impl GivenConfig {
    /// Reads a configuration file, such as a `.config`.
    pub fn read(bytes: &[u8]) -> Result<Self, GivenError> {
        if bytes.len() > MAX_BYTES {
            return Err(GivenError::TooLong(bytes.len()));
        }
        // What is not UTF-8 is in no option's name or value.
        Self::of_lines(String::from_utf8_lossy(bytes).lines())
    }

    /// The same for lines one by one.
    pub(crate) fn of_lines<'a>(
        given: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, GivenError> {
        let mut lines = Vec::new();
        for (at, line) in given.into_iter().enumerate() {
            match parsed(line) {
                Line::Option => lines.push(line.to_owned()),
                Line::Nothing => {}
                Line::Other => return Err(GivenError::Line { number: at + 1 }),
            }
        }
        if lines.is_empty() {
            return Err(GivenError::Empty);
        }
        Ok(Self { lines })
    }

    /// This configuration with the lines of a later one, which win (`merge_config.sh` of the
    /// kernel's scripts).
    #[must_use]
    pub fn with(&self, later: &Self) -> Self {
        let set: BTreeSet<&str> = later.lines.iter().filter_map(|it| name(it)).collect();
        let kept = self.lines.iter();
        let kept = kept.filter(|line| name(line).is_none_or(|name| !set.contains(name)));
        Self {
            lines: kept.chain(&later.lines).cloned().collect(),
        }
    }

    /// The lines as one text, comments left out.
    pub fn text(&self) -> String {
        self.lines.join("\n") + "\n"
    }
}

/// The option that a line sets or leaves off.
fn name(line: &str) -> Option<&str> {
    let off = line
        .strip_prefix("# CONFIG_")
        .and_then(|off| off.strip_suffix(" is not set"));
    off.or_else(|| Some(line.strip_prefix("CONFIG_")?.split_once('=')?.0))
}

/// What a line of a configuration is.
enum Line {
    /// It sets an option or leaves it off.
    Option,
    /// A comment.
    Nothing,
    Other,
}

fn parsed(line: &str) -> Line {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    if let Some(off) = line.strip_prefix("# CONFIG_")
        && let Some(name) = off.strip_suffix(" is not set")
    {
        return if is_name(name) {
            Line::Option
        } else {
            Line::Other
        };
    }
    if line.trim().is_empty() || line.starts_with('#') {
        return Line::Nothing;
    }
    let set = line.strip_prefix("CONFIG_");
    match set.and_then(|set| set.split_once('=')) {
        Some((FOUND_OUT, _)) => Line::Nothing,
        Some((name, value)) if is_name(name) && is_value(value) => Line::Option,
        _ => Line::Other,
    }
}

fn is_value(value: &str) -> bool {
    if let Some(text) = value.strip_prefix('"') {
        let Some(text) = text.strip_suffix('"') else {
            return false;
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || PLAIN.contains(c);
        return value == NO_NAME || text.chars().all(is_plain);
    }
    let is_number = |digits: &str, radix| {
        !digits.is_empty() && digits.len() <= 20 && digits.chars().all(|c| c.is_digit(radix))
    };
    matches!(value, "y" | "m" | "n")
        || value.strip_prefix("0x").is_some_and(|it| is_number(it, 16))
        || is_number(value.strip_prefix('-').unwrap_or(value), 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_kept_and_comments_left_out() {
        let text = "#\n# Automatically generated file\n#\nCONFIG_CC_VERSION_TEXT=\"gcc (x) `y`\"\n\
                    CONFIG_NET=y\n# CONFIG_SMP is not set\n\n# CPU is not set up\nCONFIG_HZ=250\n\
                    CONFIG_PHYSICAL_START=0x1000000\nCONFIG_OFFSET=-1\nCONFIG_LSM=\"a,b\"\n\
                    CONFIG_DEFAULT_HOSTNAME=\"(none)\"\n";
        let given = GivenConfig::read(text.as_bytes()).unwrap();
        let kept = "CONFIG_NET=y\n# CONFIG_SMP is not set\nCONFIG_HZ=250\n\
                    CONFIG_PHYSICAL_START=0x1000000\nCONFIG_OFFSET=-1\nCONFIG_LSM=\"a,b\"\n\
                    CONFIG_DEFAULT_HOSTNAME=\"(none)\"\n";
        assert_eq!(given.text(), kept);
    }

    #[test]
    fn what_make_or_a_shell_would_run_is_refused_with_its_line() {
        for line in [
            "CONFIG_LOCALVERSION=\"$(shell touch x)\"",
            "CONFIG_LOCALVERSION=\"`touch x`\"",
            "CONFIG_LOCALVERSION=\"a; touch x\"",
            "CONFIG_LOCALVERSION=\"(touch x)\"",
            "CONFIG_LOCALVERSION=\"a\"b\"",
            "CONFIG_LOCALVERSION=$(shell touch x)",
            "CONFIG_A=\"",
            "CONFIG_A=yes",
            "CONFIG_A=0x",
            "CONFIG_A",
            "CONFIG_A B=y",
            "# CONFIG_A\tB is not set",
            "include /etc/passwd",
            "obj-y += x.o",
        ] {
            let text = format!("CONFIG_NET=y\n{line}\n");
            let refused = GivenConfig::read(text.as_bytes());
            assert_eq!(refused, Err(GivenError::Line { number: 2 }), "{line}");
        }
    }

    #[test]
    fn a_later_configuration_wins_line_by_line() {
        let read = |text: &str| GivenConfig::read(text.as_bytes()).unwrap();
        let merged = read("# CONFIG_PCI is not set\nCONFIG_NET=y\nCONFIG_HZ=250\n").with(&read(
            "CONFIG_PCI=y\nCONFIG_PCI_MSI=y\n# CONFIG_HZ is not set\n",
        ));
        let right = "CONFIG_NET=y\nCONFIG_PCI=y\nCONFIG_PCI_MSI=y\n# CONFIG_HZ is not set\n";
        assert_eq!(merged.text(), right);
    }

    #[test]
    fn empty_and_endless_files_are_refused() {
        assert_eq!(GivenConfig::read(b"# none\n"), Err(GivenError::Empty));
        let long = vec![b'\n'; MAX_BYTES + 1];
        let refused = GivenConfig::read(&long);
        assert_eq!(refused, Err(GivenError::TooLong(MAX_BYTES + 1)));
        assert!(GivenConfig::read(b"CONFIG_A=\"\xff\"\n").is_err());
    }
}
