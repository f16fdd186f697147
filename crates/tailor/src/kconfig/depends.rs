//! What a symbol depends on, for a sentence to the user; the scripts decide.

use std::fs;
use std::path::{Path, PathBuf};

use crate::mapping::Symbol;
use crate::objects;
use crate::source::Tree;

/// Other processors, whose symbols may have the same names.
const OURS: &str = "x86";

/// The `depends on` lines of a symbol, as they stand; lines around a whole
/// group (`if`, `menu`) are not seen. `None` for a symbol that no file defines.
pub(crate) fn of(tree: &Tree, symbol: &Symbol) -> Option<Vec<String>> {
    let files = kconfig_files(tree.dir()).into_iter();
    let texts = files.filter_map(|file| objects::read_text(tree.dir(), file).ok());
    let found: Vec<Vec<String>> = texts.filter_map(|text| in_text(&text, symbol)).collect();
    (!found.is_empty()).then(|| found.concat())
}

fn in_text(text: &str, symbol: &Symbol) -> Option<Vec<String>> {
    let mut is_ours = false;
    let mut found = None;
    for line in text.lines() {
        if let Some(name) = defined(line) {
            is_ours = name == symbol.name();
            if is_ours {
                found.get_or_insert_with(Vec::new);
            }
        } else if let Some(depends) = line.trim().strip_prefix("depends on ")
            && is_ours
        {
            found
                .get_or_insert_with(Vec::new)
                .push(depends.trim().to_owned());
        }
    }
    found
}

/// The symbol that a line begins to define.
pub(super) fn defined(line: &str) -> Option<&str> {
    let name = line
        .strip_prefix("config ")
        .or_else(|| line.strip_prefix("menuconfig "))?;
    Some(name.trim())
}

/// Kconfig files below a directory, by their names from there.
pub(super) fn kconfig_files(tree: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![tree.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let is_arch = dir.file_name().is_some_and(|name| name == "arch");
            if is_dir && (!is_arch || entry.file_name() == OURS) {
                dirs.push(path);
            } else if entry.file_name().to_string_lossy().starts_with("Kconfig") {
                files.extend(path.strip_prefix(tree).map(Path::to_owned));
            }
        }
    }
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_one_symbol_are_found_and_none_of_an_unknown_one() {
        let text = "config A\n\tbool \"a\"\n\tdepends on B && C\n\tdepends on D\n\n\
                    config AB\n\tdepends on X\n";
        let symbol = Symbol::new("A").unwrap();
        assert_eq!(in_text(text, &symbol).unwrap(), ["B && C", "D"]);
        let symbol = Symbol::new("X").unwrap();
        assert_eq!(in_text(text, &symbol), None);
    }
}
