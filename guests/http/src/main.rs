//! The HTTP appliance; on the host, the same server for a directory.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
tare_libos::entry!(main, takes = SITE + RELOAD);

#[cfg(target_os = "none")]
fn main() -> tare_libos::io::Result<()> {
    tare_guest_http::appliance::run()
}

/// `http DIRECTORY [ADDRESS:PORT]`
#[cfg(not(target_os = "none"))]
fn main() -> std::io::Result<()> {
    use std::io::{Error, ErrorKind};
    use std::sync::Arc;
    use tare_guest_http::host::{self, MemoryFiles};
    use tare_guest_http::server::Server;

    let mut args = std::env::args().skip(1);
    let usage = || {
        Error::new(
            ErrorKind::InvalidInput,
            "usage: http DIRECTORY [ADDRESS:PORT]",
        )
    };
    let root = args.next().ok_or_else(usage)?;
    let address = args.next().unwrap_or_else(|| "127.0.0.1:8080".into());
    let files = MemoryFiles::read(root.as_ref())?;
    let listener = std::net::TcpListener::bind(address)?;
    println!("http: serving on {}", listener.local_addr()?);
    host::serve(&listener, &Arc::new(Server::new(files)));
    Ok(())
}
