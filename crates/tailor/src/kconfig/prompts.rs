//! Which symbols a person can set. The others follow from those: of the options
//! that are on in the smallest kernel most are of this kind.

use std::collections::BTreeSet;

use super::{Config, depends};
use crate::objects;
use crate::source::Tree;

/// Words that begin a line with a prompt after them.
const TYPES: &[&str] = &["bool", "tristate", "string", "int", "hex", "prompt"];

/// The symbols of a tree that have a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompts(BTreeSet<String>);

impl Prompts {
    /// Reads the tree's Kconfig files.
    pub fn of(tree: &Tree) -> Self {
        let files = depends::kconfig_files(tree.dir()).into_iter();
        let texts = files.filter_map(|file| objects::read_text(tree.dir(), file).ok());
        Self(texts.flat_map(|text| in_text(&text)).collect())
    }

    /// Whether a symbol has one.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// How many options of a configuration are on and have one.
    pub fn count(&self, config: &Config) -> usize {
        config.on().filter(|name| self.has(name)).count()
    }
}

fn in_text(text: &str) -> Vec<String> {
    let mut current = None;
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some(name) = depends::defined(line) {
            current = Some(name.to_owned());
        } else if line.starts_with("choice") || line.starts_with("menu ") {
            // A prompt of the whole group.
            current = None;
        } else if has_prompt(line) {
            found.extend(current.take());
        }
    }
    found
}

fn has_prompt(line: &str) -> bool {
    let line = line.trim();
    let rest = TYPES.iter().find_map(|word| line.strip_prefix(word));
    rest.is_some_and(|rest| {
        rest.starts_with([' ', '\t']) && rest.trim_start().starts_with(['"', '\''])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_with_a_prompt_differ_from_those_that_follow() {
        let text = "config A\n\tbool \"a\"\n\nconfig B\n\tdef_bool y\n\nconfig C\n\tbool\n\
                    \nchoice\n\tprompt \"which\"\n\nconfig D\n\tint \"d\" if EXPERT\nendchoice\n\
                    menuconfig E\n\tbool\n\tprompt \"e\"\n";
        assert_eq!(in_text(text), ["A", "D", "E"]);
        let config = Config::read("CONFIG_A=y\nCONFIG_B=y\nCONFIG_E=m\nCONFIG_D=3\n");
        let prompts = Prompts(in_text(text).into_iter().collect());
        assert_eq!(prompts.count(&config), 2);
    }
}
