//! Starts the network as the command line says.

#![cfg_attr(not(target_os = "none"), allow(dead_code))] // the host has no devices

use alloc::boxed::Box;

use tare_abi::cmdline::{self, Idle};
use tare_hal::virtio::Transport;

use super::device::Device;
use super::stack::Setup;
use super::system::{self, Turns};
use super::virtio::{OpenError, VirtioNet};
use crate::env;

/// Starts the network, on the device if there is one.
pub(crate) fn start(transport: Option<Transport>) {
    let device = match transport.map(open) {
        Some(Ok(net)) => Device::Virtio(Box::new(net)),
        Some(Err(error)) => {
            log::error!("net: {error}");
            Device::absent()
        }
        None => Device::absent(),
    };
    let setup = match &device {
        Device::Absent(_) => Setup::LoopbackOnly,
        Device::Virtio(_) => setup(),
    };
    let idle = env::var(cmdline::IDLE).and_then(Idle::from_name);
    let turns = match idle.unwrap_or_default() {
        Idle::Block => Turns::Block,
        Idle::Poller => Turns::Poll,
        Idle::Spin => Turns::Spin,
    };
    system::start(device, setup, turns);
}

fn open(transport: Transport) -> Result<VirtioNet, OpenError> {
    VirtioNet::new(transport, &|| system::WORK.set())
}

fn setup() -> Setup {
    let Some(word) = env::var(cmdline::IP) else {
        return Setup::Dhcp;
    };
    Setup::from_word(word).unwrap_or_else(|| {
        log::error!("net: invalid ip={word}: want ADDRESS/PREFIX[,GATEWAY]; using DHCP");
        Setup::Dhcp
    })
}
