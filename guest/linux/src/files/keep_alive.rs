//! Peers that are silent: when they are probed and given up, as a program sets it (`SO_KEEPALIVE`, `tcp(7)`).

use tare_libos::net::KeepAlive;
use tare_libos::time::Duration;

use crate::errno::{Errno, Result};

/// Most seconds, and most probes (`MAX_TCP_KEEPIDLE`, `MAX_TCP_KEEPCNT` in Linux's include/net/tcp.h).
const MOST_SECONDS: u32 = 32_767;
const MOST_PROBES: u32 = 127;

/// One of the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// Seconds of silence before the first probe.
    Idle,
    /// Seconds between probes.
    Interval,
    /// Probes without an answer before the connection is lost.
    Probes,
    /// Milliseconds until a peer is given up that acknowledges nothing (`TCP_USER_TIMEOUT`); 0 is the stack's
    /// own limit.
    GivenUp,
}

/// The settings of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) is_on: bool,
    idle_s: u32,
    interval_s: u32,
    probes: u32,
    given_up_ms: u32,
}

impl Default for Settings {
    /// Linux's (`/proc/sys/net/ipv4/tcp_keepalive_*`).
    fn default() -> Self {
        Self {
            is_on: false,
            idle_s: 7200,
            interval_s: 75,
            probes: 9,
            given_up_ms: 0,
        }
    }
}

impl Settings {
    /// EINVAL for a number that Linux does not take.
    pub(crate) fn set(&mut self, number: Number, value: u32) -> Result<()> {
        let (place, least, most) = match number {
            Number::Idle => (&mut self.idle_s, 1, MOST_SECONDS),
            Number::Interval => (&mut self.interval_s, 1, MOST_SECONDS),
            Number::Probes => (&mut self.probes, 1, MOST_PROBES),
            Number::GivenUp => (&mut self.given_up_ms, 0, i32::MAX as u32),
        };
        if !(least..=most).contains(&value) {
            return Err(Errno::EINVAL);
        }
        *place = value;
        Ok(())
    }

    pub(crate) fn get(&self, number: Number) -> u32 {
        match number {
            Number::Idle => self.idle_s,
            Number::Interval => self.interval_s,
            Number::Probes => self.probes,
            Number::GivenUp => self.given_up_ms,
        }
    }

    /// When the stack is to give a peer up, if not by itself.
    pub(crate) fn limit(&self) -> Option<Duration> {
        let ms = Some(self.given_up_ms).filter(|ms| *ms != 0);
        ms.map(|ms| Duration::from_millis(ms.into()))
    }

    /// What the stack is to do.
    pub(crate) fn probes(&self) -> Option<KeepAlive> {
        self.is_on.then(|| KeepAlive {
            idle: Duration::from_secs(self.idle_s.into()),
            interval: Duration::from_secs(self.interval_s.into()),
            probes: self.probes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_that_linux_takes() {
        let mut settings = Settings::default();
        assert_eq!(settings.probes(), None);
        settings.is_on = true;
        for (number, first, most) in [
            (Number::Idle, 7200, 32_767),
            (Number::Interval, 75, 32_767),
            (Number::Probes, 9, 127),
        ] {
            assert_eq!(settings.get(number), first);
            for wrong in [0, most + 1, u32::MAX] {
                assert_eq!(settings.set(number, wrong), Err(Errno::EINVAL));
            }
            assert_eq!(settings.get(number), first);
            settings.set(number, most).unwrap();
            assert_eq!(settings.get(number), most);
        }
        assert_eq!(settings.limit(), None);
        let (number, wrong) = (Number::GivenUp, 1 << 31);
        assert_eq!(settings.set(number, wrong), Err(Errno::EINVAL));
        settings.set(number, 1500).unwrap();
        assert_eq!(settings.limit().unwrap().as_millis(), 1500);
        settings.set(number, 0).unwrap();
        assert_eq!(settings.limit(), None);
        let probes = settings.probes().unwrap();
        assert_eq!((probes.idle.as_secs(), probes.probes), (32_767, 127));
    }
}
