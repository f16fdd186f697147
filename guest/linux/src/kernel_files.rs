//! Files of the kernel's (`proc(5)`): what a program reads of the machine and of itself. What may change
//! is written when a file is opened (kernel `fs/proc/array.c`, `base.c`).

use alloc::format;
use alloc::string::String;
use core::fmt::Write as _;

use linux_raw_sys::general as c;
use tare_libos::thread::cores;
use tare_libos::time::Instant;
use tare_program::Start;
use tare_program::offered::{KernelFile, OWN_FILE};

use crate::capabilities;
use crate::credentials::Whose;
use crate::files::inotify;
use crate::files::tree::{NodeKind, Tree};
use crate::interfaces;
use crate::machine_files;
use crate::memory::{self, PAGE};
use crate::process::{PID, Process};
use crate::space::MOST_AREAS;

/// Nanoseconds of the units in which times are given: `USER_HZ` is 100.
pub(crate) const TICK_NS: u64 = 10_000_000;
/// The limits of resources by number, and their units.
const LIMITS: [(&str, &str); c::RLIM_NLIMITS as usize] = [
    ("cpu time", "seconds"),
    ("file size", "bytes"),
    ("data size", "bytes"),
    ("stack size", "bytes"),
    ("core file size", "bytes"),
    ("resident set", "bytes"),
    ("processes", "processes"),
    ("open files", "files"),
    ("locked memory", "bytes"),
    ("address space", "bytes"),
    ("file locks", "locks"),
    ("pending signals", "signals"),
    ("msgqueue size", "bytes"),
    ("nice priority", ""),
    ("realtime priority", ""),
    ("realtime timeout", "us"),
];

/// Puts them into the tree, where it has no others.
pub(crate) fn provide(tree: &Tree, start: &Start) {
    for file in KernelFile::ALL {
        match at_start(*file, start) {
            Some(text) => tree.provide(file.value(), &text),
            None => tree.provide_kind(file.value(), NodeKind::Kernel(*file)),
        }
    }
    tree.link(OWN_FILE, &start.path);
    tree.link("proc/1", "self");
    tree.link("proc/mounts", "self/mounts");
}

/// What never changes.
fn at_start(file: KernelFile, start: &Start) -> Option<String> {
    Some(match file {
        KernelFile::Version => "Linux version 6.1.0-tare\n".into(),
        KernelFile::Overcommit => "1\n".into(),
        KernelFile::Backlog => "4096\n".into(),
        KernelFile::Release => "6.1.0-tare\n".into(),
        KernelFile::OnlineCpus | KernelFile::PossibleCpus | KernelFile::PresentCpus => {
            match cores() {
                1 => "0\n".into(),
                count => format!("0-{}\n", count - 1),
            }
        }
        KernelFile::Mounts => machine_files::mounts(start.mount.as_deref()),
        KernelFile::MountNumbers => machine_files::mount_numbers(start.mount.as_deref()),
        KernelFile::Host => format!("{}\n", start.hostname),
        KernelFile::System => "Linux\n".into(),
        KernelFile::MostMappings => format!("{MOST_AREAS}\n"),
        KernelFile::LastCapability => format!("{}\n", capabilities::LAST),
        KernelFile::WatchEvents => format!("{}\n", inotify::MOST_EVENTS),
        KernelFile::WatchInstances => format!("{}\n", inotify::MOST_INSTANCES),
        KernelFile::Watches => format!("{}\n", inotify::limit()),
        // The root of the only hierarchy (`cgroups(7)`), which is not mounted.
        KernelFile::Groups => "0::/\n".into(),
        KernelFile::MemInfo
        | KernelFile::Stat
        | KernelFile::Pages
        | KernelFile::Status
        | KernelFile::Limits
        | KernelFile::Load
        | KernelFile::Uptime
        | KernelFile::AddressesV6
        | KernelFile::CommandLine
        | KernelFile::CpuInfo
        | KernelFile::Times
        | KernelFile::Mappings
        | KernelFile::Name => return None,
    })
}

