//! A machine as one line, and the columns by which lines are sorted.

use clap::ValueEnum;
use tare_account::Account;
use tare_host::printable::printable;
use tare_host::shell::quoted;
use tare_why::text::is_rough;
use tare_why::{Load, Measured, Rate, diagnose};

/// A machine within one interval.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) pid: u32,
    /// Length of its interval.
    pub(super) seconds: f64,
    /// Shares of a core.
    pub(super) cpu: f64,
    pub(super) guest: f64,
    pub(super) steal: f64,
    /// Bounds of the guest's share, if known.
    pub(super) guest_interval: Option<[f64; 2]>,
    pub(super) exits: Rate,
    pub(super) halts: Rate,
    pub(super) interrupts: Rate,
    /// Bytes per second from and to block devices, and through tap devices; `None` if unknown.
    pub(super) disk: Option<f64>,
    pub(super) network: Option<f64>,
    /// Page faults per second.
    pub(super) faults: f64,
    /// Short name of the largest cause, with a question mark if another one may be larger.
    pub(super) cause: String,
    /// The largest cause, as a sentence.
    pub(super) sentence: String,
}

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Column {
    /// The machine's name
    Name,
    /// The monitor's process
    Pid,
    /// CPU time of all its threads
    Cpu,
    /// CPU time of the guest's own code
    Guest,
    /// Exits per second
    Exits,
    /// Halts per second
    Halts,
    /// Interrupts per second
    Irqs,
    /// Time that vCPUs waited for a CPU
    Steal,
    /// Bytes per second from and to block devices
    Disk,
    /// Bytes per second by tap devices
    Net,
    /// Page faults per second
    Faults,
    /// The largest cause
    Cause,
}

impl Column {
    /// In the order of the table, with title and width.
    pub(super) const ALL: [(Self, &'static str, u16); 12] = [
        (Self::Name, "NAME", 14),
        (Self::Pid, "PID", 7),
        (Self::Cpu, "CPU%", 5),
        (Self::Guest, "GUEST", 5),
        (Self::Exits, "EXITS/S", 7),
        (Self::Halts, "HALT/S", 6),
        (Self::Irqs, "IRQ/S", 6),
        (Self::Steal, "STEAL", 5),
        (Self::Disk, "DISK/S", 6),
        (Self::Net, "NET/S", 6),
        (Self::Faults, "FAULT/S", 7),
        (Self::Cause, "TOP CAUSE", 15),
    ];

    /// The columns that fit into a line of this many characters; the least important ones are
    /// dropped first.
    pub(super) fn fitting(width: u16) -> Vec<(Self, &'static str, u16)> {
        const FIRST_TO_GO: [Column; 10] = [
            Column::Faults,
            Column::Net,
            Column::Disk,
            Column::Pid,
            Column::Irqs,
            Column::Halts,
            Column::Guest,
            Column::Exits,
            Column::Steal,
            Column::Cause,
        ];
        let mut columns = Self::ALL.to_vec();
        for least in FIRST_TO_GO {
            let blanks = columns.len() as u16 - 1;
            let needed: u16 = columns.iter().map(|(.., width)| width).sum();
            if needed + blanks <= width {
                break;
            }
            columns.retain(|(column, ..)| *column != least);
        }
        columns
    }

    /// The next column, or the previous one, with wrap-around.
    pub(super) fn beside(self, steps: isize) -> Self {
        let count = Self::ALL.len() as isize;
        let here = Self::ALL.iter().position(|(column, ..)| *column == self);
        let next = (here.unwrap_or(0) as isize + steps).rem_euclid(count);
        Self::ALL[next as usize].0
    }

    /// Whether its cells are numbers, which are right-aligned.
    pub(super) fn is_number(self) -> bool {
        !matches!(self, Self::Name | Self::Cause)
    }
}

impl Row {
    /// From the account of an interval.
    pub(super) fn of(account: &Account, prices: Option<&Measured>) -> Self {
        let load = Load::from(account);
        let diagnosis = diagnose(&load, prices).rendered(quoted);
        let largest = diagnosis.findings.first();
        let doubt = if diagnosis.first_is_largest() {
            ""
        } else {
            "?"
        };
        let guest = diagnosis
            .breakdown_interval
            .map(|ends| ends.map(|it| it.guest));
        Self {
            name: account.vm.name.clone(),
            pid: account.vm.pid,
            seconds: account.window_ns as f64 / 1e9,
            cpu: diagnosis.breakdown.total,
            guest: diagnosis.breakdown.guest,
            guest_interval: guest,
            steal: load.sum(|vcpu| vcpu.waiting),
            exits: load.all_exits_rate(),
            halts: load.halt_rate(),
            interrupts: load.all_interrupts_rate(),
            disk: disk_bytes(account).map(|bytes| account.per_second(bytes)),
            network: account
                .network
                .map(|it| account.per_second(it.to_guest_bytes + it.from_guest_bytes)),
            faults: account.per_second(faults(account)),
            cause: largest.map_or_else(
                || "-".to_owned(),
                |finding| format!("{}{doubt}", finding.cause.short()),
            ),
            sentence: largest.map_or_else(String::new, |finding| {
                printable(&finding.sentence()).into_owned()
            }),
        }
    }

