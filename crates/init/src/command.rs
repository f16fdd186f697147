//! Running the command: its environment, its user, signals and orphans.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, WaitStatus, wait};
use tare_init::account::{Account, look_up_below};
use tare_init::{Logging, PATH, Task, credentials};

use crate::console::say;
use crate::ports;
use crate::signals::Events;
use crate::streams::Streams;
use crate::terminal;
use crate::watch::{self, Watch};

/// Status of a command that cannot be run.
pub(crate) const CANNOT_RUN: u8 = 126;
/// Status of a command that is not there.
const NOT_FOUND: u8 = 127;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// Runs the task's command to its end: its status, or 128 and the signal.
pub(crate) fn run(task: &Task) -> Result<u8, String> {
    // Before the command starts, so that no end is missed.
    let mut events = Events::watch().map_err(|error| format!("cannot watch signals: {error}"))?;
    let account = account(&task.user)?;
    let mut watch = match task.refusals {
        Logging::On => Some(Watch::default()),
        Logging::Off => None,
    };
    make_directory(directory(task))?;
    let signals = ports::wait();
    let streams = signals.as_ref().and_then(|_| Streams::open());
    for words in &task.beside {
        // A failure is reported; the command may do without it.
        let _ = start(words, task, &account, |_| Ok(()));
    }
    // A command that is followed gets no signals: the host then ends the machine.
    if let Some(port) = signals.filter(|_| watch.is_none()) {
        events.hear_host(&port);
    }
    let mut left = task.tries.max(1);
    loop {
        let equip = |command: &mut Command| {
            terminal::give(command, account.uid);
            streams.as_ref().map_or(Ok(()), |it| it.give(command))
        };
        let status = match start(&task.command, task, &account, equip) {
            Ok(child) => match &mut watch {
                Some(watch) => watch.until_it_ends(child).map_or(u8::MAX, meaning),
                None => until_it_ends(child, &mut events),
            },
            Err(status) => {
                left = 1;
                status
            }
        };
        left -= 1;
        if status == 0 || left == 0 {
            if let Some(streams) = streams {
                streams.close();
            }
            return Ok(status);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Starts a command; the error is the status of one that cannot be run.
fn start(
    words: &[String],
    task: &Task,
    account: &Account,
    equip: impl FnOnce(&mut Command) -> io::Result<()>,
) -> Result<Pid, u8> {
    let (program, arguments) = words.split_first().ok_or(CANNOT_RUN)?;
    let mut command = command(program, arguments, task, account);
    equip(&mut command).map_err(|error| {
        say(&format!("cannot connect the streams of {program}: {error}"));
        CANNOT_RUN
    })?;
    // After the terminal's session, which needs root.
    credentials::give(&mut command, account);
    if account.uid != 0 && !credentials::has_users() {
        say(&format!(
            "this kernel has no users: {program} has all rights"
        ));
    }
    if task.refusals == Logging::On {
        watch::follow(&mut command);
    }
    let started = command.spawn();
    let child = started.map_err(|error| {
        say(&format!("cannot run {program}: {error}"));
        match error.kind() {
            io::ErrorKind::NotFound => NOT_FOUND,
            _ => CANNOT_RUN,
        }
    })?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or(CANNOT_RUN)
}

fn account(user: &str) -> Result<Account, String> {
    look_up_below(user, Path::new("/")).map_err(|error| error.to_string())
}

fn directory(task: &Task) -> &str {
    match task.working_directory.as_str() {
        "" => "/",
        given => given,
    }
}

/// Makes the working directory if no layer of the image has it, as runc does.
fn make_directory(directory: &str) -> Result<(), String> {
    fs::create_dir_all(directory)
        .map_err(|error| format!("cannot make the working directory {directory}: {error}"))
}

fn command(program: &str, arguments: &[String], task: &Task, account: &Account) -> Command {
    // The standard library looks the program up in the child's PATH.
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", account.home.as_deref().unwrap_or("/"))
        .envs(
            task.environment
                .iter()
                .filter_map(|pair| pair.split_once('=')),
        )
        .current_dir(directory(task));
    command
}

/// Passes signals on and reaps whoever ends, until the command does.
fn until_it_ends(command: Pid, events: &mut Events) -> u8 {
    loop {
        events.pass_on(command);
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == command {
                return meaning(status);
            }
        }
    }
}

fn meaning(status: WaitStatus) -> u8 {
    let of_signal = || Some(128 + status.terminating_signal()?);
    let code = status.exit_status().or_else(of_signal);
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    fn of(words: &[&str], task: &Task) -> Command {
        let arguments: Vec<String> = words[1..].iter().map(|word| (*word).to_owned()).collect();
        let account = tare_init::account::look_up("", "", "").unwrap();
        command(words[0], &arguments, task, &account)
    }

    #[test]
    fn a_command_gets_the_tasks_environment_over_the_default_one() {
        let task = Task {
            environment: ["PATH=/own", "A=b=c", "broken"].map(str::to_owned).into(),
            ..Task::default()
        };
        let command = of(&["true"], &task);
        let value = |name: &str| {
            let mut all = command.get_envs();
            all.find(|(key, _)| *key == name)
                .map(|(_, value)| value.unwrap().to_str().unwrap().to_owned())
        };
        assert_eq!(value("PATH").as_deref(), Some("/own"));
        assert_eq!(value("A").as_deref(), Some("b=c"));
        assert_eq!(value("HOME").as_deref(), Some("/"));
        assert_eq!((value("broken"), value("USER")), (None, None));
        assert_eq!(command.get_current_dir().unwrap().to_str(), Some("/"));
    }

    #[test]
    fn a_working_directory_is_made_or_the_error_names_it() {
        let dir = std::env::temp_dir().join(format!("tare-init-{}", getpid().as_raw_nonzero()));
        let wanted = dir.join("a/b");
        make_directory(wanted.to_str().unwrap()).unwrap();
        assert!(wanted.is_dir());
        let file = dir.join("file");
        fs::write(&file, "").unwrap();
        let error = make_directory(file.join("below").to_str().unwrap()).unwrap_err();
        assert!(
            error.contains("cannot make the working directory"),
            "{error}"
        );
        assert!(error.contains("file/below"), "{error}");
        fs::remove_dir_all(dir).unwrap();
    }

    /// One test, since whoever waits for any child takes another's.
    #[test]
    #[allow(clippy::zombie_processes, reason = "until_it_ends waits for them")]
    fn an_end_is_a_status_or_128_and_a_signal_while_orphans_are_reaped() {
        let mut events = Events::watch().unwrap();
        let task = Task::default();
        let mut ends = |script: &str, signal: Option<Signal>| {
            let mut command = of(&["/bin/sh", "-c", script], &task);
            // The pipe stays open until the end, so that reading from it waits.
            let child = command.stdin(Stdio::piped()).spawn().unwrap();
            let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            if let Some(signal) = signal {
                kill_process(getpid(), signal).unwrap();
            }
            until_it_ends(pid, &mut events)
        };
        assert_eq!(ends("exit 7", None), 7);
        assert_eq!(ends("(exit 3) & exit 0", None), 0);
        assert_eq!(ends("kill -9 $$", None), 128 + 9);
        assert_eq!(ends("read line", Some(Signal::TERM)), 128 + 15);
        assert_eq!(ends("read line", Some(Signal::USR1)), 128 + 10);
    }
}
