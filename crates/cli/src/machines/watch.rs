//! `tare stats --watch`: the activity of the disks, line by line, and R's distribution.
//!
//! On a terminal the view is redrawn at each sample; elsewhere each interval is a line and the
//! distribution comes at the end. It ends with the machine, after `--count` intervals, or by
//! Ctrl-C.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use signal_hook::consts::SIGINT;
use tare_control::client::{Client, ClientError};
use tare_control::exit::ExitCode;
use tare_control::live::{self, DiskInterval, RatioShare};
use tare_control::stats::Stats;

use super::stats_error::StatsError;
use crate::failure::{CommandResult, Failure};
use crate::output::{Reader, print, print_while_read};

/// How often to check for Ctrl-C while waiting.
const LOOK: Duration = Duration::from_millis(50);
/// Lines that stay above the distribution on a terminal.
const KEPT_LINES: usize = 12;
/// Widest bar of the distribution.
const BAR: f64 = 44.0;

/// How to watch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watching {
    pub(super) interval: Duration,
    /// Intervals until the end; `None`: as long as the machine runs.
    pub(super) count: Option<u64>,
    pub(super) form: Form,
}

/// What is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    /// One document for each sample, on its own line.
    Json,
}

/// A sample as JSON.
#[derive(Debug, Serialize)]
struct Sample<'a> {
    disks: &'a [DiskInterval],
    /// Since watching began, by disk.
    distribution: Vec<(String, Vec<RatioShare>)>,
}

/// Watches the disks of the machine that `client` asks.
pub(super) fn watch(name: &str, client: &mut Client, how: Watching) -> CommandResult {
    let interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGINT, Arc::clone(&interrupted))
        .map_err(|error| Failure::new(ExitCode::Internal, error))?;
    let first = ask(name, client)?;
    if live::disks(&first).next().is_none() {
        return Err(StatsError::NoDisk(name.to_owned()).into());
    }
    let mut view = View::new(how.form, first.clone());
    let mut last = first;
    let mut due = Instant::now();
    let mut left = how.count.unwrap_or(u64::MAX);
    while left > 0 {
        due = next_due(due, Instant::now(), how.interval);
        if !sleep_until(due, &interrupted) {
            view.end()?;
            return Ok(ExitCode::Interrupted);
        }
        let now = match client.stats() {
            Ok(now) => now,
            // The machine has ended.
            Err(ClientError::Connect { .. } | ClientError::Broken(_)) => break,
            Err(source) => return Err(unanswered(name, source).into()),
        };
        if view.show(&last, &now)? == Reader::Closed {
            return Ok(ExitCode::Success);
        }
        last = now;
        left -= 1;
    }
    view.end()?;
    Ok(ExitCode::Success)
}

fn ask(name: &str, client: &mut Client) -> Result<Stats, StatsError> {
    client.stats().map_err(|source| unanswered(name, source))
}

fn unanswered(name: &str, source: ClientError) -> StatsError {
    StatsError::Ask {
        name: name.to_owned(),
        source,
    }
}

/// When the next sample is due. Those that were missed, in a pause by Ctrl-Z or while the machine did
/// not answer, are not made up for: they would follow each other at once.
fn next_due(due: Instant, now: Instant, interval: Duration) -> Instant {
    let next = due + interval;
    if next > now { next } else { now + interval }
}

/// Sleeps; `false` if interrupted.
fn sleep_until(due: Instant, interrupted: &AtomicBool) -> bool {
    loop {
        if interrupted.load(Ordering::Relaxed) {
            return false;
        }
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(LOOK));
    }
}

/// The samples so far.
struct View {
    form: Form,
    redraws: bool,
    first: Stats,
    last: Stats,
    lines: Vec<String>,
}

impl View {
    fn new(form: Form, first: Stats) -> Self {
        Self {
            form,
            redraws: form == Form::Text && io::stdout().is_terminal(),
            last: first.clone(),
            first,
            lines: Vec::new(),
        }
    }