    /// The text of one cell.
    pub(super) fn cell(&self, column: Column) -> String {
        match column {
            Column::Name => printable(&self.name).into_owned(),
            Column::Pid => self.pid.to_string(),
            Column::Cpu => percent(self.cpu),
            Column::Guest => known_percent(self.guest, self.guest_interval),
            Column::Exits => known(&self.exits),
            Column::Halts => known(&self.halts),
            Column::Irqs => known(&self.interrupts),
            Column::Steal => percent(self.steal),
            Column::Disk => bytes(self.disk),
            Column::Net => bytes(self.network),
            Column::Faults => short(self.faults),
            Column::Cause => self.cause.clone(),
        }
    }
}

/// Bytes from and to block devices by all threads; `None` if no thread's are known.
fn disk_bytes(account: &Account) -> Option<u64> {
    let threads = account.threads.iter();
    let known =
        threads.filter_map(|it| Some(it.resources.read_bytes? + it.resources.written_bytes?));
    known.reduce(|sum, bytes| sum + bytes)
}

fn faults(account: &Account) -> u64 {
    let threads = account.threads.iter();
    threads.map(|thread| thread.resources.page_faults).sum()
}

/// Sorts numbers in descending order, names in ascending order.
pub(super) fn sort(rows: &mut [Row], by: Column) {
    let number = |row: &Row| match by {
        Column::Cpu => row.cpu,
        Column::Guest => row.guest,
        Column::Exits => row.exits.per_second,
        Column::Halts => row.halts.per_second,
        Column::Irqs => row.interrupts.per_second,
        Column::Steal => row.steal,
        Column::Disk => row.disk.unwrap_or(-1.0),
        Column::Net => row.network.unwrap_or(-1.0),
        Column::Faults => row.faults,
        Column::Name | Column::Pid | Column::Cause => 0.0,
    };
    rows.sort_by(|a, b| {
        let text = match by {
            Column::Name => a.name.cmp(&b.name),
            Column::Cause => a.cause.cmp(&b.cause),
            _ => std::cmp::Ordering::Equal,
        };
        text.then(number(b).total_cmp(&number(a)))
            .then(a.pid.cmp(&b.pid))
    });
}

fn percent(share: f64) -> String {
    // As in `short`: no minus before zero.
    match share.max(0.0) * 100.0 + 0.0 {
        value if value >= 99.95 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

/// A share with only the digits that its interval supports; at most five characters.
fn known_percent(share: f64, interval: Option<[f64; 2]>) -> String {
    if !is_rough(share, interval) {
        return percent(share);
    }
    let known = tare_why::text::known_percent(share, interval);
    format!("~{}", known.trim_end_matches(" %"))
}

/// A rate with only the digits that are known; at most six characters.
fn known(rate: &Rate) -> String {
    let rough = if rate.is_rough() { "~" } else { "" };
    format!("{rough}{}", short(rate.known()))
}

/// At most five characters.
fn short(hz: f64) -> String {
    // The sum of nothing is -0.0, and the maximum of both zeros may be either.
    match hz + 0.0 {
        _ if hz >= 999_500.0 => format!("{:.1}M", hz / 1e6),
        _ if hz >= 9_999.5 => format!("{:.0}k", hz / 1e3),
        _ if hz >= 9.95 => format!("{hz:.0}"),
        hz => format!("{hz:.1}"),
    }
}

/// At most six characters; units of 1,024.
fn bytes(per_second: Option<f64>) -> String {
    let Some(mut value) = per_second else {
        return "-".to_owned();
    };
    for unit in ["", "K", "M", "G", "T"] {
        match value {
            _ if value < 9.95 && !unit.is_empty() => return format!("{value:.1}{unit}"),
            _ if value < 1_023.5 => return format!("{value:.0}{unit}"),
            _ => value /= 1_024.0,
        }
    }
    ">999T".to_owned()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn row(name: &str, pid: u32, cpu: f64) -> Row {
        Row {
            name: name.to_owned(),
            pid,
            seconds: 1.0,
            cpu,
            guest: cpu / 2.0,
            guest_interval: Some([cpu / 2.0; 2]),
            steal: 0.0,
            exits: Rate::exact(36_000.0 * cpu),
            halts: Rate::exact(0.4),
            interrupts: Rate::exact(1000.0),
            disk: Some(12.0 * 1_048_576.0),
            network: None,
            faults: 3.0,
            cause: "polling loses".to_owned(),
            sentence: "halt polling that loses".to_owned(),
        }
    }

    #[test]
    fn numbers_descend_and_names_ascend() {
        let mut rows = [row("b", 1, 0.1), row("a", 2, 0.2), row("c", 3, 0.2)];
        let mut order = |by| {
            sort(&mut rows, by);
            rows.iter().map(|row| row.pid).collect::<Vec<_>>()
        };
        assert_eq!(order(Column::Cpu), [2, 3, 1]);
        assert_eq!(order(Column::Name), [2, 1, 3]);
        assert_eq!(order(Column::Pid), [1, 2, 3]);
    }

    #[test]
    fn cells_fit_their_columns() {
        let mut row = row("m", 4_194_304, 15.99);
        row.exits = Rate::exact(12_345_678.0);
        row.disk = Some(1_023.4 * 1_048_576.0);
        row.interrupts = Rate::exact(std::iter::empty::<f64>().sum());
        row.cpu = std::iter::empty::<f64>().sum();
        let cells = [Column::Irqs, Column::Cpu].map(|column| row.cell(column));
        assert_eq!(cells, ["0.0", "0.0"]);
        row.cpu = 15.99;
        row.interrupts = rough(999_499.0, None);
        row.guest_interval = None;
        for (column, _, width) in Column::ALL {
            assert!(row.cell(column).len() <= usize::from(width), "{column:?}");
        }
    }

    fn rough(hz: f64, margin: Option<f64>) -> Rate {
        Rate {
            per_second: hz,
            interval: margin.map(|margin| [(hz - margin).max(0.0), hz + margin]),
            counted_share: 0.14,
        }
    }

    #[test]
    fn a_cell_has_no_digit_that_is_not_known() {
        let mut row = row("m", 1, 0.5);
        let cells = [
            (30_412.0, Some(0.0), "30k"),
            (1_234.0, Some(5.0), "1234"),
            (1_234.0, Some(30.0), "1230"),
            (1_234.0, Some(400.0), "~1200"),
            (1_234.0, Some(2_000.0), "~1000"),
            (1_234.0, None, "~1200"),
            (56.0, Some(30.0), "~60"),
            (3.4, Some(0.5), "3.4"),
        ];
        for (hz, margin, text) in cells {
            row.exits = rough(hz, margin);
            assert_eq!(row.cell(Column::Exits), text, "{margin:?}");
        }
        let shares = [
            (0.304, Some([0.302, 0.306]), "30.4"),
            (0.304, Some([0.25, 0.37]), "~30"),
            (0.47, Some([0.1, 0.9]), "~50"),
            (0.304, None, "~30"),
            (3.456, Some([1.0, 6.0]), "~300"),
        ];
        for (share, interval, text) in shares {
            (row.guest, row.guest_interval) = (share, interval);
            assert_eq!(row.cell(Column::Guest), text, "{interval:?}");
        }
    }

    #[test]
    fn a_narrow_line_has_whole_columns_and_less_of_them() {
        let titles = |width| -> Vec<_> {
            let columns = Column::fitting(width).into_iter();
            columns.map(|(_, title, _)| title).collect()
        };
        assert_eq!(titles(100).len(), Column::ALL.len());
        assert_eq!(titles(99).len(), Column::ALL.len() - 1);
        assert_eq!(titles(80).len(), Column::ALL.len() - 3);
        assert_eq!(titles(79), titles(80));
        assert_eq!(titles(42), ["NAME", "CPU%", "STEAL", "TOP CAUSE"]);
        assert_eq!(titles(41), ["NAME", "CPU%", "TOP CAUSE"]);
        assert_eq!(titles(1), ["NAME", "CPU%"]);
    }

    #[test]
    fn bytes_have_a_unit_and_six_characters_at_most() {
        let cases = [
            (None, "-"),
            (Some(0.0), "0"),
            (Some(1_023.0), "1023"),
            (Some(2_048.0), "2.0K"),
            (Some(12.0 * 1_048_576.0), "12M"),
            (Some(1_023.6 * 1_024.0), "1.0M"),
            (Some(5e12), "4.5T"),
            (Some(f64::MAX), ">999T"),
        ];
        for (value, text) in cases {
            assert_eq!(bytes(value), text, "{value:?}");
        }
    }

    #[test]
    fn a_name_cannot_move_the_cursor() {
        let mut row = row("m", 1, 0.0);
        row.name = "a\u{1b}[2Jb\n".to_owned();
        assert_eq!(row.cell(Column::Name), "a\u{fffd}[2Jb\u{fffd}");
    }

    #[test]
    fn columns_follow_each_other_around_the_ends() {
        assert_eq!(Column::Name.beside(-1), Column::Cause);
        assert_eq!(Column::Cause.beside(1), Column::Name);
        assert_eq!(Column::Cpu.beside(1), Column::Guest);
    }
}
