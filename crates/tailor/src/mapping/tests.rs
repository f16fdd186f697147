//! The data against itself and against the kernel's sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::hardening::Exception;
use super::*;

#[test]
fn every_data_file_is_well_formed() {
    assert!(read_all().unwrap().len() > 80);
}

#[test]
fn a_mistake_in_a_data_file_is_named_with_its_place() {
    let no_trigger = "[[row]]\nneeds = [\"NET\"]\nsource = []\n";
    let error = row::read("x.toml", no_trigger).unwrap_err();
    assert_eq!(
        error.to_string(),
        "x.toml: row 1 has 0 triggers instead of one"
    );
    let two = "[[row]]\ncalls = [\"a\"]\nioctls = [\"b\"]\nneeds = []\nsource = []\n";
    let error = row::read("x.toml", two).unwrap_err();
    assert!(error.to_string().contains("has 2 triggers"), "{error}");
    let wrong = "[[row]]\ncall = [\"a\"]\n";
    let error = row::read("x.toml", wrong).unwrap_err();
    let place = std::error::Error::source(&error).unwrap().to_string();
    assert!(place.contains("line 2, column 1"), "{place}");
}

/// A tree with the kernel's sources, and what they are a version of.
fn tree() -> Option<(PathBuf, Series)> {
    crate::testing::tree().map(|tree| (tree.dir().to_owned(), tree.series()))
}

#[test]
fn a_series_has_its_own_rows_and_names() {
    let needs = |series| -> BTreeSet<&str> {
        let all = rows(series).iter();
        all.flat_map(|row| row.needs.iter().map(Symbol::name))
            .collect()
    };
    let (old, new) = (needs(Series::V6_1), needs(Series::V6_12));
    for name in ["RETPOLINE", "CPU_SRSO", "RANDOM_TRUST_CPU"] {
        assert!(old.contains(name) && !new.contains(name), "{name}");
    }
    for name in ["MITIGATION_RETPOLINE", "MITIGATION_SRSO", "MITIGATION_GDS"] {
        assert!(new.contains(name) && !old.contains(name), "{name}");
    }
    let names = "[[row]]\nalways = true\nneeds = [\"NET\"]\nsource = []\nseries = [\"5.10\"]\n";
    let error = row::read("x.toml", names).unwrap_err();
    let why = std::error::Error::source(&error).unwrap().to_string();
    assert!(why.contains("6.12"), "{why}");
}

#[test]
fn every_symbol_is_in_the_files_that_its_row_names() {
    let Some((tree, series)) = tree() else { return };
    let mut texts = BTreeMap::new();
    let mut unfounded = Vec::new();
    for row in rows(series) {
        let sources: String = row
            .source
            .iter()
            .map(|file| {
                texts
                    .entry(file.clone())
                    .or_insert_with(|| {
                        fs::read_to_string(tree.join(file))
                            .unwrap_or_else(|error| panic!("{file}: {error}"))
                    })
                    .clone()
            })
            .collect();
        for symbol in &row.needs {
            let is_mentioned = sources.lines().any(|line| mentions(line, symbol));
            if !is_mentioned && !row.where_known {
                unfounded.push(format!("{symbol} is not in {:?}", row.source));
            }
        }
    }
    assert_eq!(unfounded, Vec::<String>::new());
}

/// `CONFIG_X` in code, `config X` in a Kconfig file.
fn mentions(line: &str, symbol: &Symbol) -> bool {
    let is_word =
        |word: &str| word == symbol.name() || word.strip_prefix("CONFIG_") == Some(symbol.name());
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .any(is_word)
}

#[test]
fn every_call_that_a_kernel_may_lack_has_one_row() {
    let Some((tree, series)) = tree() else { return };
    let calls = calls_of_x86_64(&tree);
    let lacking: BTreeSet<String> = conditional(&tree.join("kernel/sys_ni.c"), "COND_SYSCALL(")
        .chain(conditional(
            &tree.join("kernel/time/posix-stubs.c"),
            "SYS_NI(",
        ))
        .filter(|name| calls.contains(name))
        .collect();
    let mut listed = BTreeSet::new();
    for row in rows(series) {
        if let Trigger::Calls(calls) = &row.trigger {
            for call in calls {
                assert!(listed.insert(call.clone()), "{call} has two rows");
            }
        }
    }
    let missing: Vec<_> = lacking.difference(&listed).collect();
    let too_many: Vec<_> = listed.difference(&lacking).collect();
    assert_eq!((missing, too_many), (vec![], vec![]));
}

/// Names in the table of x86-64's calls, without x32's.
fn calls_of_x86_64(tree: &Path) -> BTreeSet<String> {
    let table = tree.join("arch/x86/entry/syscalls/syscall_64.tbl");
    let text = fs::read_to_string(table).unwrap();
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            (fields.get(1) != Some(&"x32")).then(|| fields.get(2).map(ToString::to_string))?
        })
        .collect()
}

/// Kconfig files below a directory of the tree.
fn kconfig_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files.extend(kconfig_files(&path));
        } else if entry.file_name().to_string_lossy().starts_with("Kconfig") {
            files.push(path);
        }
    }
    files
}

fn conditional(file: &Path, call: &'static str) -> impl Iterator<Item = String> {
    let text = fs::read_to_string(file).unwrap();
    let names: Vec<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix(call)?.strip_suffix(");"))
        .map(str::to_owned)
        .collect();
    names.into_iter()
}

