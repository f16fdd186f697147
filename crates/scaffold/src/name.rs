//! Names of crates.

use std::fmt;
use std::str::FromStr;

/// Longest name, as registries have it.
const LONGEST: usize = 64;

/// A name that cargo takes for a package with a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrateName(String);

/// Why a name is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Letters that a crate's name cannot have, or too many.
    #[error(
        "invalid crate name {0:?}: use 1 to {LONGEST} letters, digits, '-' or '_', beginning with a letter"
    )]
    Form(String),
    /// The language, cargo or Tare has it.
    #[error("invalid crate name {0:?}: {1}")]
    Taken(String, &'static str),
}

impl FromStr for CrateName {
    type Err = NameError;

    fn from_str(word: &str) -> Result<Self, NameError> {
        let may_have = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let begins = word.starts_with(|c: char| c.is_ascii_alphabetic());
        if !begins || word.len() > LONGEST || !word.chars().all(may_have) {
            return Err(NameError::Form(word.to_owned()));
        }
        match owner(&word.to_ascii_lowercase()) {
            Some(owner) => Err(NameError::Taken(word.to_owned(), owner)),
            None => Ok(Self(word.to_owned())),
        }
    }
}

impl fmt::Display for CrateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who has a name already.
fn owner(name: &str) -> Option<&'static str> {
    const KEYWORDS: &[&str] = &[
        "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate",
        "do", "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl",
        "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub",
        "ref", "return", "self", "static", "struct", "super", "trait", "true", "try", "type",
        "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
    ];
    // Names of directories in `target`.
    const CARGO: &[&str] = &["build", "deps", "examples", "incremental"];
    const LIBRARIES: &[&str] = &["alloc", "core", "proc_macro", "proc-macro", "std", "test"];
    match name {
        _ if KEYWORDS.contains(&name) => Some("a keyword of Rust"),
        _ if CARGO.contains(&name) => Some("cargo has a directory of this name"),
        _ if LIBRARIES.contains(&name) => Some("a library of Rust's own"),
        _ if name.starts_with("tare-") || name.starts_with("tare_") => {
            Some("Tare's own crates have such names")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_names_are_taken() {
        for name in ["hello", "a", "web-2", "Hello_World", &"x".repeat(64)] {
            assert!(name.parse::<CrateName>().is_ok(), "{name}");
        }
    }

    #[test]
    fn names_that_cargo_refuses_are_refused() {
        for name in [
            "",
            "2web",
            "-a",
            "_a",
            "a b",
            "a.b",
            "a/b",
            "é",
            &"x".repeat(65),
        ] {
            let error = NameError::Form(name.to_owned());
            assert_eq!(name.parse::<CrateName>(), Err(error), "{name}");
        }
        for name in [
            "fn",
            "Self",
            "test",
            "core",
            "deps",
            "tare-libos",
            "tare_web",
        ] {
            let refused = name.parse::<CrateName>();
            assert!(matches!(refused, Err(NameError::Taken(..))), "{name}");
        }
    }
}
