//! Requests of `ioctl` about network interfaces (`netdevice(7)`), on any socket.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};

use tare_program::offered::Ioctl;

use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::Open;
use crate::files::endpoint::Address;
use crate::interfaces::{self, Interface, broadcast, mask};

/// Bytes of a name, the first of a `struct ifreq`, and of all of it.
const NAME: usize = 16;
const REQUEST: usize = 40;

pub(super) fn request(context: &Context<'_>, open: &Open, request: Ioctl, argument: u64) -> Result {
    open.file.endpoint().ok_or(Errno::ENOTTY)?;
    let interfaces = interfaces::all();
    let process = context.process;
    if request == Ioctl::SIOCGIFCONF {
        return list(context, argument, &interfaces);
    }
    let value = argument.wrapping_add(NAME as u64);
    if request == Ioctl::SIOCGIFNAME {
        let index = process.u32(value)?;
        let found = interfaces.iter().find(|it| it.index == index);
        let found = found.ok_or(Errno::ENODEV)?;
        process.write(argument, &name(found))?;
        return Ok(0);
    }
    let wanted: [u8; NAME] = process.array(argument)?;
    // What is behind a colon was an address's own name once.
    let wanted = wanted.split(|byte| matches!(byte, 0 | b':')).next();
    let found = interfaces
        .iter()
        .find(|it| Some(it.name.as_bytes()) == wanted)
        .ok_or(Errno::ENODEV)?;
    let first = || found.v4().next().ok_or(Errno::EADDRNOTAVAIL);
    let bytes = match request {
        Ioctl::SIOCGIFFLAGS => (found.flags() as u16).to_le_bytes().to_vec(),
        Ioctl::SIOCGIFADDR => address(first()?.0),
        Ioctl::SIOCGIFNETMASK => address(mask(first()?.1)),
        Ioctl::SIOCGIFBRDADDR if found.is_loopback() => address(Ipv4Addr::UNSPECIFIED),
        Ioctl::SIOCGIFBRDADDR => {
            let (own, prefix_len) = first()?;
            address(broadcast(own, prefix_len))
        }
        Ioctl::SIOCGIFHWADDR => {
            let mut bytes = found.hardware().to_le_bytes().to_vec();
            bytes.extend(found.mac());
            bytes.resize(16, 0);
            bytes
        }
        Ioctl::SIOCGIFMTU => word(found.inner.mtu.into()),
        Ioctl::SIOCGIFINDEX => word(found.index),
        Ioctl::SIOCGIFMETRIC => word(0),
        Ioctl::SIOCGIFTXQLEN => word(interfaces::QUEUE_LENGTH),
        _ => return Err(Errno::ENOTTY),
    };
    process.write(value, &bytes)?;
    Ok(0)
}

/// `SIOCGIFCONF`: all addresses of IPv4, as many as there is room for; without a buffer the bytes
/// that they take (`dev_ifconf` of kernel net/core/dev_ioctl.c).
fn list(context: &Context<'_>, argument: u64, interfaces: &[Interface]) -> Result {
    let process = context.process;
    let room = process.u32(argument)? as i32;
    let buffer: [u8; 8] = process.array(argument.wrapping_add(8))?;
    let buffer = u64::from_le_bytes(buffer);
    let mut bytes = Vec::new();
    for interface in interfaces {
        for (own, _) in interface.v4() {
            bytes.extend(name(interface));
            bytes.extend(address(own));
            bytes.resize(bytes.len().next_multiple_of(REQUEST), 0);
        }
    }
    if buffer != 0 {
        let fit = usize::try_from(room).unwrap_or(0) / REQUEST * REQUEST;
        bytes.truncate(fit);
        process.write(buffer, &bytes)?;
    }
    process.put_u32(argument, bytes.len() as u32)?;
    Ok(0)
}

fn name(interface: &Interface) -> [u8; NAME] {
    let mut name = [0; NAME];
    name[..interface.name.len()].copy_from_slice(interface.name.as_bytes());
    name
}

fn address(address: Ipv4Addr) -> Vec<u8> {
    Address::Ip(SocketAddr::from((address, 0))).to_bytes()
}

fn word(word: u32) -> Vec<u8> {
    word.to_le_bytes().to_vec()
}
