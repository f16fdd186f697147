//! A configuration as the kernel's scripts write it.

use std::collections::BTreeMap;

use crate::mapping::Symbol;

/// Symbols that are set, with their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    set: BTreeMap<String, String>,
}

impl Config {
    /// Reads a `.config`; lines that set nothing are passed over.
    pub fn read(text: &str) -> Self {
        let lines = text.lines();
        let set = lines.filter_map(|line| {
            let (name, value) = line.strip_prefix("CONFIG_")?.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        });
        Self { set: set.collect() }
    }

    /// Whether a symbol is built in.
    pub fn has(&self, symbol: &Symbol) -> bool {
        self.set
            .get(symbol.name())
            .is_some_and(|value| value == "y")
    }

    /// What a symbol is set to; `None` for one that is not set.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.set.get(name).map(String::as_str)
    }

    /// The lines that set something, in the order of their names.
    pub fn lines(&self) -> Vec<String> {
        let set = self.set.iter();
        set.map(|(name, value)| format!("CONFIG_{name}={value}"))
            .collect()
    }

    /// Names of options that are on, built in or as modules.
    pub fn on(&self) -> impl Iterator<Item = &str> {
        let on = |value: &str| matches!(value, "y" | "m");
        let set = self.set.iter();
        set.filter(move |(_, value)| on(value))
            .map(|(name, _)| name.as_str())
    }

    /// Names of options that are built in.
    pub fn built_in(&self) -> impl Iterator<Item = &str> {
        let set = self.set.iter();
        set.filter(|(_, value)| *value == "y")
            .map(|(name, _)| name.as_str())
    }

    /// How many options are on, built in or as modules; those that the scripts
    /// derive are among them, as in the literature's counts.
    pub fn options(&self) -> usize {
        self.on().count()
    }

    /// How many options are modules.
    pub fn modules(&self) -> usize {
        self.set.values().filter(|value| *value == "m").count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_is_counted_and_what_is_not_set_is_not() {
        let text = "# CONFIG_SMP is not set\nCONFIG_NET=y\nCONFIG_NR_CPUS=1\n\
                    CONFIG_EXT4_FS=m\nCONFIG_X=\"y\"\nnonsense\n";
        let config = Config::read(text);
        assert!(config.has(&Symbol::new("NET").unwrap()));
        assert!(!config.has(&Symbol::new("SMP").unwrap()));
        assert!(!config.has(&Symbol::new("EXT4_FS").unwrap()));
        assert_eq!((config.options(), config.modules()), (2, 1));
    }
}
