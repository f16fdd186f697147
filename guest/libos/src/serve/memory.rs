//! A transport from memory to memory, to count what a server's commands cost.

use core::hint::black_box;
use core::time::Duration;

use alloc::vec::Vec;

use super::{Transport, TransportError};

/// Each receive is one command; what is sent is thrown away.
#[derive(Debug)]
pub struct Memory {
    first: Vec<u8>,
    command: Vec<u8>,
    left: u32,
}

impl Memory {
    /// `command` again and again, `times` receives in all; the first one is
    /// `first` instead, unless that is empty.
    pub fn new(first: &[u8], command: &[u8], times: u32) -> Self {
        Self {
            first: first.into(),
            command: command.into(),
            left: times,
        }
    }
}

impl Transport for Memory {
    fn receive(
        &mut self,
        into: &mut [u8],
        _within: Option<Duration>,
    ) -> Result<usize, TransportError> {
        if self.left == 0 {
            return Ok(0);
        }
        self.left -= 1;
        let first = core::mem::take(&mut self.first);
        let command = if first.is_empty() {
            &self.command
        } else {
            &first
        };
        into[..command.len()].copy_from_slice(command);
        Ok(command.len())
    }

    fn send<const N: usize>(
        &mut self,
        parts: &[&[u8]; N],
        _within: Duration,
    ) -> Result<usize, TransportError> {
        Ok(black_box(parts).iter().map(|part| part.len()).sum())
    }

    fn finish(&mut self) {}

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_command_comes_once_and_the_end_after_all() {
        let mut memory = Memory::new(b"set", b"get it", 3);
        let mut buffer = [0; 16];
        let mut next = || {
            let length = memory.receive(&mut buffer, None).unwrap_or(99);
            buffer[..length].to_vec()
        };
        assert_eq!(next(), b"set");
        assert_eq!(next(), b"get it");
        assert_eq!(next(), b"get it");
        assert_eq!(next(), b"");
    }
}
