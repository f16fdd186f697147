//! Host name, loopback and the static address of the command line.

mod message;
mod names;
mod route;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tare_init::address::Address;

use crate::console::say;
use route::Route;

const LOOPBACK: &str = "lo";
/// How long the interface's driver may take to find it.
const INTERFACE_LIMIT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// Sets up what the command line asks for; without `ip=` there is loopback only.
pub(crate) fn set_up(hostname: &str) {
    let cmdline = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let address = Address::on(&cmdline);
    let given = address.as_ref().and_then(|it| it.hostname.as_deref());
    let hostname = Some(hostname).filter(|name| !name.is_empty()).or(given);
    if let Some(name) = hostname
        && let Err(errno) = rustix::system::sethostname(name.as_bytes())
    {
        say(&format!("cannot set the host name {name}: {errno}"));
    }
    names::write(Path::new("/"), hostname, address.as_ref());
    let route = match Route::open() {
        Ok(route) => route,
        // A kernel without network.
        Err(_) => return,
    };
    let _ = index_of(LOOPBACK).map(|index| route.up(index));
    if let Some(address) = address
        && let Err(problem) = configure(&route, &address)
    {
        say(&format!("the network is not set up: {problem}"));
    }
}

fn configure(route: &Route, address: &Address) -> Result<(), String> {
    let index = interface(address.device.as_deref()).ok_or("there is no interface")?;
    let failed = |what: &'static str| move |errno: Errno| format!("{what}: {errno}");
    route.up(index).map_err(failed("interface"))?;
    route
        .add_address(index, address.client, address.prefix)
        .map_err(failed("address"))?;
    match address.gateway {
        None => Ok(()),
        Some(gateway) => route.add_default(gateway).map_err(failed("gateway")),
    }
}

/// The number of the named interface, or of the first that is not loopback.
fn interface(name: Option<&str>) -> Option<u32> {
    let begin = Instant::now();
    loop {
        let found = match name {
            Some(name) => index_of(name),
            None => first().as_deref().and_then(index_of),
        };
        if found.is_some() || begin.elapsed() > INTERFACE_LIMIT {
            return found;
        }
        std::thread::sleep(PAUSE);
    }
}

fn first() -> Option<String> {
    let mut names: Vec<String> = fs::read_dir("/sys/class/net")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name != LOOPBACK)
        .collect();
    names.sort();
    names.into_iter().next()
}

fn index_of(name: &str) -> Option<u32> {
    use rustix::net::netdevice::name_to_index;
    use rustix::net::{AddressFamily, SocketType, socket};
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    name_to_index(&socket, name).ok()
}
