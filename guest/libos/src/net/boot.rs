//! Starts the network as the command line says.

#![cfg_attr(not(target_os = "none"), allow(dead_code))] // the host has no devices

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;

use tare_abi::cmdline::{self, Idle};
use tare_hal::virtio::Transport;
use tare_net::stack::{Ipv6Setup, Setup};

use super::device::Device;
use super::system::{self, Configuration, Turns};
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
        Device::Absent(_) => Configuration::loopback_only(),
        Device::Virtio(_) => Configuration {
            ipv4: setup(),
            ipv6: ipv6_setup(),
            ipv6_secret: ipv6_secret(),
            name_servers: name_servers(),
        },
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

fn ipv6_setup() -> Ipv6Setup {
    let word = env::var(cmdline::IP6).unwrap_or("auto");
    Ipv6Setup::from_word(word).unwrap_or_else(|| {
        log::error!(
            "net: invalid ip6={word}: want auto, off or ADDRESS/PREFIX[,GATEWAY]; using auto"
        );
        Ipv6Setup::Auto
    })
}

/// The secret of `ip6_secret=`, so that addresses stay the same from boot to boot;
/// else one of this boot.
fn ipv6_secret() -> [u8; 16] {
    let given = env::var(cmdline::IP6_SECRET).and_then(|word| u128::from_str_radix(word, 16).ok());
    given.map_or_else(
        || {
            let mut secret = [0; 16];
            crate::random::fill(&mut secret);
            secret
        },
        u128::to_be_bytes,
    )
}

fn name_servers() -> Vec<IpAddr> {
    let addresses = env::var(cmdline::DNS).unwrap_or_default().split(',');
    let servers = addresses
        .filter(|word| !word.is_empty())
        .filter_map(|word| {
            let server = word.parse().ok();
            if server.is_none() {
                log::error!("net: invalid address in dns=: {word}");
            }
            server
        });
    servers.collect()
}
