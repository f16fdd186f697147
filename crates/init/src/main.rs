//! The first process of a Linux guest: prepares what every program expects
//! (`/proc`, `/dev`, modules, an address), runs one command, ends the machine.
//!
//! ```text
//! task.json ── mounts ── modules ── disk ── network ── command ── end
//! ```
//!
//! What fails before the command is reported on the console and goes on where a
//! command may do without; what a command needs ends the machine with status
//! 127 (not found) or 126 (cannot be run), as a shell's.

mod capabilities;
mod clock;
mod command;
mod console;
mod disk;
mod end;
mod instrumented;
mod kill;
mod modules;
mod mounts;
mod network;
mod ports;
mod shares;
mod signals;
mod streams;
mod terminal;
mod unpacked;
mod watch;

use std::fs;
use std::path::Path;

use tare_init::{Figures, Logging, Root, TASK_FILE, Task};

use crate::command::CANNOT_RUN;
use crate::console::say;

fn main() {
    let status = perform().unwrap_or_else(|problem| {
        say(&problem);
        CANNOT_RUN
    });
    end::end(status)
}

fn perform() -> Result<u8, String> {
    let clock = clock::cycles();
    mounts::kernel_file_systems();
    let task = task()?;
    unpacked::check(Path::new("/"))?;
    modules::load(&task.modules);
    if let Root::Disk { device, filesystem } = &task.root {
        disk::change_to(device, filesystem)?;
    }
    capabilities::set(&task.capabilities);
    mounts::temporary_file_systems();
    task.shares.iter().try_for_each(shares::mount_one)?;
    network::set_up(&task.hostname);
    if task.figures == Logging::On {
        say(&figures(clock));
    }
    let counted = match task.counts {
        Logging::On => instrumented::prepare(),
        Logging::Off => None,
    };
    let status = command::run(&task);
    if let Some(counted) = counted {
        counted.send();
    }
    status
}

fn figures(begin_cycles: u64) -> Figures {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    Figures {
        begin_cycles,
        ready_cycles: clock::cycles(),
        ..Figures::of_meminfo(&text)
    }
}

fn task() -> Result<Task, String> {
    let path = format!("/{TASK_FILE}");
    let document = fs::read(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
    Task::parse(&document).map_err(|error| format!("{path}: {error}"))
}
