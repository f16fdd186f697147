//! QEMU's guest is held (`-S`) until its jail is complete: by then QEMU has opened what it needs by
//! name, and its root is emptied.
//!
//! The commands go over a separate monitor (QMP, QEMU `docs/interop/qmp-spec`) on a socket pair,
//! which is closed with the release.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;

use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::json;
use tare_qemu::qmp::{Qmp, REPLY_TIMEOUT};

/// A QEMU whose guest is held.
#[derive(Debug)]
pub(crate) struct Hold {
    commands: Qmp,
}

impl Hold {
    /// Makes the QEMU of `command` wait. Keep the descriptor until it has started.
    pub(crate) fn of(command: &mut Command) -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        fcntl_setfd(&theirs, FdFlags::empty())?;
        let chardev = format!("socket,id=hold,fd={}", theirs.as_raw_fd());
        command.args(["-S", "-chardev", &chardev]);
        command.args(["-mon", "chardev=hold,mode=control"]);
        let commands = Qmp::over(ours, REPLY_TIMEOUT)?;
        Ok((Self { commands }, theirs.into()))
    }

    /// Waits until QEMU has set up its machine, runs `then`, and starts the guest. A QEMU that ends
    /// before is not an error: its status says why.
    pub(crate) fn release(mut self, then: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if !self.commands.begin()? {
            return Ok(());
        }
        then()?;
        self.commands.execute("cont", &json!({})).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::thread;

    use super::*;

    /// A hold, and the other end of its socket.
    fn pair() -> (Hold, UnixStream) {
        let (commands, qemu) = UnixStream::pair().unwrap();
        let commands = Qmp::over(commands, REPLY_TIMEOUT).unwrap();
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
        let asked = fake.join().unwrap();
        let commands: Vec<serde_json::Value> = asked
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let commands = commands.iter().map(|command| &command["execute"]);
        assert!(commands.eq(["qmp_capabilities", "cont"]), "{asked}");
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
}
