//! Standard streams of a Linux guest's command in QEMU when `tare run` is part of a
//! pipeline: three ports of a virtio console. The serial console, on which the
//! kernel and tare-init write, goes to standard error.
//!
//! With a terminal as its input the command has the serial console instead.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat, open};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::isatty;
use tare_init::stream;
use tare_qemu::CommandLine;

/// Descriptors below this are standard streams, which QEMU inherits differently.
const FIRST_OWN: i32 = 3;
/// The sets of descriptors that [`add`] makes.
pub(crate) const LAST_SET: u32 = 3;

/// Whether the command's streams should be ports: the input is not a terminal, and QEMU can write
/// to the outputs, which excludes sockets.
pub(crate) fn wanted() -> bool {
    let writable = |fd: BorrowedFd<'_>| {
        fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::Socket)
    };
    !isatty(stdin()) && writable(stdout()) && writable(stderr())
}

/// Adds the three ports to the line's virtio console, with the serial console on standard error.
/// `console_log`, a path for QEMU, receives all output. Keep the descriptors until QEMU has started.
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
    .serial("chardev:console");
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

/// Makes QEMU wait for the readers of the streams; to be called when it has set up its machine.
/// QEMU makes a stream non-blocking for each device that writes to it (`qemu_chr_open_fd`,
/// chardev/char-fd.c; `stdio` includes standard output), for every process that shares the stream.
/// Output that a full pipe does not take then stays in the machine, and is lost when the machine
/// ends. With a blocking stream, QEMU stops until the reader goes on.
pub(crate) fn make_blocking(streams: &[OwnedFd]) -> Result<(), Errno> {
    if streams.is_empty() {
        return Ok(());
    }
    // A stream that was opened separately is not standard output's.
    let streams = streams.iter().map(OwnedFd::as_fd);
    streams.chain([stdout()]).try_for_each(|stream| {
        let flags = fcntl_getfl(stream)?;
        fcntl_setfl(stream, flags - OFlags::NONBLOCK)
    })
}

/// A path by which QEMU writes to an open descriptor. A file is not opened again, since that would
/// lose its position. A descriptor that is open for reading as well must be opened again, and here,
/// since QEMU's user may not.
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

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    #[test]
    fn a_stream_that_qemu_made_non_blocking_blocks_again() {
        let (_reader, writer) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        // QEMU's descriptor of the same stream.
        let qemus = File::from(writer.try_clone().unwrap());
        make_blocking(&[writer]).unwrap();
        let flags = fcntl_getfl(&qemus).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK), "{flags:?}");
    }
}
