//! Longer files of the kernel's: processors, what they did, what is mapped and mounted (`proc(5)`).

use alloc::format;
use alloc::string::String;
use core::fmt::Write as _;

use tare_libos::hal::processor::processor;
use tare_libos::thread::cores;
use tare_libos::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::kernel_files::TICK_NS;
use crate::process::Process;
use crate::space::{Area, Backing, SHARED};

/// `/proc/cpuinfo` (kernel arch/x86/kernel/cpu/proc.c), without flags.
pub(crate) fn processors() -> String {
    let it = processor();
    let text =
        |bytes: &[u8]| String::from(String::from_utf8_lossy(bytes).trim_matches(['\0', ' ']));
    let (vendor, name) = (text(&it.vendor), text(&it.name));
    let count = cores();
    let one = |cpu| {
        format!(
            "processor\t: {cpu}\nvendor_id\t: {vendor}\ncpu family\t: {}\nmodel\t\t: {}\n\
             model name\t: {name}\nstepping\t: {}\nphysical id\t: 0\nsiblings\t: {count}\n\
             core id\t\t: {cpu}\ncpu cores\t: {count}\n\n",
            it.family, it.model, it.stepping
        )
    };
    (0..count).map(one).collect()
}

/// `/proc/stat` (kernel fs/proc/stat.c). The CPUs' shares of the program's time are not known apart: each
/// has the same.
pub(crate) fn times(process: &Process) -> String {
    let now_ns = Instant::now().as_nanos();
    let (cpu_ns, running) = process.cpu_use(now_ns);
    let count = cores() as u64;
    let line = |user: u64, all: u64| {
        let [user, idle] = [user, all.saturating_sub(user)].map(|ns| ns / TICK_NS);
        format!("{user} 0 0 {idle} 0 0 0 0 0 0\n")
    };
    let mut text = format!("cpu  {}", line(cpu_ns, now_ns * count));
    for cpu in 0..count {
        text += &format!("cpu{cpu} {}", line(cpu_ns / count, now_ns));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let began = now.as_secs().saturating_sub(now_ns / 1_000_000_000);
    text += &format!("btime {began}\nprocesses 1\nprocs_running {running}\nprocs_blocked 0\n");
    text
}

/// `/proc/self/maps` (kernel fs/proc/task_mmu.c). Mapped files have no names.
pub(crate) fn mappings(process: &Process) -> String {
    let mut text = String::new();
    let program = process.path();
    for (start, area) in process.space.lock().areas() {
        mapping(&mut text, start, area, &program);
    }
    text
}

fn mapping(text: &mut String, start: u64, area: &Area, program: &str) {
    let letter = |has: bool, letter| if has { letter } else { '-' };
    let rights = area.rights;
    let read = letter(rights.read, 'r');
    let write = letter(rights.write, 'w');
    let execute = letter(rights.execute, 'x');
    let shared = if area.name == SHARED { 's' } else { 'p' };
    let offset = match &area.backing {
        Backing::Anonymous => 0,
        Backing::File { offset, .. } => *offset,
    };
    let name = match area.name {
        "program" => program,
        SHARED => "/dev/zero (deleted)",
        name => name,
    };
    let before = text.len();
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "{start:08x}-{:08x} {read}{write}{execute}{shared} {offset:08x} 00:00 0 ",
        area.end
    );
    if !name.is_empty() {
        while text.len() < before + NAME_COLUMN {
            text.push(' ');
        }
        text.push_str(name);
    }
    text.push('\n');
}

/// Where Linux begins a mapping's name.
const NAME_COLUMN: usize = 73;

/// `/proc/self/mounts`: everything is in memory, except a disk.
pub(crate) fn mounts(disk: Option<&str>) -> String {
    let mut text = String::from("tmpfs / tmpfs rw 0 0\nproc /proc proc rw 0 0\n");
    if let Some(at) = disk {
        text += &format!("/dev/vda {at} ext4 rw 0 0\n");
    }
    text
}

/// `/proc/self/mountinfo`: the same with numbers, parents and devices.
pub(crate) fn mount_numbers(disk: Option<&str>) -> String {
    let mut text =
        String::from("1 1 0:1 / / rw - tmpfs tmpfs rw\n2 1 0:2 / /proc rw - proc proc rw\n");
    if let Some(at) = disk {
        text += &format!("3 1 254:0 / {at} rw - ext4 /dev/vda rw\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Rights;

    #[test]
    fn a_processor_has_a_block_of_lines() {
        let text = processors();
        assert!(text.starts_with("processor\t: 0\nvendor_id\t: "), "{text}");
        let blocks = text.matches("processor\t: ").count();
        assert_eq!(blocks, cores());
        assert!(text.ends_with("\n\n"));
    }

    #[test]
    fn times_of_all_processors_are_above_those_of_each() {
        let (process, _thread) = Process::of_test();
        let text = times(&process);
        let cpus = text.lines().filter(|line| line.starts_with("cpu"));
        assert_eq!(cpus.count(), cores() + 1);
        for line in text.lines().filter(|line| line.starts_with("cpu")) {
            assert_eq!(line.split_whitespace().count(), 11, "{line}");
        }
        assert!(text.contains("\nprocesses 1\n"));
    }

    #[test]
    fn mappings_are_lines_as_linux_writes_them() {
        let mut text = String::new();
        let rights = Rights {
            read: true,
            write: false,
            execute: true,
        };
        let area = |name, backing| Area {
            end: 0x6000_0000_3000,
            rights,
            backing,
            name,
        };
        mapping(
            &mut text,
            0x40_0000,
            &area("program", Backing::Anonymous),
            "/a",
        );
        mapping(
            &mut text,
            0x40_0000,
            &area(SHARED, Backing::Anonymous),
            "/a",
        );
        mapping(&mut text, 0x40_0000, &area("", Backing::Anonymous), "/a");
        let lines: alloc::vec::Vec<_> = text.lines().collect();
        let begin = "00400000-600000003000 r-x";
        assert_eq!(
            lines[0],
            format!("{:73}/a", format!("{begin}p 00000000 00:00 0 "))
        );
        assert!(lines[1].ends_with(" /dev/zero (deleted)"), "{text}");
        assert_eq!(lines[2], format!("{begin}p 00000000 00:00 0 "));
    }

    #[test]
    fn a_disk_is_mounted_where_it_is() {
        assert_eq!(mounts(None).lines().count(), 2);
        assert!(mounts(Some("/data")).ends_with("\n/dev/vda /data ext4 rw 0 0\n"));
        assert!(mount_numbers(Some("/data")).contains("3 1 254:0 / /data rw - ext4 "));
    }
}
