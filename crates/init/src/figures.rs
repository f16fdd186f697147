//! What the first process tells of the start, in one line.

use std::fmt;
use std::str::FromStr;

/// Begin of the line.
const BEGIN: &str = "figures:";

/// Figures of the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The processor's clock when the first process began, cycles.
    pub begin_cycles: u64,
    /// The same when the command was about to start.
    pub ready_cycles: u64,
    /// Memory that the kernel manages, KiB.
    pub total_kib: u64,
    /// Free memory, KiB.
    pub free_kib: u64,
    /// Memory that programs could have, KiB.
    pub available_kib: u64,
}

impl Figures {
    /// The memory of `/proc/meminfo`.
    pub fn of_meminfo(text: &str) -> Self {
        let kib = |name: &str| {
            let mut lines = text.lines();
            let rest = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let number = rest.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
            number.unwrap_or(0)
        };
        Self {
            total_kib: kib("MemTotal"),
            free_kib: kib("MemFree"),
            available_kib: kib("MemAvailable"),
            ..Self::default()
        }
    }

    /// The figures on a console.
    pub fn on(console: &str) -> Option<Self> {
        console.lines().find_map(|line| line.parse().ok())
    }

    fn fields(&self) -> [u64; 5] {
        [
            self.begin_cycles,
            self.ready_cycles,
            self.total_kib,
            self.free_kib,
            self.available_kib,
        ]
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(BEGIN)?;
        self.fields().iter().try_for_each(|it| write!(f, " {it}"))
    }
}

/// A line of something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoFigures;

impl FromStr for Figures {
    type Err = NoFigures;

    fn from_str(line: &str) -> Result<Self, NoFigures> {
        let (_, numbers) = line.split_once(BEGIN).ok_or(NoFigures)?;
        let numbers: Result<Vec<u64>, _> = numbers.split_whitespace().map(str::parse).collect();
        match numbers.as_deref() {
            Ok(
                &[
                    begin_cycles,
                    ready_cycles,
                    total_kib,
                    free_kib,
                    available_kib,
                ],
            ) => Ok(Self {
                begin_cycles,
                ready_cycles,
                total_kib,
                free_kib,
                available_kib,
            }),
            _ => Err(NoFigures),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_among_other_lines() {
        let memory = "MemTotal:  1000 kB\nMemFree:   900 kB\nMemAvailable: 950 kB\n";
        let figures = Figures {
            begin_cycles: 7,
            ready_cycles: 9,
            ..Figures::of_meminfo(memory)
        };
        assert_eq!(figures.available_kib, 950);
        let console = format!("[    0.1] Run init\ntare-init: {figures}\r\nhello\n");
        assert_eq!(Figures::on(&console), Some(figures));
        assert_eq!(Figures::on("figures: 1 2 x 4 5"), None);
        assert_eq!(Figures::on("figures: 1 2"), None);
    }
}
