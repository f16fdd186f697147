//! The other end of a machine's network interface: published ports, and passt, started or waited for.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use tare_control::rundir::RunDir;
use tare_frames::Rules;
use tare_policy::limit::NetLimits;

use crate::failure::Failure;
use crate::machine::{FilteredPasst, Link, LinkEnd, Net};
use crate::passt::{Hardware, Passt, PasstChoice, PasstUser};
use crate::ports::PortSocket;
use crate::publish::Publish;
use crate::{mac, passt};

/// What a link is made with.
pub(crate) struct LinkMaker<'a> {
    /// Where the machine runs.
    pub(crate) run_dir: &'a RunDir,
    /// The user that passt becomes.
    pub(crate) passt_user: Option<PasstUser>,
    /// The program that waits until passt is needed; `None` if it is started in any case: for Linux guests.
    pub(crate) waiter: Option<&'a Path>,
}

impl LinkMaker<'_> {
    /// The link that was planned.
    pub(crate) fn make(self, net: Net) -> Result<Option<Link>, Failure> {
        let mac = mac::address(self.run_dir.name());
        let end = match net {
            Net::None => return Ok(None),
            Net::Tap { name, file } => LinkEnd::Tap { name, file },
            Net::User {
                forwards,
                direct,
                passt,
            } => self.user(forwards, direct, passt, mac)?,
        };
        let limits = NetLimits::default();
        Ok(Some(Link { mac, end, limits }))
    }

    fn user(
        self,
        forwards: Vec<Publish>,
        direct: Option<Vec<PortSocket>>,
        rules: Option<Rules>,
        mac: [u8; 6],
    ) -> Result<LinkEnd, Failure> {
        let has_ipv6 = passt::uses_ipv6(&forwards);
        let (sockets, rules) = match (direct, rules) {
            (None, Some(filter)) => {
                let network = passt::Network {
                    has_ipv6,
                    beside: Hardware::Own,
                };
                let passt = self.choice(&forwards, network).start(mac)?;
                return Ok(LinkEnd::Passt(FilteredPasst { passt, filter }));
            }
            (direct, rules) => (direct.unwrap_or_default(), rules),
        };
        let network = passt::Network {
            has_ipv6,
            beside: Hardware::Shared,
        };
        let passt = rules.map(|filter| {
            let passt = self.beside(network, mac)?;
            Ok::<_, Failure>(FilteredPasst { passt, filter })
        });
        Ok(LinkEnd::Direct {
            sockets,
            has_ipv6,
            passt: passt.transpose()?,
        })
    }

    /// passt beside the ports that the monitor serves: it is not needed before the guest sends it
    /// something.
    fn beside(self, network: passt::Network, mac: [u8; 6]) -> Result<Passt, Failure> {
        let (run_dir, waiter) = (self.run_dir, self.waiter);
        let choice = self.choice(&[], network);
        Ok(match waiter {
            Some(monitor) => choice.wait(mac, monitor, || log(run_dir))?,
            None => choice.start(mac)?,
        })
    }

    fn choice(self, forwards: &[Publish], network: passt::Network) -> PasstChoice<'_> {
        PasstChoice {
            forwards,
            network,
            user: self.passt_user,
        }
    }
}

/// passt's log, empty.
pub(crate) fn log(dir: &RunDir) -> io::Result<File> {
    let path = dir.passt_log();
    dir.write_file(&path, b"")?;
    OpenOptions::new().append(true).open(path)
}
