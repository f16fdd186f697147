//! Starts the process that serves the network of a machine in QEMU (`tare_monitor`'s `ports_process`).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use tare_control::config::{Descriptor, Jail, PortsConfig};
use tare_host::child::start_orphan;

use crate::machine::Link;
use crate::monitor::net;
use crate::passt::PasstUser;

/// Starts it, as the user of the machine's passt; returns the socket for QEMU, whose end is the process's end.
/// `monitor` is its program.
pub(crate) fn start(
    monitor: &Path,
    link: &Link,
    user: Option<&PasstUser>,
    log: File,
) -> io::Result<OwnedFd> {
    let (qemus, theirs) = UnixStream::pair()?;
    let user = user.map(PasstUser::jail_user);
    let claim = user.and_then(|user| user.claim);
    let mut kept: Vec<RawFd> = claim.map(|Descriptor(number)| number).into_iter().collect();
    let mut hand = |number: RawFd| {
        kept.push(number);
        Descriptor(number)
    };
    let config = PortsConfig {
        guest: hand(theirs.as_raw_fd()),
        net: net(link, &mut |fd| Ok(hand(fd.as_raw_fd()))).map_err(io::Error::other)?,
        jail: Jail {
            namespaces: true,
            user,
        },
    };
    let config = serde_json::to_string(&config)?;
    start_orphan(monitor, [PortsConfig::OPTION, &config], kept, log)?;
    Ok(qemus.into())
}
