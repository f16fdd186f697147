//! QEMU's guest is held (`-S`) until its jail is whole: by then QEMU has opened what it
//! needs by name, and its root is emptied.
//!
//! The commands go over a monitor of their own (QMP, QEMU `docs/interop/qmp-spec`) on a
//! socket pair, which ends with the release.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::Value;

/// Longest answer of QEMU in bytes.
const LONGEST_LINE: u64 = 1 << 16;
/// Most lines before an answer: events, the greeting.
const MOST_LINES: usize = 64;
/// How long QEMU may say nothing. It reads its image and sets up its machine in this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// A QEMU that waits.
#[derive(Debug)]
pub(crate) struct Hold {
    commands: UnixStream,
}

impl Hold {
    /// Has a command of QEMU wait. The descriptor is to be kept until that has started.
    pub(crate) fn of(command: &mut Command) -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(PATIENCE))?;
        fcntl_setfd(&theirs, FdFlags::empty())?;
        let chardev = format!("socket,id=hold,fd={}", theirs.as_raw_fd());
        command.args(["-S", "-chardev", &chardev]);
        command.args(["-mon", "chardev=hold,mode=control"]);
        Ok((Self { commands: ours }, theirs.into()))
    }

    /// Waits until QEMU has set up its machine, does `then`, and lets the guest run. A QEMU
    /// that ends before is not an error: its status says why.
    pub(crate) fn release(self, then: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut answers = BufReader::new(&self.commands);
        // QEMU's main loop answers this, which runs once the machine is set up.
        if !self.ask("qmp_capabilities", &mut answers)? {
            return Ok(());
        }
        then()?;
        self.ask("cont", &mut answers).map(drop)
    }

    /// Whether QEMU is still there.
    fn ask(&self, command: &str, answers: &mut BufReader<&UnixStream>) -> io::Result<bool> {
        let line = format!("{{\"execute\":\"{command}\"}}\n");
        if (&self.commands).write_all(line.as_bytes()).is_err() {
            return Ok(false);
        }
        for _ in 0..MOST_LINES {
            let mut line = Vec::new();
            let read = answers.take(LONGEST_LINE).read_until(b'\n', &mut line);
            match read {
                Ok(0) => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::other("QEMU does not answer"));
                }
                other => other?,
            };
            let answer: Value = serde_json::from_slice(&line)?;
            if answer.get("return").is_some() {
                return Ok(true);
            }
            if let Some(error) = answer.get("error") {
                return Err(io::Error::other(format!("QEMU refuses {command}: {error}")));
            }
        }
        Err(io::Error::other("QEMU does not answer"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::thread;

    use super::*;

    /// A hold, and the other end of its socket.
    fn pair() -> (Hold, UnixStream) {
        let (commands, qemu) = UnixStream::pair().unwrap();
        (Hold { commands }, qemu)
    }

    #[test]
    fn the_guest_goes_on_after_what_comes_before_it() {
        let (hold, mut qemu) = pair();
        let fake = thread::spawn(move || {
            qemu.write_all(b"{\"QMP\": {}}\r\n{\"return\": {}}\r\n")
                .unwrap();
            qemu.write_all(b"{\"event\": \"RESUME\"}\r\n{\"return\": {}}\r\n")
                .unwrap();
            let mut asked = String::new();
            qemu.read_to_string(&mut asked).unwrap();
            asked
        });
        let mut is_done = false;
        hold.release(|| {
            is_done = true;
            Ok(())
        })
        .unwrap();
        assert!(is_done);
        let asked = "{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"cont\"}\n";
        assert_eq!(fake.join().unwrap(), asked);
    }

    #[test]
    fn a_qemu_that_ended_is_left_to_its_status() {
        let (hold, qemu) = pair();
        drop(qemu);
        hold.release(|| unreachable!("it is not there")).unwrap();
    }

    #[test]
    fn a_guest_stays_held_where_its_jail_fails() {
        let (hold, mut qemu) = pair();
        qemu.write_all(b"{\"return\": {}}\n").unwrap();
        assert!(hold.release(|| Err(io::Error::other("refused"))).is_err());
        let mut asked = String::new();
        qemu.read_to_string(&mut asked).unwrap();
        assert!(!asked.contains("cont"), "{asked}");
    }

    #[test]
    fn a_qemu_that_says_nothing_is_an_error() {
        let (hold, _silent) = pair();
        hold.commands
            .set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        let error = hold.release(|| unreachable!("it has not answered"));
        assert_eq!(error.unwrap_err().to_string(), "QEMU does not answer");
    }

    #[test]
    fn an_answer_that_is_none_is_an_error() {
        for answer in [&b"{\"error\": {}}\n"[..], b"hello\n"] {
            let (hold, mut qemu) = pair();
            qemu.write_all(answer).unwrap();
            assert!(hold.release(|| Ok(())).is_err());
        }
    }
}
