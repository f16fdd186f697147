//! Standard streams of a Linux guest's command in QEMU when `tare run` is part of a
//! pipeline: three ports of a virtio console. The serial console, on which the
//! kernel and tare-init write, goes to standard error.
//!
//! With a terminal as its input the command has the serial console instead.

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::isatty;
use tare_init::stream;
use tare_qemu::{CommandLine, escaped};

/// Descriptors below this one are the standard ones, which QEMU takes no other way.
const FIRST_OWN: i32 = 3;

/// Whether the command's streams should be ports: no terminal is its input, and
/// QEMU can write to its outputs, which excludes sockets.
pub(crate) fn wanted() -> bool {
    let writable = |fd: BorrowedFd<'_>| {
        fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::Socket)
    };
    !isatty(stdin()) && writable(stdout()) && writable(stderr())
}

/// Adds the three ports, with the serial console on standard error. `console_log` keeps
/// all that is written. The descriptors are to be kept until QEMU has started.
pub(crate) fn add(line: &mut CommandLine, console_log: &Path) -> Result<Vec<OwnedFd>, Errno> {
    let log = format!("logfile={},logappend=on", escaped(console_log));
    line.option("-chardev", "stdio,id=stdin,signal=on");
    let mut kept = Vec::new();
    for (number, id, to) in [(1, "stdout", stdout()), (2, "stderr", stderr())] {
        let path = sink(number, to, line, &mut kept)?;
        line.option(
            "-chardev",
            format!("file,id={id},path={path},append=on,{log}"),
        );
    }
    let path = sink(3, stderr(), line, &mut kept)?;
    line.option(
        "-chardev",
        format!("file,id=console,path={path},append=on,{log}"),
    )
    .serial("chardev:console")
    .virtio("virtio-serial", "");
    let ports = [
        ("stdin", stream::INPUT),
        ("stdout", stream::OUTPUT),
        ("stderr", stream::ERROR),
    ];
    for (id, name) in ports {
        line.option(
            "-device",
            format!("virtserialport,chardev={id},name={name}"),
        );
    }
    Ok(kept)
}

/// A path by which QEMU writes to an open descriptor. A file is not opened anew,
/// which would lose its position; what is open for reading too has to be.
fn sink(
    set: u32,
    fd: BorrowedFd<'_>,
    line: &mut CommandLine,
    kept: &mut Vec<OwnedFd>,
) -> Result<String, Errno> {
    let own = fcntl_dupfd_cloexec(fd, FIRST_OWN)?;
    fcntl_setfd(&own, FdFlags::empty())?;
    let number = own.as_raw_fd();
    kept.push(own);
    if fcntl_getfl(fd)?.intersection(OFlags::RWMODE) != OFlags::WRONLY {
        return Ok(format!("/proc/self/fd/{number}"));
    }
    line.option("-add-fd", format!("fd={number},set={set}"));
    Ok(format!("/dev/fdset/{set}"))
}
