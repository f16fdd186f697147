//! `cargo xtask ioctls`: the names of `ioctl` requests, from the kernel's UAPI headers.
//!
//! clang lists the headers' macros and computes those that are requests, so that sizes of
//! structures are the compiler's. The result is kept in the tree, because a kernel is
//! tailored by these names: what a profile says must not depend on the headers of the
//! machine that built the program (docs/adr/0038-names-of-the-kernels-interface.md).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::shell::root;

const TABLE: &str = "crates/profile/src/names/ioctl.rs";
/// Headers with requests, and those that define the structures of their arguments.
const HEADERS: &[&str] = &[
    "stddef.h",
    "linux/types.h",
    "linux/fiemap.h",
    "linux/blktrace_api.h",
    "linux/filter.h",
    "linux/serial.h",
    "asm/termbits.h",
    "asm/ioctls.h",
    "linux/sockios.h",
    "linux/fs.h",
    "linux/loop.h",
    "linux/random.h",
    "linux/kvm.h",
    "linux/vhost.h",
    "linux/userfaultfd.h",
    "linux/fscrypt.h",
    "linux/if_tun.h",
    "linux/perf_event.h",
    "linux/rtc.h",
    "linux/fuse.h",
    "linux/nsfs.h",
];
/// Headers in which requests are plain numbers of four digits, without `_IO`.
const PLAIN: &[&str] = &[
    "asm-generic/ioctls.h",
    "asm-generic/sockios.h",
    "linux/sockios.h",
    "linux/loop.h",
];
/// Macros lead to macros; longer chains are not requests.
const DEPTH: usize = 4;

/// Requests by number.
type Table = BTreeMap<u32, String>;

/// Writes the table from the headers of this machine.
pub(crate) fn write() -> Result<()> {
    let table = from_headers()?;
    fs::write(root().join(TABLE), text(&table))?;
    eprintln!("{TABLE}: {} requests", table.len());
    Ok(())
}

fn text(table: &Table) -> String {
    let rows: String = table
        .iter()
        .map(|(number, name)| format!("    ({number:#x}, \"{name}\"),\n"))
        .collect();
    format!(
        "//! Requests of `ioctl` that programs make. Written by `cargo xtask ioctls` from the\n\
         //! kernel's headers, which `xtask/src/ioctls.rs` names; not to be edited.\n\n\
         /// By number.\n#[rustfmt::skip]\n\
         pub(super) const IOCTL: &[(u64, &str)] = &[\n{rows}];\n"
    )
}

fn from_headers() -> Result<Table> {
    let macros = Macros::parse(&clang(&["-E", "-dD", "-x", "c", "-"], &includes())?);
    Ok(choose(values(macros.requests())?, &macros))
}

fn includes() -> String {
    let lines = HEADERS
        .iter()
        .map(|header| format!("#include <{header}>\n"));
    lines.collect()
}

