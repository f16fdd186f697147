//! Names: what an engine of containers gives each of them, where the root has nothing.

use std::fs;
use std::io;
use std::path::Path;

use tare_init::address::Address;

/// Writes `/etc/hosts`, `/etc/hostname` and `/etc/resolv.conf` of a root if they are missing or
/// empty, which they are in most images.
pub(super) fn write(root: &Path, hostname: Option<&str>, address: Option<&Address>) {
    let name = hostname.unwrap_or("localhost");
    let own = match address {
        Some(address) => format!("{}\t{name}\n", address.client),
        None => format!("127.0.1.1\t{name}\n"),
    };
    let resolver = address.and_then(|address| address.resolver);
    let files = [
        (
            "hosts",
            Some(format!(
                "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n{own}"
            )),
        ),
        ("hostname", Some(format!("{name}\n"))),
        (
            "resolv.conf",
            resolver.map(|resolver| format!("nameserver {resolver}\n")),
        ),
    ];
    let directory = root.join("etc");
    for (file, text) in files {
        if let Some(text) = text {
            // A root that is read only has what it has.
            let _ = provide(&directory.join(file), &text);
        }
    }
}

fn provide(path: &Path, text: &str) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() || found.len() > 0 => return Ok(()),
        Ok(_) => {}
        // Also a link to a file that a service of the image would make.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if path.is_symlink() {
                fs::remove_file(path)?;
            } else if let Some(directory) = path.parent() {
                fs::create_dir_all(directory)?;
            }
        }
        Err(error) => return Err(error),
    }
    fs::write(path, text)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_root_without_names_gets_them_and_another_keeps_its_own() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        fs::create_dir(root.join("etc")).unwrap();
        fs::write(root.join("etc/hostname"), "own\n").unwrap();
        std::os::unix::fs::symlink("../run/resolv.conf", root.join("etc/resolv.conf")).unwrap();
        let address = Address {
            client: Ipv4Addr::new(10, 0, 2, 15),
            prefix: 24,
            gateway: None,
            hostname: None,
            device: None,
            resolver: Some(Ipv4Addr::new(10, 0, 2, 2)),
        };
        write(root, Some("web"), Some(&address));
        let text = |name: &str| fs::read_to_string(root.join("etc").join(name)).unwrap();
        let (hosts, hostname, resolver) = (text("hosts"), text("hostname"), text("resolv.conf"));
        let without = root.join("without");
        write(&without, None, None);
        let alone = fs::read_to_string(without.join("etc/hosts")).unwrap();
        let has_resolver = without.join("etc/resolv.conf").exists();
        assert!(hosts.contains("127.0.0.1\tlocalhost\n"), "{hosts}");
        assert!(hosts.contains("10.0.2.15\tweb\n"), "{hosts}");
        assert_eq!(hostname, "own\n");
        assert_eq!(resolver, "nameserver 10.0.2.2\n");
        assert!(alone.contains("127.0.1.1\tlocalhost\n"), "{alone}");
        assert!(!has_resolver);
    }
}
