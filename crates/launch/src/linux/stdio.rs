//! Standard streams of a Linux guest's command in QEMU when `tare run` is part of a
//! pipeline: three ports of a virtio console. The serial console, on which the
//! kernel and tare-init write, goes to standard error.
//!
//! With a terminal as its input the command has the serial console instead.

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat, open};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::isatty;
use tare_init::stream;
use tare_qemu::CommandLine;

/// Descriptors below this one are the standard ones, which QEMU takes no other way.
const FIRST_OWN: i32 = 3;
/// The sets of descriptors that [`add`] makes.
pub(crate) const LAST_SET: u32 = 3;
/// QEMU opens its streams within this, looked for each [`LOOK`].
const START_LIMIT: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(5);

/// Whether the command's streams should be ports: no terminal is its input, and
/// QEMU can write to its outputs, which excludes sockets.
pub(crate) fn wanted() -> bool {
    let writable = |fd: BorrowedFd<'_>| {
        fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::Socket)
    };
    !isatty(stdin()) && writable(stdout()) && writable(stderr())
}

/// Adds the three ports, with the serial console on standard error. `console_log`, a path of
/// QEMU's, keeps all that is written. The descriptors are to be kept until QEMU has started.
pub(crate) fn add(line: &mut CommandLine, console_log: &str) -> Result<Vec<OwnedFd>, Errno> {
    let log = format!("logfile={console_log},logappend=on");
    line.option("-chardev", "stdio,id=stdin,signal=on");
    let mut kept = Vec::new();
    for (number, id, to) in [(1, "stdout", stdout()), (2, "stderr", stderr())] {
        let path = sink(number, to, line, &mut kept)?;
        line.option(
            "-chardev",
            format!("file,id={id},path={path},append=on,{log}"),
        );
    }
    let path = sink(LAST_SET, stderr(), line, &mut kept)?;
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

/// Lets QEMU wait for whoever reads the streams. It makes each of them non-blocking when it
/// starts (`qemu_chr_open_fd`, chardev/char-fd.c), which changes them for every process that
/// shares them. What a full pipe does not take then stays in the machine, and is lost when
/// the machine ends. Blocking, QEMU stands still until the reader goes on.
pub(crate) fn keep_blocking(streams: Vec<OwnedFd>) {
    for stream in &streams {
        block(stream);
    }
    thread::spawn(move || {
        let (begin, mut left) = (Instant::now(), streams);
        while !left.is_empty() && begin.elapsed() < START_LIMIT {
            thread::sleep(LOOK);
            left.retain(|stream| !block(stream));
        }
    });
}

/// Whether the stream was non-blocking.
fn block(stream: &OwnedFd) -> bool {
    let Ok(flags) = fcntl_getfl(stream) else {
        return false;
    };
    let was = flags.contains(OFlags::NONBLOCK);
    if was {
        let _ = fcntl_setfl(stream, flags - OFlags::NONBLOCK);
    }
    was
}

/// A path by which QEMU writes to an open descriptor. A file is not opened anew,
/// which would lose its position; what is open for reading too has to be, and here, since
/// QEMU's user may not.
fn sink(
    set: u32,
    fd: BorrowedFd<'_>,
    line: &mut CommandLine,
    kept: &mut Vec<OwnedFd>,
) -> Result<String, Errno> {
    let own = fcntl_dupfd_cloexec(fd, FIRST_OWN)?;
    let own = if fcntl_getfl(fd)?.intersection(OFlags::RWMODE) == OFlags::WRONLY {
        own
    } else {
        let path = format!("/proc/self/fd/{}", own.as_raw_fd());
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOCTTY | OFlags::CLOEXEC;
        open(path, flags, Mode::empty())?
    };
    fcntl_setfd(&own, FdFlags::empty())?;
    line.option("-add-fd", format!("fd={},set={set}", own.as_raw_fd()));
    kept.push(own);
    Ok(format!("/dev/fdset/{set}"))
}
