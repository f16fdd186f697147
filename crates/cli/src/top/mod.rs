//! `tare top`: all virtual machines of this host, live.
//!
//! One thread observes interval after interval; the loop here draws its results and reads keys.
//! Where standard output is not a terminal, the table is printed once for each interval instead.

mod batch;
mod row;
mod screen;
mod view;

use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tare_account::Account;
use tare_control::exit::ExitCode;

use crate::args::TopArgs;
use crate::failure::{CommandResult, Failure};
use crate::observe::{ObserveError, Watch};
use crate::signals::Requests;
use crate::why::prices::Prices;
pub(crate) use row::Column;
use row::Row;
use view::{KeyAction, View};

/// How long a key may wait for figures, and figures for a key.
const TURN: Duration = Duration::from_millis(50);

/// What the observing thread sends.
struct Interval {
    accounts: Vec<Account>,
    /// What could not be observed.
    note: String,
}

/// Shows all machines.
pub(crate) fn top(args: &TopArgs) -> CommandResult {
    let interval = args.interval.duration();
    let prices = Prices::newest();
    let watch = Watch::all();
    if args.once || !std::io::stdout().is_terminal() {
        return print(watch, args, &prices);
    }
    // A signal ends the loop, which puts the terminal back.
    let requests = Requests::watch().map_err(terminal)?;
    let intervals = observe(watch, interval);
    // Also puts the terminal back when this thread panics.
    let mut screen = ratatui::try_init().map_err(terminal)?;
    let view = View::new(args.sort, interval.as_secs_f64());
    let outcome = show(&mut screen, view, &intervals, &requests, &prices);
    let restored = ratatui::try_restore().map_err(terminal);
    requests.unless_terminated(outcome.and_then(|code| restored.map(|()| code)))
}

/// Prints tables to standard output, until the reader closes.
fn print(mut watch: Watch, args: &TopArgs, prices: &Prices) -> CommandResult {
    let mut out = std::io::stdout().lock();
    loop {
        let accounts = watch.interval(args.interval.duration());
        let table = batch::table(rows(&accounts, prices), args.sort);
        match out.write_all(table.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) if !args.once => {}
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                return Err(Failure::new(ExitCode::Output, error));
            }
            _ => return Ok(ExitCode::Success),
        }
        writeln!(out).ok();
    }
}

fn observe(mut watch: Watch, interval: Duration) -> Receiver<Interval> {
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || {
        loop {
            let accounts = watch.interval(interval);
            let missing = accounts.iter().flat_map(|account| &account.unavailable);
            let mut missing = watch.unavailable().iter().chain(missing);
            let note = missing.next().map_or_else(String::new, ToString::to_string);
            if sender.send(Interval { accounts, note }).is_err() {
                return;
            }
        }
    });
    receiver
}

fn show(
    screen: &mut DefaultTerminal,
    mut view: View,
    intervals: &Receiver<Interval>,
    requests: &Requests,
    prices: &Prices,
) -> CommandResult {
    loop {
        screen
            .draw(|frame| screen::draw(frame, &view))
            .map_err(terminal)?;
        if requests.check().is_err() {
            return Ok(ExitCode::Success);
        }
        match turn().map_err(terminal)? {
            Turn::Key(key) if view.key(key) == KeyAction::Quit => return Ok(ExitCode::Success),
            Turn::HungUp => return Ok(ExitCode::Success),
            Turn::Key(_) | Turn::Nothing => {}
        }
        match intervals.try_recv() {
            Ok(interval) => take(&mut view, interval, prices),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Err(ObserveError::Stopped.into()),
        }
    }
}

/// What happened on the terminal within [`TURN`].
enum Turn {
    Nothing,
    Key(KeyEvent),
    /// It is gone, and who closed it did not end this process (`nohup`).
    HungUp,
}

fn turn() -> io::Result<Turn> {
    let (input, output) = (io::stdin(), io::stdout());
    let terminal = if input.is_terminal() {
        input.as_fd()
    } else {
        output.as_fd()
    };
    let mut polled = [PollFd::from_borrowed_fd(terminal, PollFlags::IN)];
    let limit = Timespec {
        tv_sec: 0,
        tv_nsec: TURN.subsec_nanos().into(),
    };
    match poll(&mut polled, Some(&limit)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    // crossterm 0.29 reads what has hung up again and again, and does not return.
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    if polled[0].revents().intersects(gone) {
        return Ok(Turn::HungUp);
    }
    if event::poll(Duration::ZERO)?
        && let Event::Key(key) = event::read()?
    {
        return Ok(Turn::Key(key));
    }
    Ok(Turn::Nothing)
}

fn take(view: &mut View, interval: Interval, prices: &Prices) {
    let accounts = &interval.accounts;
    // The same programs watch all machines, so each account has the whole cost.
    let cost = accounts
        .iter()
        .map(|account| account.share(account.observer.total_ns()))
        .fold(0.0, f64::max);
    view.show(rows(accounts, prices), cost, interval.note);
}

fn rows(accounts: &[Account], prices: &Prices) -> Vec<Row> {
    let row = |account| Row::of(account, prices.measured());
    accounts.iter().map(row).collect()
}

fn terminal(error: std::io::Error) -> Failure {
    Failure::new(ExitCode::Output, error)
}