/// Options of rows that the default kernel of a machine with a network has.
fn always_needed(series: Series) -> BTreeSet<&'static str> {
    let by_default = crate::cut::Cut::by_default();
    let counts = |row: &&Row| match &row.trigger {
        Trigger::Always => true,
        Trigger::Parts(parts) => parts.contains(&crate::target::Part::Network),
        _ => false,
    };
    let is_cut = |row: &Row| row.cut.is_some_and(|cut| by_default.contains(&cut));
    rows(series)
        .iter()
        .filter(counts)
        .filter(|row| !is_cut(row) && row.taken.is_none() && !row.optional)
        .flat_map(|row| row.needs.iter().chain(row.values.keys()))
        .map(Symbol::name)
        .collect()
}

#[test]
fn every_hardening_option_is_in_the_default_kernel_or_has_a_reason() {
    // The file's exceptions, by their places: one of each is for some series.
    let mut idle: BTreeMap<usize, Symbol> = BTreeMap::new();
    let mut used = BTreeSet::new();
    for series in Series::ALL {
        let lists = hardening::of(series);
        let needed = always_needed(series);
        let all: BTreeSet<&Symbol> = lists.debian.union(&lists.kspp).collect();
        let mut excepted = BTreeSet::new();
        for exception in &lists.exceptions {
            let Exception { options, why } = exception;
            assert!(why.len() > 20, "{options:?} has no reason");
        }
        let exceptions = lists.exceptions.iter().flat_map(|it| &it.options);
        for (at, option) in exceptions.enumerate() {
            assert!(excepted.insert(option), "{option} has two exceptions");
            if all.contains(option) && !needed.contains(option.name()) {
                used.insert(at);
            }
            idle.insert(at, option.clone());
        }
        let open: Vec<_> = all
            .iter()
            .filter(|it| !needed.contains(it.name()) && !excepted.contains(*it))
            .collect();
        assert!(
            open.is_empty(),
            "neither in a row nor an exception for {series:?}: {open:?}"
        );
    }
    idle.retain(|at, _| !used.contains(at));
    assert!(idle.is_empty(), "exceptions for nothing: {idle:?}");
}

#[test]
fn what_is_in_one_series_alone_is_listed_for_it() {
    let has = |series, name: &str| {
        let lists = hardening::of(series);
        let symbol = Symbol::new(name).unwrap();
        lists.debian.contains(&symbol) || lists.kspp.contains(&symbol)
    };
    for (name, of) in [
        ("DEBUG_CREDENTIALS", [true, false]),
        ("UBSAN_SANITIZE_ALL", [true, false]),
        ("SLAB_BUCKETS", [false, true]),
        ("RANDOM_KMALLOC_CACHES", [false, true]),
        ("RETPOLINE", [true, false]),
        ("MITIGATION_RETPOLINE", [false, true]),
        ("SECURITY_PERF_EVENTS_RESTRICT", [true, true]),
    ] {
        assert_eq!(Series::ALL.map(|series| has(series, name)), of, "{name}");
    }
}

#[test]
fn every_listed_option_is_in_its_series() {
    let Some((tree, series)) = tree() else { return };
    let lists = hardening::of(series);
    let mut known = BTreeSet::new();
    for file in kconfig_files(&tree) {
        let text = fs::read_to_string(file).unwrap_or_default();
        let names = text.lines().filter_map(|line| {
            let line = line.trim_start();
            let name = line
                .strip_prefix("config ")
                .or(line.strip_prefix("menuconfig "));
            name.map(|name| name.trim().to_owned())
        });
        known.extend(names);
    }
    let all = lists.debian.union(&lists.kspp);
    let unknown: Vec<_> = all.filter(|it| !known.contains(it.name())).collect();
    assert!(unknown.is_empty(), "not in these sources: {unknown:?}");
}

#[test]
fn the_lists_of_hardening_options_are_those_of_the_sources() {
    if let Some((tree, series)) = tree() {
        let lists = hardening::of(series);
        let text = fs::read_to_string(tree.join("security/Kconfig.hardening")).unwrap();
        let names = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("config "));
        // What a compiler can do, parts of those listed, and what only shows them.
        let aside = [
            "CC_HAS_",
            "GCC_PLUGIN_",
            "INIT_STACK_",
            "STACKLEAK_",
            "RANDSTRUCT",
        ];
        let unlisted: Vec<&str> = names
            .filter(|name| !Symbol::new(name).is_some_and(|it| lists.kspp.contains(&it)))
            .filter(|name| !aside.iter().any(|begin| name.starts_with(begin)))
            .collect();
        assert_eq!(unlisted, Vec::<&str>::new());
    }
    let kernel = tare_rootfs::Cache::open_default()
        .ok()
        .and_then(|cache| tare_rootfs::kernel::debian::find(&cache));
    let Some(kernel) = kernel else {
        tare_vmtest::lacks("Debian's kernel is not in the cache");
        return;
    };
    let text = fs::read_to_string(&kernel.config).unwrap();
    // Debian 12's.
    let lists = hardening::of(Series::V6_1);
    let config = crate::kconfig::Config::read(&text);
    let is_on = |option: &Symbol| config.value(option.name()).is_some_and(|it| it != "n");
    let off: Vec<_> = lists
        .debian
        .iter()
        .filter(|option| !is_on(option))
        .collect();
    assert!(off.is_empty(), "not on in Debian's kernel: {off:?}");
    let unlisted: Vec<_> = lists
        .kspp
        .difference(&lists.debian)
        .filter(|option| is_on(option) && option.name() != "IOMMU_SUPPORT")
        .collect();
    assert!(unlisted.is_empty(), "on in Debian's kernel: {unlisted:?}");
}
