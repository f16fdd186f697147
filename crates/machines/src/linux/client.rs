//! A client of an application: what it asks, and how it learns the length of answers.

use std::io;
use std::net::SocketAddr;

use super::LinuxError;
use super::catalog::{App, Phase, Protocol};
use super::dialog::{ANSWER, Dialog, QUIET, greeted};

/// Whoever asks an application that answers at an address.
#[derive(Clone, Debug)]
pub struct Client {
    pub address: SocketAddr,
    protocol: Protocol,
    /// What errors call the server: its kernel, or its port.
    pub(crate) server: String,
}

/// A request and the length of its answer.
pub(crate) struct Known {
    pub(crate) request: Vec<u8>,
    answer_bytes: usize,
}

/// The requests of a phase.
pub(crate) struct Round {
    /// What opens a connection; no bytes where nothing does.
    greeting: Known,
    pub(crate) requests: Vec<Known>,
}

impl Known {
    /// Sends it, and reads its answer.
    pub(crate) fn ask(&self, dialog: &mut Dialog) -> io::Result<()> {
        dialog.exchange(&self.request, self.answer_bytes).map(drop)
    }
}

impl Client {
    pub(crate) fn new(app: &App, address: SocketAddr, server: &str) -> Self {
        Self {
            address,
            protocol: app.protocol,
            server: server.to_owned(),
        }
    }

    /// The answer to a request on a connection that stays open.
    pub fn learn(&self, request: &[u8]) -> Result<Vec<u8>, LinuxError> {
        greeted(self.address, self.protocol)
            .and_then(|(mut dialog, _)| dialog.learn(request, QUIET))
            .map_err(|_| self.unanswered(request))
    }

    /// The requests of a phase, with what is sent once before them.
    pub(crate) fn round(&self, phase: &Phase) -> Result<Round, LinuxError> {
        if !phase.prepare.is_empty() {
            self.learn(&self.protocol.wire(&phase.prepare))?;
        }
        let requests = phase.requests.iter().map(|request| {
            let request = self.protocol.wire(request);
            let answer_bytes = self.learn(&request)?.len();
            Ok(Known {
                request,
                answer_bytes,
            })
        });
        let requests = requests.collect::<Result<_, LinuxError>>()?;
        let request = self.protocol.greeting();
        let (_, answer_bytes) =
            greeted(self.address, self.protocol).map_err(|_| self.unanswered(&request))?;
        Ok(Round {
            greeting: Known {
                request,
                answer_bytes,
            },
            requests,
        })
    }

    /// A new connection that takes requests.
    pub(crate) fn open(&self, round: &Round) -> io::Result<Dialog> {
        let mut dialog = Dialog::open(self.address, ANSWER)?;
        if !round.greeting.request.is_empty() {
            round.greeting.ask(&mut dialog)?;
        }
        Ok(dialog)
    }

    /// The error for a request that was not answered.
    pub(crate) fn unanswered(&self, request: &[u8]) -> LinuxError {
        LinuxError::NoAnswer {
            kernel: self.server.clone(),
            request: String::from_utf8_lossy(request).into_owned(),
        }
    }
}