    fn show(&mut self, before: &Stats, now: &Stats) -> Result<Reader, Failure> {
        let intervals = live::intervals(before, now);
        self.last = now.clone();
        if self.form == Form::Json {
            let sample = Sample {
                disks: &intervals,
                distribution: self.distribution(),
            };
            let json = serde_json::to_string(&sample)
                .map_err(|error| Failure::new(ExitCode::Internal, error))?;
            return print_while_read(&(json + "\n"));
        }
        let new: Vec<_> = intervals.iter().map(line).collect();
        if !self.redraws {
            let head = if self.lines.is_empty() { head() } else { "" };
            self.lines.clone_from(&new);
            return print_while_read(&format!("{head}{}", new.concat()));
        }
        self.lines.extend(new);
        let old = self.lines.len().saturating_sub(KEPT_LINES);
        self.lines.drain(..old);
        // Cursor home, clear below.
        let text = format!("\x1b[H\x1b[J{}{}", head(), self.lines.concat());
        print_while_read(&(text + &histograms(&self.distribution())))
    }

    /// Prints the distribution, unless the view shows it already.
    fn end(&self) -> CommandResult {
        if self.redraws || self.form == Form::Json {
            return Ok(ExitCode::Success);
        }
        print(&histograms(&self.distribution()))
    }

    fn distribution(&self) -> Vec<(String, Vec<RatioShare>)> {
        let pairs = live::disks(&self.first).zip(live::disks(&self.last));
        pairs
            .map(|((disk, before), (_, now))| (disk, live::distribution(Some(before), now)))
            .collect()
    }
}

fn head() -> &'static str {
    "    TIME s  DISK        IOPS  IN FLIGHT      R  INTERRUPTS/IO\n"
}

fn line(it: &DiskInterval) -> String {
    let (r, interrupts) = match it.completions {
        0 => ("-".to_owned(), "-".to_owned()),
        _ => (
            format!("{:.3}", it.r),
            format!("{:.3}", it.interrupts_per_io),
        ),
    };
    format!(
        "{:>10.1}  {:<6} {:>9.0} {:>10.1} {r:>6} {interrupts:>14}\n",
        it.to_s, it.disk, it.iops, it.in_flight
    )
}

/// R's distribution of each disk whose epochs had any completion.
fn histograms(disks: &[(String, Vec<RatioShare>)]) -> String {
    let mut text = String::new();
    for (disk, shares) in disks.iter().filter(|(_, shares)| !shares.is_empty()) {
        let all: u64 = shares.iter().map(|share| share.completions).sum();
        let _ = writeln!(text, "\n{disk}: completions by the R of their epoch");
        for share in shares {
            let part = share.completions as f64 / all.max(1) as f64;
            let bar = "#".repeat((part * BAR).round() as usize);
            let row = format!("  R {:.3} {:>6.2} %  {bar}", share.r, part * 100.0);
            let _ = writeln!(text, "{}", row.trim_end());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(completions: u64) -> DiskInterval {
        DiskInterval {
            disk: "disk15".to_owned(),
            from_s: 99_998.0,
            to_s: 99_999.0,
            completions,
            iops: completions as f64,
            in_flight: 256.0,
            r: 0.25,
            interrupts_per_io: 0.125,
        }
    }

    #[test]
    fn samples_that_were_missed_are_not_made_up_for() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let due = |late: Duration| next_due(start, start + late, second) - start;
        assert_eq!(due(Duration::ZERO), second);
        assert_eq!(
            due(second / 4),
            second,
            "at even times, not after each answer"
        );
        assert_eq!(due(second), 2 * second);
        assert_eq!(due(600 * second), 601 * second);
    }

    #[test]
    fn columns_stand_below_their_titles() {
        let line = line(&interval(9_999_999));
        assert_eq!(line.len(), head().len(), "{line}{}", head());
        assert!(line.contains("0.250") && line.contains("0.125"), "{line}");
    }

    #[test]
    fn an_idle_interval_has_no_ratio() {
        assert!(line(&interval(0)).trim_end().ends_with('-'));
    }

    #[test]
    fn the_histogram_shows_shares_and_leaves_out_idle_disks() {
        let share = |r, completions| RatioShare { r, completions };
        let disks = [
            ("disk0".to_owned(), vec![share(1.0, 1), share(0.25, 3)]),
            ("disk1".to_owned(), Vec::new()),
        ];
        let text = histograms(&disks);
        assert!(text.contains("R 0.250  75.00 %  ####"), "{text}");
        assert!(!text.contains("disk1"), "{text}");
        assert!(text.lines().all(|line| line.len() < 80), "{text}");
    }
}
