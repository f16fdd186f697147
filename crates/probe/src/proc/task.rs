//! Files of one thread.

use tare_host::cpu_list::cpu_list;

/// `/proc/PID/stat` and `/proc/PID/task/TID/stat` (`proc_pid_stat(5)`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskStat {
    /// Name.
    pub comm: String,
    /// Parent process.
    pub parent: u32,
    /// User mode with the guest, clock ticks.
    pub user_ticks: u64,
    /// Kernel mode, clock ticks.
    pub system_ticks: u64,
    /// Start, clock ticks since boot.
    pub started_ticks: u64,
    /// CPU that it was last on.
    pub cpu: u32,
    /// In a guest, clock ticks.
    pub guest_ticks: u64,
    /// Page faults, minor and major.
    pub faults: u64,
}

impl TaskStat {
    /// The fields of a line. The name may hold anything, also parentheses: it ends at
    /// the last one.
    pub fn parse(line: &str) -> Option<Self> {
        let open = line.find('(')?;
        let close = line.rfind(')')?;
        let fields: Vec<&str> = line.get(close + 1..)?.split_whitespace().collect();
        // The first of them is the third of the line.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            comm: line.get(open + 1..close)?.to_owned(),
            parent: u32::try_from(number(4)?).ok()?,
            user_ticks: number(14)?,
            system_ticks: number(15)?,
            started_ticks: number(22)?,
            cpu: u32::try_from(number(39)?).ok()?,
            guest_ticks: number(43).unwrap_or(0),
            faults: number(10)?.saturating_add(number(12)?),
        })
    }
}

/// Time on a CPU and time waiting for one, ns, of `schedstat`.
pub fn schedstat(text: &str) -> Option<(u64, u64)> {
    let mut fields = text.split_whitespace();
    let run = fields.next()?.parse().ok()?;
    Some((run, fields.next()?.parse().ok()?))
}

/// Context switches and allowed CPUs of `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// It waited.
    pub voluntary: u64,
    /// It could have run.
    pub involuntary: u64,
    /// Where it may run.
    pub allowed_cpus: Vec<u32>,
}

pub(crate) fn switches(status: &str) -> Switches {
    let field = |name: &str| {
        let lines = status.lines().filter_map(|line| line.split_once(':'));
        lines
            .filter(|(key, _)| *key == name)
            .map(|(_, value)| value.trim())
            .next()
            .unwrap_or_default()
    };
    Switches {
        voluntary: field("voluntary_ctxt_switches").parse().unwrap_or(0),
        involuntary: field("nonvoluntary_ctxt_switches").parse().unwrap_or(0),
        allowed_cpus: cpu_list(field("Cpus_allowed_list")),
    }
}

/// `se.nr_migrations` of `sched`.
pub(crate) fn migrations(sched: &str) -> Option<u64> {
    let line = sched
        .lines()
        .find(|line| line.starts_with("se.nr_migrations"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

/// Bytes from and to block devices, of `io`.
pub(crate) fn disk(io: &str) -> Option<(u64, u64)> {
    let field = |name: &str| {
        let mut lines = io.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
    };
    Some((field("read_bytes")?, field("write_bytes")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "77 (a) b (c) S 1 77 77 0 -1 4194304 10 0 2 0 31 42 0 0 20 0 4 0 9911 1 2 3 0 0 0 0 0 0 0 0 0 0 0 0 17 5 0 0 0 8 0";

    #[test]
    fn a_name_may_hold_parentheses_and_blanks() {
        let stat = TaskStat::parse(LINE);
        let expected = TaskStat {
            comm: "a) b (c".to_owned(),
            parent: 1,
            user_ticks: 31,
            system_ticks: 42,
            started_ticks: 9911,
            cpu: 5,
            guest_ticks: 8,
            faults: 12,
        };
        assert_eq!(stat, Some(expected));
    }

    #[test]
    fn lines_that_are_cut_give_nothing() {
        for end in 0..60 {
            assert_eq!(TaskStat::parse(&LINE[..end]), None, "{end}");
        }
        assert_eq!(TaskStat::parse(") ("), None);
    }

    #[test]
    fn the_scheduler_s_files_are_understood() {
        assert_eq!(schedstat("120 30 4\n"), Some((120, 30)));
        assert_eq!(schedstat("120"), None);
        assert_eq!(migrations("a : 1\nse.nr_migrations   :     12\n"), Some(12));
        let io =
            "rchar: 1\nsyscr: 2\nread_bytes: 4096\nwrite_bytes: 512\ncancelled_write_bytes: 0\n";
        assert_eq!(disk(io), Some((4_096, 512)));
        assert_eq!(disk("rchar: 1\nread_bytes: 4096\n"), None);
        let status = "Cpus_allowed_list:\t0-1\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t3\n";
        let found = switches(status);
        assert_eq!((found.voluntary, found.involuntary), (7, 3));
        assert_eq!(found.allowed_cpus, [0, 1]);
    }
}
