//! What a kernel offers to who attacks it, by its configuration: the system calls that it answers, and
//! CVE records of the files that it compiles.

use std::collections::BTreeSet;

use tare_tailor::calls::{self, TableError};
use tare_tailor::cves::Records;
use tare_tailor::kbuild::Kbuild;
use tare_tailor::kconfig::Config;
use tare_tailor::source::{Series, Tree};

use super::figures::{CALLS_ANSWERED, CVE_RECORDS, CVES};
use super::sample::Line;

/// By what every kernel is held.
pub(super) struct Surface<'a> {
    calls: BTreeSet<String>,
    series: Series,
    kbuild: Kbuild<'a>,
    records: Option<&'a Records>,
}

impl<'a> Surface<'a> {
    /// Of sources, and CVE records where there are any.
    pub(super) fn of(tree: &'a Tree, records: Option<&'a Records>) -> Result<Self, TableError> {
        Ok(Self {
            calls: calls::of(tree)?,
            series: tree.series(),
            kbuild: Kbuild::of(tree.dir()),
            records,
        })
    }

    /// How many records there are.
    pub(super) fn of_records(&self) -> Option<Line> {
        let count = self.records?.files.len() as f64;
        Some(Line::single(CVE_RECORDS, "", count))
    }

    /// What a configuration offers.
    pub(super) fn lines(&self, name: &str, config: &Config) -> Vec<Line> {
        let answered = calls::reachable(&self.calls, config, self.series).len() as f64;
        let cves = self.records.map(|records| {
            let count = self.kbuild.count(&records.files, config) as f64;
            Line::single(CVES, name, count)
        });
        let answered = Line::single(CALLS_ANSWERED, name, answered);
        [answered].into_iter().chain(cves).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_larger_configuration_answers_more_calls_and_compiles_more_files_of_records() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("Kconfig", ""),
            ("scripts/kconfig/Makefile", ""),
            (
                "Makefile",
                "VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 1\nobj-y += fs/ net/\n",
            ),
            (
                "fs/Makefile",
                "obj-y += open.o\nobj-$(CONFIG_EPOLL) += eventpoll.o\n",
            ),
            ("net/Makefile", "obj-$(CONFIG_NET) += socket.o\n"),
            (
                "arch/x86/entry/syscalls/syscall_64.tbl",
                "0 common read sys_read\n41 common socket sys_socket\n213 common epoll_create sys_epoll_create\n",
            ),
        ] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let tree = Tree::open(dir.path()).unwrap();
        let files = [
            &["fs/open.c"][..],
            &["fs/eventpoll.c", "net/socket.c"],
            &["net/socket.c", "arch/arm/kernel/a.c"],
            &["drivers/a/none.c"],
        ];
        let records = Records {
            files: files
                .iter()
                .map(|record| record.iter().map(|file| (*file).to_owned()).collect())
                .collect(),
            ..Records::default()
        };
        let surface = Surface::of(&tree, Some(&records)).unwrap();
        let of = |config: &str| {
            let lines = surface.lines("k", &Config::read(config)).into_iter();
            let values = lines.map(|line| match line {
                Line::Single { figure, value } => (figure, value),
                other => panic!("{other:?}"),
            });
            values.collect::<Vec<_>>()
        };
        let right = |calls: f64, cves: f64| {
            vec![
                ("calls_answered.k".to_owned(), calls),
                ("cves.k".to_owned(), cves),
            ]
        };
        assert_eq!(of(""), right(1.0, 1.0));
        assert_eq!(of("CONFIG_EPOLL=y\n"), right(2.0, 2.0));
        assert_eq!(of("CONFIG_EPOLL=y\nCONFIG_NET=m\n"), right(3.0, 3.0));
        assert!(matches!(
            surface.of_records(),
            Some(Line::Single { figure, value: 4.0 }) if figure == "cve_records"
        ));
        let without = Surface::of(&tree, None).unwrap();
        assert!(without.of_records().is_none());
        assert_eq!(without.lines("k", &Config::default()).len(), 1);
    }
}
