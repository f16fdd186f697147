//! QMP, by which QEMU is controlled (QEMU `docs/interop/qmp-spec`): a command a line, answered
//! by a line among the greeting and events. QEMU counts as hostile: lines and their number are
//! bounded.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// Longest answer of QEMU in bytes.
const LONGEST_LINE: u64 = 1 << 16;
/// Most lines before an answer: events, the greeting.
const MOST_LINES: usize = 64;
/// How long a QEMU may be silent that has just started: it reads its image and sets up its machine
/// in this time.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to QEMU.
#[derive(Debug)]
pub struct Qmp(BufReader<UnixStream>);

impl Qmp {
    /// Over a socket on which QEMU has sent nothing yet. Each read and write takes at most `timeout`.
    pub fn over(socket: UnixStream, timeout: Duration) -> io::Result<Self> {
        socket.set_read_timeout(Some(timeout))?;
        socket.set_write_timeout(Some(timeout))?;
        Ok(Self(BufReader::new(socket)))
    }

    /// Over the socket at `path`, where QEMU listens.
    pub fn connect(path: &Path, timeout: Duration) -> io::Result<Self> {
        Self::over(UnixStream::connect(path)?, timeout)
    }

    /// Negotiates: QEMU accepts no other command before. Its main loop answers, which runs once the
    /// machine is set up. False if QEMU has ended.
    pub fn begin(&mut self) -> io::Result<bool> {
        let answer = self.execute("qmp_capabilities", &json!({}))?;
        Ok(answer.is_some())
    }

    /// Executes a command; what it returns, or `None` if QEMU has ended.
    pub fn execute(&mut self, command: &str, arguments: &Value) -> io::Result<Option<Value>> {
        let line = json!({ "execute": command, "arguments": arguments });
        if writeln!(self.0.get_mut(), "{line}").is_err() {
            return Ok(None);
        }
        for _ in 0..MOST_LINES {
            let mut line = Vec::new();
            let read = (&mut self.0)
                .take(LONGEST_LINE)
                .read_until(b'\n', &mut line);
            match read {
                Ok(0) => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::other("QEMU does not answer"));
                }
                other => other?,
            };
            let mut answer: Value = serde_json::from_slice(&line)?;
            if let Some(returned) = answer.get_mut("return") {
                return Ok(Some(returned.take()));
            }
            if let Some(error) = answer.get("error") {
                return Err(io::Error::other(format!("QEMU refuses {command}: {error}")));
            }
        }
        Err(io::Error::other("QEMU does not answer"))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn pair() -> (Qmp, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Qmp::over(ours, REPLY_TIMEOUT).unwrap(), theirs)
    }

    #[test]
    fn a_command_goes_with_its_arguments_and_events_are_no_answers() {
        let (mut qmp, mut qemu) = pair();
        let fake = thread::spawn(move || {
            qemu.write_all(b"{\"QMP\": {}}\r\n{\"return\": {}}\r\n{\"event\": \"RESUME\"}\r\n")
                .unwrap();
            qemu.write_all(b"{\"return\": {}}\r\n").unwrap();
            let mut asked = String::new();
            qemu.read_to_string(&mut asked).unwrap();
            asked
        });
        assert!(qmp.begin().unwrap());
        assert!(
            qmp.execute("block_resize", &json!({ "device": "disk0", "size": 512 }))
                .unwrap()
                .is_some()
        );
        drop(qmp);
        let asked = fake.join().unwrap();
        let lines: Vec<Value> = asked
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines[0]["execute"], "qmp_capabilities");
        assert_eq!(lines[1]["execute"], "block_resize");
        assert_eq!(lines[1]["arguments"]["size"], 512);
    }

    #[test]
    fn a_query_returns_its_answer() {
        let (mut qmp, mut qemu) = pair();
        qemu.write_all(b"{\"return\": {\"status\": \"running\"}}\r\n")
            .unwrap();
        let answer = qmp.execute("query-status", &json!({})).unwrap().unwrap();
        assert_eq!(answer["status"], "running");
    }

    #[test]
    fn a_qemu_that_ended_is_no_error() {
        let (mut qmp, qemu) = pair();
        drop(qemu);
        assert!(!qmp.begin().unwrap());
    }

    #[test]
    fn a_qemu_that_says_nothing_is_an_error() {
        let (mut qmp, _silent) = pair();
        let short = Some(Duration::from_millis(1));
        qmp.0.get_ref().set_read_timeout(short).unwrap();
        let error = qmp.begin().unwrap_err();
        assert_eq!(error.to_string(), "QEMU does not answer");
    }

    #[test]
    fn an_answer_that_is_none_is_an_error() {
        for answer in [&b"{\"error\": {}}\n"[..], b"hello\n"] {
            let (mut qmp, mut qemu) = pair();
            qemu.write_all(answer).unwrap();
            assert!(qmp.begin().is_err());
        }
    }

    #[test]
    fn events_without_end_are_an_error() {
        let (mut qmp, mut qemu) = pair();
        let events = b"{\"event\": \"RTC_CHANGE\"}\n".repeat(MOST_LINES + 1);
        qemu.write_all(&events).unwrap();
        assert!(qmp.begin().is_err());
    }
}