/// What a file says now; empty for those that never change.
pub(crate) fn at_open(process: &Process, file: KernelFile) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write(process, file, &mut text);
    text
}

fn write(process: &Process, file: KernelFile, to: &mut String) -> core::fmt::Result {
    let heap = memory::stats();
    let now_ns = Instant::now().as_nanos();
    let (cpu_ns, running) = process.cpu_use(now_ns);
    let (first, threads) = {
        let threads = process.threads.lock();
        (threads.values().next().cloned(), threads.len())
    };
    let name = first.as_ref().map(|thread| *thread.name.lock());
    let name = name.unwrap_or_default();
    let name = String::from_utf8_lossy(&name);
    let name = name.trim_end_matches('\0');
    let mapped = process.space.lock().bytes();
    // All that the machine has used, as for `getrusage`.
    let held = heap.used.min(mapped);
    match file {
        KernelFile::MemInfo => {
            let free = heap.total.saturating_sub(heap.used);
            for (name, bytes) in [
                ("MemTotal", heap.total),
                ("MemFree", free),
                ("MemAvailable", free),
                ("AnonHugePages", memory::large_bytes()),
            ] {
                writeln!(to, "{name}: {} kB", bytes / 1024)?;
            }
        }
        KernelFile::Stat => {
            write!(to, "{PID} ({name}) R 0 {PID} {PID} 0 -1")?;
            let mut numbers = [0; 44];
            numbers[5] = cpu_ns / TICK_NS;
            numbers[9] = 20;
            numbers[11] = threads as u64;
            numbers[14] = mapped;
            numbers[15] = held / PAGE;
            numbers[16] = process.limits.lock()[c::RLIMIT_RSS as usize][0];
            numbers[29] = c::SIGCHLD.into();
            for number in numbers {
                write!(to, " {number}")?;
            }
            to.push('\n');
        }
        KernelFile::Pages => {
            let (mapped, held) = (mapped / PAGE, held / PAGE);
            writeln!(to, "{mapped} {held} 0 0 0 {mapped} 0")?;
        }
        KernelFile::Status => {
            writeln!(to, "Name:\t{name}\nState:\tR (running)")?;
            for (name, number) in [
                ("Tgid", PID),
                ("Ngid", 0),
                ("Pid", PID),
                ("PPid", 0),
                ("TracerPid", 0),
            ] {
                writeln!(to, "{name}:\t{number}")?;
            }
            for (name, whose) in [("Uid", Whose::User), ("Gid", Whose::Group)] {
                let ids = first
                    .as_ref()
                    .map(|thread| thread.credentials.lock().ids(whose));
                if let Some(ids) = ids {
                    let (real, own, saved) = (ids.real, ids.effective, ids.saved);
                    writeln!(to, "{name}:\t{real}\t{own}\t{saved}\t{own}")?;
                }
            }
            for (name, bytes) in [("VmSize", mapped), ("VmRSS", held)] {
                writeln!(to, "{name}:\t{:8} kB", bytes / 1024)?;
            }
            writeln!(to, "Threads:\t{threads}")?;
        }
        KernelFile::Limits => {
            let limits = *process.limits.lock();
            let head = ("Limit", "Soft Limit", "Hard Limit", "Units");
            put_limit(to, "", head)?;
            for ((name, unit), [current, most]) in LIMITS.into_iter().zip(limits) {
                let (current, most) = (limit(current), limit(most));
                put_limit(to, "Max ", (name, &current, &most, unit))?;
            }
        }
        KernelFile::Load => {
            // No average is kept.
            let last = process
                .last_number
                .load(core::sync::atomic::Ordering::Relaxed);
            writeln!(to, "0.00 0.00 0.00 {running}/{threads} {last}")?;
        }
        KernelFile::Uptime => {
            let idle_ns = (now_ns * cores() as u64).saturating_sub(cpu_ns);
            let [up, idle] = [now_ns, idle_ns].map(|ns| ns / TICK_NS);
            let (up, up_part, idle, idle_part) = (up / 100, up % 100, idle / 100, idle % 100);
            writeln!(to, "{up}.{up_part:02} {idle}.{idle_part:02}")?;
        }
        KernelFile::CommandLine => to.push_str(&process.shown.lock().command),
        KernelFile::CpuInfo => to.push_str(&machine_files::processors()),
        KernelFile::Times => to.push_str(&machine_files::times(process)),
        KernelFile::Mappings => to.push_str(&machine_files::mappings(process)),
        KernelFile::Name => writeln!(to, "{name}")?,
        KernelFile::AddressesV6 => to.push_str(&interfaces::if_inet6(&interfaces::all())),
        KernelFile::Version
        | KernelFile::Overcommit
        | KernelFile::Backlog
        | KernelFile::Release
        | KernelFile::OnlineCpus
        | KernelFile::PossibleCpus
        | KernelFile::PresentCpus
        | KernelFile::Mounts
        | KernelFile::MountNumbers
        | KernelFile::Host
        | KernelFile::System
        | KernelFile::MostMappings
        | KernelFile::LastCapability
        | KernelFile::WatchEvents
        | KernelFile::WatchInstances
        | KernelFile::Watches
        | KernelFile::Groups => {}
    }
    Ok(())
}

