//! The cache appliance; on the host, the same server.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
tare_libos::entry!(main);

#[cfg(target_os = "none")]
fn main() -> tare_libos::io::Result<()> {
    tare_guest_kv::appliance::run()
}

/// `kv [ADDRESS:PORT [MEBIBYTES]]`
#[cfg(not(target_os = "none"))]
fn main() -> std::io::Result<()> {
    use std::io::{Error, ErrorKind};
    use std::sync::Arc;
    use tare_guest_kv::host::{self, HostClock};
    use tare_guest_kv::server::{Server, Settings};

    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or_else(|| "127.0.0.1:11211".into());
    let usage = |_| {
        Error::new(
            ErrorKind::InvalidInput,
            "usage: kv [ADDRESS:PORT [MEBIBYTES]]",
        )
    };
    let mebibytes: usize = args
        .next()
        .map_or(Ok(64), |arg| arg.parse())
        .map_err(usage)?;
    let listener = std::net::TcpListener::bind(address)?;
    let settings = Settings {
        memory_bytes: mebibytes << 20,
        port: listener.local_addr()?.port(),
        ..Settings::default()
    };
    println!("kv: serving on {}", listener.local_addr()?);
    host::serve(&listener, &Arc::new(Server::new(settings, HostClock)));
    Ok(())
}
