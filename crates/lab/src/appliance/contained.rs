//! memcached in namespaces of its own (`unshare`): mounts, processes, IPC, host
//! name, users. It keeps the host's network, so that its clients reach it on
//! loopback without a bridge: what a container costs apart from its network.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tare_control::stats::Stats;

use super::{Appliance, ApplianceError};
use crate::interrupt::{Interrupt, SLICE};
use crate::lifeline::ending_with_us;
use crate::observe::CpuReading;

/// A container that was started. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Contained {
    child: Child,
    started: Instant,
    address: SocketAddr,
}

impl Contained {
    /// Starts memcached with one worker thread on a port of the loopback.
    pub(super) fn start(port: u16, memory_mib: u32) -> Result<Self, ApplianceError> {
        let mut command = ending_with_us("unshare");
        // `--kill-child`: whoever ends `unshare` ends what runs in it.
        command
            .args("--user --map-root-user --mount --pid --ipc --uts --fork".split(' '))
            .args(["--kill-child", "--mount-proc", "--", "memcached"])
            .args(["-u", "root", "-l", "127.0.0.1", "-U", "0", "-t", "1"])
            .args(["-p", &port.to_string(), "-m", &memory_mib.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let started = Instant::now();
        let child = command.spawn().map_err(|source| ApplianceError::Execute {
            path: PathBuf::from("unshare"),
            source,
        })?;
        Ok(Self {
            child,
            started,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        })
    }

    fn check(&mut self) -> Result<(), ApplianceError> {
        match self.child.try_wait().map_err(ApplianceError::Prepare)? {
            None => Ok(()),
            Some(status) => Err(ApplianceError::Ended {
                code: status
                    .code()
                    .unwrap_or_else(|| -status.signal().unwrap_or(1)),
                said: "memcached or its namespaces are not to be had".to_owned(),
            }),
        }
    }
}

impl Appliance for Contained {
    fn started(&self) -> Instant {
        self.started
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn wait_serving(
        &mut self,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<Duration, ApplianceError> {
        loop {
            interrupt.check()?;
            self.check()?;
            if TcpStream::connect(self.address).is_ok() {
                return Ok(self.started.elapsed());
            }
            if self.started.elapsed() > timeout {
                return Err(ApplianceError::NotServing(timeout));
            }
            interrupt.sleep(SLICE)?;
        }
    }

    fn stats(&mut self) -> Result<Option<Stats>, ApplianceError> {
        self.check()?;
        Ok(None)
    }

    fn cpu(&mut self) -> Result<CpuReading, ApplianceError> {
        CpuReading::read(self.child.id(), &[]).map_err(ApplianceError::Cpu)
    }

    fn image_bytes(&self) -> Option<u64> {
        None
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        let _: io::Result<()> = self.child.kill();
        let _ = self.child.wait();
    }
}