/// A limit of a resource.
fn limit(limit: u64) -> String {
    match limit {
        u64::MAX => "unlimited".into(),
        limit => format!("{limit}"),
    }
}

/// A line of limits, whose last column Linux leaves out where it has no unit.
fn put_limit(
    to: &mut String,
    before: &str,
    (name, current, most, unit): (&str, &str, &str, &str),
) -> core::fmt::Result {
    let rest = 25 - before.len();
    write!(to, "{before}{name:rest$} {current:20} {most:20} ")?;
    match unit {
        "" => writeln!(to),
        unit => writeln!(to, "{unit:10}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_say_what_is_so_when_they_are_opened() {
        let (process, thread) = Process::of_test();
        *thread.name.lock() = *b"a program\0\0\0\0\0\0\0";
        process.limits.lock()[c::RLIMIT_NOFILE as usize] = [20, u64::MAX];
        let text = |file| at_open(&process, file);
        let stat = text(KernelFile::Stat);
        assert!(stat.starts_with("1 (a program) R 0 1 1 0 -1 0"), "{stat}");
        let (_, behind) = stat.split_once(')').unwrap();
        assert_eq!(behind.split_whitespace().count(), 50, "{stat}");
        assert_eq!(behind.split_whitespace().nth(17), Some("1"), "threads");
        let limits = text(KernelFile::Limits);
        let fields = ["Max open files", "20", "unlimited", "files"];
        let [name, current, most, unit] = fields;
        let files = format!("{name:25} {current:20} {most:20} {unit:10}");
        assert!(limits.lines().any(|line| line == files), "{limits}");
        assert_eq!(limits.lines().count(), 17);
        let status = text(KernelFile::Status);
        for line in [
            "Name:\ta program",
            "Pid:\t1",
            "Uid:\t0\t0\t0\t0",
            "Threads:\t1",
        ] {
            assert!(status.lines().any(|it| it == line), "{status}");
        }
        assert!(text(KernelFile::Load).ends_with("/1 1\n"));
        for file in KernelFile::ALL {
            let is_written = at_start(*file, &Start::default()).is_none();
            // The tests have neither a network nor mappings.
            let may_be_empty = matches!(file, KernelFile::AddressesV6 | KernelFile::Mappings);
            let is_empty = text(*file).is_empty() && !may_be_empty;
            assert_eq!(is_written, !is_empty, "{file:?}");
        }
    }
}