/// What clang prints for a source on its standard input.
fn clang(args: &[&str], source: &str) -> Result<String> {
    let mut child = Command::new("clang")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run clang (apt-get install clang libc6-dev)")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(source.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("clang: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Macros by name: the body, and the header below `include/`.
struct Macros(HashMap<String, (String, String)>);

impl Macros {
    /// Of the output of `clang -E -dD`.
    fn parse(listing: &str) -> Self {
        let mut header = String::new();
        let mut macros = HashMap::new();
        for line in listing.lines() {
            if let Some(marker) = line.strip_prefix("# ") {
                let path = marker.split('"').nth(1).unwrap_or_default();
                let below = path.rsplit("/include/").next().unwrap_or_default();
                header = below.trim_start_matches("x86_64-linux-gnu/").to_owned();
            } else if let Some((name, body)) = definition(line) {
                macros.insert(name.to_owned(), (body.to_owned(), header.clone()));
            }
        }
        Self(macros)
    }

    /// Names of requests, sorted; what only older programs use (`_OLD`) has another name.
    fn requests(&self) -> BTreeSet<&str> {
        let public = self.0.keys().map(String::as_str);
        public
            .filter(|name| !name.starts_with('_') && !name.ends_with("_OLD"))
            .filter(|name| self.is_request(name, DEPTH))
            .collect()
    }

    fn is_request(&self, name: &str, depth: usize) -> bool {
        let Some((body, header)) = self.0.get(name) else {
            return false;
        };
        let computed = ["_IO(", "_IOR(", "_IOW(", "_IOWR("];
        let without_blanks: String = body.split_whitespace().collect();
        computed.iter().any(|call| without_blanks.starts_with(call))
            || (PLAIN.contains(&header.as_str()) && is_plain(body))
            || depth > 0 && self.is_request(body.trim_matches(['(', ')']), depth - 1)
    }

    /// Whether a macro is another name of a second one.
    fn is_alias(&self, name: &str) -> bool {
        self.0
            .get(name)
            .is_some_and(|(body, _)| self.0.contains_key(body))
    }
}

/// The name and body of a macro without parameters.
fn definition(line: &str) -> Option<(&str, &str)> {
    let (name, body) = line.strip_prefix("#define ")?.split_once(' ')?;
    (!name.contains('(')).then_some((name, body.trim()))
}

fn is_plain(body: &str) -> bool {
    let digits = body.strip_prefix("0x").unwrap_or_default();
    digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// The numbers of requests. Those of other architectures, whose structures x86-64's headers
/// leave out, have none.
fn values(names: BTreeSet<&str>) -> Result<Vec<(u32, String)>> {
    let names: Vec<&str> = names.into_iter().collect();
    let refused = refused_lines(&source(&names))?;
    let first = HEADERS.len() + 1;
    let sized: Vec<&str> = (first..)
        .zip(names)
        .filter(|(line, _)| !refused.contains(line))
        .map(|(_, name)| name)
        .collect();
    let assembly = clang(&["-S", "-w", "-x", "c", "-", "-o", "-"], &source(&sized))?;
    let mut lines = assembly.lines().map(str::trim);
    let mut values = Vec::new();
    while let Some(line) = lines.next() {
        let label = line
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split_once(':'));
        if let Some((name, _)) = label {
            let value = lines.next().and_then(|line| line.strip_prefix(".long\t"));
            let digits = value.and_then(|value| value.split_whitespace().next());
            let number: i64 = digits.context("a request without a number")?.parse()?;
            values.push((number as u32, name.to_owned()));
        }
    }
    Ok(values)
}

/// Begins the names of variables that hold the requests.
const PREFIX: &str = "request_";

/// One variable a line, after the headers.
fn source(names: &[&str]) -> String {
    let variables = names
        .iter()
        .map(|name| format!("const unsigned {PREFIX}{name} = {name};\n"));
    includes() + &variables.collect::<String>()
}

/// Lines of `source` with errors.
fn refused_lines(source: &str) -> Result<BTreeSet<usize>> {
    let check = ["-fsyntax-only", "-w", "-ferror-limit=0", "-x", "c", "-"];
    let Err(error) = clang(&check, source) else {
        return Ok(BTreeSet::new());
    };
    let text = error.to_string();
    let lines = text.lines().filter(|line| line.contains(": error: "));
    lines
        .map(|line| {
            let (_, place) = line.split_once("<stdin>:").context("an error elsewhere")?;
            let number = place.split(':').next().unwrap_or_default();
            Ok(number.parse()?)
        })
        .collect()
}

/// One name for each number: an alias only if there is no other, then the shortest.
fn choose(values: Vec<(u32, String)>, macros: &Macros) -> Table {
    let mut table = Table::new();
    let rank = |name: &String| (macros.is_alias(name), name.len(), name.clone());
    for (number, name) in values {
        let chosen = table.entry(number).or_insert_with(|| name.clone());
        if rank(&name) < rank(chosen) {
            *chosen = name;
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "\
# 1 \"/usr/include/x86_64-linux-gnu/asm/ioctls.h\" 1\n\
# 1 \"/usr/include/asm-generic/ioctls.h\" 1\n\
#define TCGETS\t\t0x5401\n\
#define TCGETS 0x5401\n\
#define TIOCINQ TCGETS\n\
#define TIOC_FLAG 0x01\n\
# 1 \"/usr/include/linux/fs.h\" 1\n\
#define FS_INDEX_FL 0x1000\n\
#define BLKROSET _IO(0x12,93)\n\
#define PERF_ENABLE _IO ('$', 0)\n\
#define _IO(type,nr) 0\n";

    #[test]
    fn requests_are_told_from_flags_by_call_and_header() {
        let macros = Macros::parse(LISTING);
        let requests: Vec<&str> = macros.requests().into_iter().collect();
        assert_eq!(requests, ["BLKROSET", "PERF_ENABLE", "TCGETS", "TIOCINQ"]);
    }

    #[test]
    fn an_alias_gives_way_to_the_name_it_stands_for() {
        let macros = Macros::parse(LISTING);
        let values = ["TIOCINQ", "TCGETS"].map(|name| (0x5401, name.to_owned()));
        let table = choose(values.to_vec(), &macros);
        assert_eq!(table[&0x5401], "TCGETS");
    }

    /// Headers of another kernel may lack requests, but give none another name.
    #[test]
    fn the_kept_table_agrees_with_this_machines_headers() {
        let table = match from_headers() {
            Ok(table) => table,
            Err(error) => return tare_vmtest::lacks(format!("{error:#}")),
        };
        assert!(table.len() > 400, "{} requests", table.len());
        let kept = fs::read_to_string(root().join(TABLE)).unwrap();
        for (number, name) in table {
            let row = format!("({number:#x}, ");
            if let Some(line) = kept.lines().find(|line| line.trim().starts_with(&row)) {
                assert!(line.contains(&format!("\"{name}\"")), "{name}: {line}");
            }
        }
    }
}
