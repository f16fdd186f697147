//! Checks that every counter is used: a counter that no code touches is a broken promise.

use std::fs;
use std::path::Path;

use crate::blk::BlkCounters;
use crate::console::ConsoleCounters;
use crate::net::NetCounters;
use crate::pci::BusCounters;
use crate::power::PowerCounters;
use crate::rng::RngCounters;
use crate::serial::SerialCounters;
use crate::virtio::TransportCounters;

/// The sources of a directory, without tests and declarations.
fn sources(directory: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_file() && !matches!(&name[..], "counters.rs" | "tests.rs") {
            text.extend(fs::read_to_string(&path).unwrap().split_whitespace());
        }
    }
    text
}

#[test]
fn every_counter_is_used_by_its_device() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (folder, names) in [
        ("blk", BlkCounters::NAMES),
        ("console", ConsoleCounters::NAMES),
        ("net", NetCounters::NAMES),
        ("pci", BusCounters::NAMES),
        ("power", PowerCounters::NAMES),
        ("rng", RngCounters::NAMES),
        ("serial", SerialCounters::NAMES),
        ("virtio", TransportCounters::NAMES),
    ] {
        let text = sources(&root.join(folder));
        for name in names {
            let counts = ["increment(", "add("]
                .iter()
                .any(|act| text.contains(&format!(".{name}.{act}")));
            assert!(counts, "{folder}: nothing counts {name}");
        }
    }
}
