//! The first line of a script, `#!INTERPRETER [ARGUMENT]` (`load_script` of Linux's
//! fs/binfmt_script.c).

/// Bytes of a file in which the line must end, or the interpreter's name (`BINPRM_BUF_SIZE`).
pub const FIRST_LINE: usize = 256;
/// Most scripts whose interpreter is a script (`exec_binprm` of Linux's fs/exec.c).
pub const MOST_SCRIPTS: usize = 5;

/// Who runs a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interpreter<'a> {
    /// Its path.
    pub path: &'a [u8],
    /// The rest of the line, as one argument.
    pub argument: Option<&'a [u8]>,
}

/// Why a script cannot run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// There is nothing behind `#!`.
    #[error("its first line names no interpreter")]
    NoInterpreter,
    /// The name does not end where Linux looks for it.
    #[error("its first line names an interpreter of more than 250 bytes")]
    TooLong,
}

/// The interpreter that a file begins with, if it is a script; `file` needs [`FIRST_LINE`] bytes of it.
pub fn interpreter(file: &[u8]) -> Result<Option<Interpreter<'_>>, ScriptError> {
    let file = &file[..file.len().min(FIRST_LINE)];
    let Some(line) = file.strip_prefix(b"#!") else {
        return Ok(None);
    };
    let is_end = |byte: &u8| matches!(byte, b'\n' | 0);
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let end = line.iter().position(is_end);
    let whole = line[..end.unwrap_or(line.len())].trim_ascii();
    let name_end = whole.iter().position(is_blank);
    if whole.is_empty() {
        return Err(ScriptError::NoInterpreter);
    }
    if name_end.is_none() && end.is_none() && file.len() == FIRST_LINE {
        return Err(ScriptError::TooLong);
    }
    let (path, rest) = whole.split_at(name_end.unwrap_or(whole.len()));
    let rest = rest.trim_ascii();
    Ok(Some(Interpreter {
        path,
        argument: (!rest.is_empty()).then_some(rest),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn parts(file: &[u8]) -> (&[u8], Option<&[u8]>) {
        let found = interpreter(file).unwrap().unwrap();
        (found.path, found.argument)
    }

    #[test]
    fn a_first_line_has_a_name_and_one_argument() {
        assert_eq!(parts(b"#!/bin/sh\necho"), (&b"/bin/sh"[..], None));
        assert_eq!(
            parts(b"#! \t/bin/sh -e \n"),
            (&b"/bin/sh"[..], Some(&b"-e"[..]))
        );
        let several = parts(b"#!/usr/bin/env -S a  b\n");
        assert_eq!(several, (&b"/usr/bin/env"[..], Some(&b"-S a  b"[..])));
        assert_eq!(parts(b"#!/bin/sh"), (&b"/bin/sh"[..], None));
        assert_eq!(parts(b"#!/bin/sh\0junk"), (&b"/bin/sh"[..], None));
    }

    #[test]
    fn what_is_no_script_or_names_none_is_told_apart() {
        assert_eq!(interpreter(b"\x7fELF"), Ok(None));
        assert_eq!(interpreter(b"#"), Ok(None));
        for empty in [&b"#!"[..], b"#!\n/bin/sh", b"#!  \t\n"] {
            assert_eq!(interpreter(empty), Err(ScriptError::NoInterpreter));
        }
        let mut long = b"#!/".to_vec();
        long.resize(300, b'a');
        assert_eq!(interpreter(&long), Err(ScriptError::TooLong));
        // The argument alone may be cut.
        let mut cut = b"#!/bin/sh ".to_vec();
        cut.resize(300, b'a');
        assert_eq!(parts(&cut), (&b"/bin/sh"[..], Some(&vec![b'a'; 246][..])));
    }
}
