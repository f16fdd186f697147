//! The second serial port of an instrumented kernel's machine, by which its first process sends the counts.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use tare_init::counts;
use tare_launch::jailed_guest::JailedGuest;

use super::{CountsError, ExecutionCounts, MOST_BYTES};

/// How long a guest may take to send them: those of lighttpd's kernel took 3 s, on a host at rest.
const LIMIT: Duration = Duration::from_secs(180);
/// Between two looks at whether the proof goes on.
const LOOK: Duration = Duration::from_millis(100);

/// This host's end of the port.
#[derive(Debug)]
pub struct CountsPort {
    requests: UnixStream,
    received: Receiver<Result<Vec<u8>, CountsError>>,
}

impl CountsPort {
    /// Adds the port to a machine that has a first one, and reads what comes there. The second value is
    /// QEMU's end: keep it open until QEMU has started, and close it then.
    pub fn add(guest: &mut JailedGuest) -> io::Result<(Self, UnixStream)> {
        let (requests, theirs) = UnixStream::pair()?;
        let fd = guest.hand(&theirs)?;
        // `-serial` adds none to a machine of the type microvm.
        guest
            .line()
            .option("-chardev", format!("socket,id=counts,fd={fd}"))
            .option("-device", "isa-serial,chardev=counts,index=1");
        let ours = requests.try_clone()?;
        let (sender, received) = channel();
        // They may come before they are asked for, and a guest that cannot send them does not end.
        thread::spawn(move || sender.send(receive(ours)));
        Ok((Self { requests, received }, theirs))
    }

    /// Requests the counts from the guest, whose kernel was built in `objects`, and waits for them as long as
    /// it `goes_on`.
    pub fn take(
        self,
        objects: &Path,
        goes_on: impl Fn() -> bool,
    ) -> Result<ExecutionCounts, CountsError> {
        ExecutionCounts::of_guest(&self.list(goes_on)?, objects)
    }

    fn list(self, goes_on: impl Fn() -> bool) -> Result<Vec<u8>, CountsError> {
        // One that has sent them already may be gone.
        let _ = (&self.requests).write_all(&[counts::REQUEST]);
        let mut waited = Duration::ZERO;
        while waited < LIMIT && goes_on() {
            match self.received.recv_timeout(LOOK) {
                Ok(received) => return received,
                Err(RecvTimeoutError::Timeout) => waited += LOOK,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Err(CountsError::Invalid("the guest did not send them in time"))
    }
}

/// Reads what a guest sends, of which it says the length first.
fn receive(port: impl io::Read) -> Result<Vec<u8>, CountsError> {
    let broken = |_| CountsError::Invalid("the guest ended before it had sent them");
    let mut port = io::BufReader::new(port);
    let mut line = Vec::new();
    while line.len() < counts::HEADER_BYTES && line.last() != Some(&b'\n') {
        let mut byte = [0];
        port.read_exact(&mut byte).map_err(broken)?;
        line.extend(byte);
    }
    let bytes = counts::announced(&line).filter(|bytes| *bytes <= MOST_BYTES as u64);
    let bytes = bytes.ok_or(CountsError::Invalid("their first line is wrong"))?;
    let mut short = Vec::new();
    port.take(bytes).read_to_end(&mut short).map_err(broken)?;
    if short.len() as u64 != bytes {
        return Err(CountsError::Invalid("the guest ended while it sent them"));
    }
    counts::restored(&short, MOST_BYTES).ok_or(CountsError::Invalid("damaged, or more than 64 MiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_received_as_it_was_sent() {
        let short = counts::shortened(b"a\0\0b");
        let sent = [counts::header(short.len()).as_bytes(), &short, b"more"].concat();
        assert_eq!(receive(&sent[..]).unwrap(), b"a\0\0b");
    }

    #[test]
    fn what_ends_early_or_is_too_long_is_an_error_that_says_what() {
        let of = |sent: &[u8]| receive(sent).unwrap_err().to_string();
        assert!(of(b"").contains("ended before"));
        assert!(of(b"tare-counts/1 5\nabcd").contains("while it sent"));
        assert!(of(b"tare-counts/1 1\n\0").contains("damaged"));
        assert!(of(b"tare-counts/1 99999999999\n").contains("first line"));
        assert!(of(&[b'x'; 4096]).contains("first line"));
    }
}
