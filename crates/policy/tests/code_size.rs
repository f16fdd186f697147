//! How large the decision is: vIC 2011 added 400 bytes of text and 104 of
//! data to its device. And what it must not contain: a division, a clock read
//! or floating point.
//!
//! Compiles the library once more, optimised, and reads the object file with
//! binutils; without them, or without `rustc`, it skips.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use tare_policy::coalesce::{Coalescer, Counters};
use tare_vmtest::lacks;

/// More than the 400 bytes of vIC 2011: urgent requests, the longest hold, the stale
/// ratio, the latencies of the trial and the histograms are in here, too.
const TEXT_LIMIT_BYTES: u64 = 1_050;
/// vIC 2011 has 104 bytes; beside these there are the settings, both ends of a hold
/// and of an epoch, and a window of latencies with what it is compared with.
const DATA_LIMIT_BYTES: usize = 336;

/// What runs for each completion, and what it calls.
const PATH: [&str; 2] = ["Coalescer::completed", "Coalescer::release"];

#[test]
fn the_decision_is_small() {
    let Some(object) = compiled("size") else {
        return;
    };
    let Some(symbols) = output(
        Command::new("nm")
            .args(["-S", "-C", "--radix=d"])
            .arg(&object),
    ) else {
        return;
    };
    let sizes = PATH.map(|name| size_of_symbol(&symbols, name));
    let text_bytes: u64 = sizes.iter().sum();
    let data_bytes = size_of::<Coalescer>() - size_of::<Counters>();
    println!("policy_text_bytes {text_bytes} {sizes:?}");
    println!(
        "policy_data_bytes {data_bytes}, counters {}",
        size_of::<Counters>()
    );
    assert!(text_bytes <= TEXT_LIMIT_BYTES, "{text_bytes} bytes of text");
    assert!(data_bytes <= DATA_LIMIT_BYTES, "{data_bytes} bytes of data");
}

#[test]
fn the_decision_neither_divides_nor_reads_a_clock_nor_uses_floats() {
    if !cfg!(target_arch = "x86_64") {
        return lacks("the instructions looked for are those of x86-64");
    }
    let Some(object) = compiled("instructions") else {
        return;
    };
    let listing = Command::new("objdump")
        .args(["-d", "-C", "--no-show-raw-insn"])
        .arg(&object)
        .output();
    let Ok(listing) = listing else {
        return lacks("objdump cannot be run");
    };
    let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
    for name in PATH {
        let instructions = instructions_of(&listing, name);
        assert!(instructions.len() > 10, "{name}: {instructions:?}");
        for instruction in instructions {
            let bad = ["div", "idiv", "rdtsc", "cpuid", "cvt"];
            let bad = bad.iter().any(|bad| instruction.starts_with(bad));
            assert!(
                !bad && !instruction.contains("call   *"),
                "{name}: {instruction}"
            );
        }
    }
    // The search would find one: an epoch's end divides.
    let epoch = instructions_of(&listing, "Coalescer::turn_epoch");
    assert!(
        epoch
            .iter()
            .any(|instruction| instruction.starts_with("div"))
    );
}

/// The library as an optimised object file; `None`, having said why, when that
/// is not possible here.
fn compiled(name: &str) -> Option<PathBuf> {
    let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.o"));
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
    let mut command = Command::new(rustc);
    command
        .args([
            "--edition=2024",
            "--crate-type=lib",
            "--crate-name=tare_policy",
        ])
        .args([
            "--emit=obj",
            "-Copt-level=2",
            "-Ccodegen-units=1",
            "-Cpanic=abort",
        ])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/lib.rs"))
        .arg("-o")
        .arg(&object);
    output(&mut command).map(|_| object)
}

fn output(command: &mut Command) -> Option<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(output) if output.status.success() => {
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => {
            lacks(format!(
                "{program}: {}",
                String::from_utf8_lossy(&output.stderr)
            ));
            None
        }
        Err(error) => {
            lacks(format!("{program} cannot be run: {error}"));
            None
        }
    }
}

/// Lines of `nm` are: address, size, type, name.
fn size_of_symbol(symbols: &str, name: &str) -> u64 {
    let symbol = format!("tare_policy::coalesce::coalescer::{name}");
    let line = symbols.lines().find(|line| line.ends_with(&symbol));
    let size = line.and_then(|line| line.split(' ').nth(1)?.parse().ok());
    size.unwrap_or_else(|| panic!("{symbol} is not in:\n{symbols}"))
}

/// From the line with the symbol to the empty line: offset, tab, instruction.
fn instructions_of<'a>(listing: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!("coalescer::{name}>:");
    let lines = listing
        .lines()
        .skip_while(|line| !line.ends_with(&start))
        .skip(1)
        .take_while(|line| !line.is_empty());
    lines.filter_map(|line| line.split('\t').nth(1)).collect()
}
