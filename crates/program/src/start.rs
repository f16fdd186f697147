//! What a program starts with, as a file of its initramfs.

use alloc::string::String;
use alloc::vec::Vec;

/// The file's place in the initramfs.
pub const FILE: &str = ".tare/program";
/// The first line: the version of this format.
const HEADER: &str = "tare-program 1";
/// Most bytes of the file; Linux's limit for arguments and environment is 2 MiB with
/// a stack of 8 MiB (`execve(2)`).
pub(crate) const MOST_BYTES: usize = 1 << 20;

/// A file that does not say what to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// Another format.
    #[error("the file does not begin with {HEADER:?}")]
    Header,
    /// A field of another kind, or text that is not UTF-8.
    #[error("invalid field {0}")]
    Field(usize),
    /// No program, or no name for it.
    #[error("no program or no argument 0")]
    Incomplete,
    /// A NUL in a text.
    #[error("an argument, variable or path contains a NUL")]
    Nul,
    /// Too large.
    #[error("arguments and environment have {bytes} bytes; the limit is {MOST_BYTES}")]
    TooLarge {
        /// Bytes in all.
        bytes: usize,
    },
}

/// What a program starts with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// The program's path in the initramfs.
    pub path: String,
    /// Its arguments, the first one its name.
    pub arguments: Vec<String>,
    /// Its environment, `NAME=VALUE`.
    pub environment: Vec<String>,
    /// Its working directory; `/` when empty.
    pub directory: String,
    /// The machine's name.
    pub hostname: String,
    /// Where the file system of the first disk is mounted, absolute, if it is.
    pub mount: Option<String>,
}

impl Start {
    /// The file's content: fields that end with NUL, each behind a letter for its
    /// kind.
    pub fn to_bytes(&self) -> Result<Vec<u8>, StartError> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(HEADER.as_bytes());
        bytes.push(b'\n');
        let single = [
            ('x', &self.path),
            ('d', &self.directory),
            ('h', &self.hostname),
        ];
        let several = [('a', &self.arguments), ('e', &self.environment)];
        let mount = self.mount.iter().map(|mount| ('m', mount));
        let fields = single.into_iter().chain(mount).chain(
            several
                .into_iter()
                .flat_map(|(kind, texts)| texts.iter().map(move |text| (kind, text))),
        );
        for (kind, text) in fields {
            if text.contains('\0') {
                return Err(StartError::Nul);
            }
            bytes.push(kind as u8);
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(0);
        }
        match bytes.len() {
            bytes if bytes > MOST_BYTES => Err(StartError::TooLarge { bytes }),
            _ => Ok(bytes),
        }
    }

    /// Reads a file's content.
    pub fn parse(bytes: &[u8]) -> Result<Self, StartError> {
        let bytes = match bytes.len() {
            0..=MOST_BYTES => bytes,
            bytes => return Err(StartError::TooLarge { bytes }),
        };
        let rest = bytes.strip_prefix(HEADER.as_bytes());
        let rest = rest
            .and_then(|rest| rest.strip_prefix(b"\n"))
            .ok_or(StartError::Header)?;
        let mut start = Self::default();
        let fields = rest.split_inclusive(|&byte| byte == 0);
        for (number, field) in fields.enumerate() {
            let invalid = StartError::Field(number);
            let text = field.strip_suffix(b"\0").ok_or(invalid)?;
            let text = core::str::from_utf8(text).map_err(|_| invalid)?;
            let kind = text.chars().next().ok_or(invalid)?;
            let text = String::from(text.get(kind.len_utf8()..).ok_or(invalid)?);
            match kind {
                'x' => start.path = text,
                'd' => start.directory = text,
                'h' => start.hostname = text,
                'm' => start.mount = Some(text),
                'a' => start.arguments.push(text),
                'e' => start.environment.push(text),
                _ => return Err(invalid),
            }
        }
        if start.path.is_empty() || start.arguments.is_empty() {
            return Err(StartError::Incomplete);
        }
        Ok(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[^\0]{0,20}", 1..5)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(path in "[^\0]{1,30}", arguments in texts(), environment in texts(), mount in prop::option::of("/[^\0]{0,9}")) {
            let start = Start {
                path,
                arguments,
                environment,
                directory: "/srv".to_owned(),
                hostname: "web".to_owned(),
                mount,
            };
            prop_assert_eq!(Start::parse(&start.to_bytes().unwrap()), Ok(start));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            drop(Start::parse(&bytes));
            let mut with_header = b"tare-program 1\n".to_vec();
            with_header.extend(bytes);
            drop(Start::parse(&with_header));
        }
    }

    #[test]
    fn a_text_with_a_nul_and_too_many_texts_are_refused() {
        let mut start = Start {
            path: "a\0b".to_owned(),
            ..Start::default()
        };
        assert_eq!(start.to_bytes(), Err(StartError::Nul));
        start.path = "x".repeat(MOST_BYTES);
        assert!(matches!(start.to_bytes(), Err(StartError::TooLarge { .. })));
    }

    #[test]
    fn a_start_without_a_program_is_refused() {
        assert_eq!(
            Start::parse(b"tare-program 1\n"),
            Err(StartError::Incomplete)
        );
        assert_eq!(Start::parse(b"xa\0"), Err(StartError::Header));
    }
}
