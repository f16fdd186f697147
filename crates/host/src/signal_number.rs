//! Signals by name and number, as users, images and programs write them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Names without `SIG`, at the place of their numbers (`signal(7)`, x86).
const NAMES: [&str; 32] = [
    "", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
/// Real-time signals, as C libraries count them: glibc and musl keep the kernel's first ones.
const RTMIN: u8 = 34;
const RTMAX: u8 = 64;

/// The number of a signal, 1 to 64.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct SignalNumber(u8);

/// What names no signal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a signal: use a name such as HUP or SIGHUP, or a number from 1 to 64")]
pub struct NotASignal(String);

impl SignalNumber {
    /// SIGTERM.
    pub const TERM: Self = Self(libc::SIGTERM as u8);
    /// SIGKILL.
    pub const KILL: Self = Self(libc::SIGKILL as u8);

    /// The signal with this number, if there is one.
    pub fn from_raw(number: i32) -> Option<Self> {
        u8::try_from(number).ok()?.try_into().ok()
    }

    /// The number, as calls of libc take it.
    pub fn raw(self) -> i32 {
        self.0.into()
    }
}

impl TryFrom<u8> for SignalNumber {
    type Error = NotASignal;

    fn try_from(number: u8) -> Result<Self, NotASignal> {
        match number {
            1..=RTMAX => Ok(Self(number)),
            _ => Err(NotASignal(number.to_string())),
        }
    }
}

impl From<SignalNumber> for u8 {
    fn from(signal: SignalNumber) -> Self {
        signal.0
    }
}

impl FromStr for SignalNumber {
    type Err = NotASignal;

    fn from_str(word: &str) -> Result<Self, NotASignal> {
        let error = || NotASignal(word.to_owned());
        if let Ok(number) = word.parse::<u8>() {
            return Self::try_from(number).map_err(|_| error());
        }
        let upper = word.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let ordinary = || {
            NAMES
                .iter()
                .position(|known| !name.is_empty() && *known == name)
        };
        real_time(name)
            .or_else(|| u8::try_from(ordinary()?).ok())
            .map(Self)
            .ok_or_else(error)
    }
}

/// `RTMIN`, `RTMIN+3`, `RTMAX-1`.
fn real_time(name: &str) -> Option<u8> {
    let number = |from: u8, rest: &str, sign: char| match rest {
        "" => Some(from),
        rest => {
            let distance = rest.strip_prefix(sign)?.parse::<u8>().ok()?;
            match sign {
                '+' => from.checked_add(distance),
                _ => from.checked_sub(distance),
            }
        }
    };
    let least = name
        .strip_prefix("RTMIN")
        .map(|rest| number(RTMIN, rest, '+'));
    let most = || {
        name.strip_prefix("RTMAX")
            .map(|rest| number(RTMAX, rest, '-'))
    };
    let found = least.or_else(most)??;
    (RTMIN..=RTMAX).contains(&found).then_some(found)
}

impl fmt::Display for SignalNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.get(usize::from(self.0)) {
            Some(name) => write!(f, "SIG{name}"),
            None if self.0 >= RTMIN => write!(f, "SIGRTMIN+{}", self.0 - RTMIN),
            None => write!(f, "signal {}", self.0),
        }
    }
}

impl fmt::Debug for SignalNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_by_name_and_number() {
        for (word, number) in [
            ("HUP", libc::SIGHUP),
            ("SIGHUP", libc::SIGHUP),
            ("sigquit", libc::SIGQUIT),
            ("15", libc::SIGTERM),
            ("WINCH", libc::SIGWINCH),
            ("USR2", libc::SIGUSR2),
            ("SYS", libc::SIGSYS),
            ("SIGRTMIN", libc::SIGRTMIN()),
            ("SIGRTMIN+3", libc::SIGRTMIN() + 3),
            ("RTMAX-2", libc::SIGRTMAX() - 2),
            ("64", libc::SIGRTMAX()),
        ] {
            assert_eq!(
                word.parse::<SignalNumber>().map(SignalNumber::raw),
                Ok(number),
                "{word}"
            );
        }
        for word in [
            "",
            "SIG",
            "0",
            "65",
            "-1",
            "HUP ",
            "KIL",
            "RTMIN-1",
            "RTMIN+31",
            "RTMAX-31",
            "RTMIN+",
            "RTMAX+1",
            "RTMIN+999",
        ] {
            let error = word.parse::<SignalNumber>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{word:?} is not a signal")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_signal_is_written_as_it_can_be_read() {
        for number in 1..=64 {
            let signal = SignalNumber::try_from(number).unwrap();
            let word = signal.to_string();
            match number {
                32 | 33 => assert_eq!(word, format!("signal {number}")),
                _ => assert_eq!(word.parse(), Ok(signal), "{word}"),
            }
        }
    }

    #[test]
    fn only_a_signal_is_read_from_a_file() {
        assert_eq!(
            serde_json::from_str::<SignalNumber>("3")
                .unwrap()
                .to_string(),
            "SIGQUIT"
        );
        for number in ["0", "65", "256", "-1", "\"HUP\""] {
            assert!(
                serde_json::from_str::<SignalNumber>(number).is_err(),
                "{number}"
            );
        }
        assert_eq!(serde_json::to_string(&SignalNumber::TERM).unwrap(), "15");
    }
}
