//! `cargo xtask size IMAGE`: what the bytes of a guest image are.
//!
//! Sums the sizes of symbols by section, crate and module, and lists the largest functions and
//! those that were compiled several times. The image must have its symbols, which change neither
//! code nor addresses; with names of version 0 they tell which types a function was compiled for
//! ([`WITH_SYMBOLS`]).
//!
//! Limits: constants without a name (texts, tables of branches) are known by section only, and what
//! was inlined counts for the function that it is in now.

mod image;
mod name;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use image::Image;

/// How to build an image with symbols.
const WITH_SYMBOLS: &str = "cargo build --profile guest --target x86_64-unknown-none \
    --target-dir DIR --config profile.guest.strip=false --config \
    'target.x86_64-unknown-none.rustflags=[\"-Csymbol-mangling-version=v0\"]' \
    -p PACKAGE --bin IMAGE";

/// How much is listed.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Detail {
    /// Components of a module's path, with the crate.
    #[arg(long, default_value_t = 3)]
    depth: usize,
    /// Rows of each list.
    #[arg(long, default_value_t = 30)]
    top: usize,
}

/// Prints what the bytes of an image's file are.
pub(crate) fn print(path: &Path, detail: Detail) -> Result<()> {
    let shown = path.display();
    let bytes = fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    let image = Image::parse(&bytes)
        .with_context(|| format!("cannot take {shown} apart; to build one: {WITH_SYMBOLS}"))?;
    print!("{}", report(&image, detail));
    Ok(())
}

/// Bytes and how often, by name.
type Sums<'a> = BTreeMap<std::borrow::Cow<'a, str>, (u64, u64)>;

fn report(image: &Image, detail: Detail) -> String {
    let mut out = format!(
        "{} bytes, {} of them loaded, {} headers, symbols and padding of the file\n",
        image.bytes,
        image.loaded,
        image.bytes.saturating_sub(image.loaded)
    );
    out.push_str("\nbytes by section, those without a symbol\n");
    for section in image.sections.iter().filter(|section| section.is_loaded) {
        let unnamed = image.unnamed(section);
        // Writing to a string does not fail.
        let _ = writeln!(out, "{:>9} {unnamed:>9}  {}", section.bytes, section.name);
    }
    let symbols = || image.symbols.iter();
    let crates = summed(symbols().map(|symbol| (name::krate(&symbol.name).into(), symbol.bytes)));
    table(&mut out, "bytes and symbols by crate", &crates, usize::MAX);
    let modules = summed(symbols().map(|symbol| {
        let module = name::module(&symbol.name, detail.depth);
        (module.into(), symbol.bytes)
    }));
    table(
        &mut out,
        "bytes and symbols by module",
        &modules,
        detail.top,
    );
    let functions = || symbols().filter(|symbol| symbol.is_function);
    let largest = summed(functions().map(|symbol| (symbol.name.as_str().into(), symbol.bytes)));
    table(&mut out, "largest functions", &largest, detail.top);
    let mut copies = summed(functions().map(|symbol| {
        let plain = name::without_types(&symbol.name);
        (plain.into(), symbol.bytes)
    }));
    copies.retain(|_, (_, count)| *count > 1);
    table(
        &mut out,
        "bytes and copies of functions",
        &copies,
        detail.top,
    );
    out
}

fn summed<'a>(parts: impl Iterator<Item = (std::borrow::Cow<'a, str>, u64)>) -> Sums<'a> {
    let mut sums = Sums::new();
    for (name, bytes) in parts {
        let sum = sums.entry(name).or_default();
        sum.0 += bytes;
        sum.1 += 1;
    }
    sums
}

/// The largest rows of a table, the largest first.
fn table(out: &mut String, title: &str, sums: &Sums<'_>, top: usize) {
    let _ = writeln!(out, "\n{title}");
    let mut rows: Vec<_> = sums.iter().collect();
    rows.sort_by_key(|(_, (bytes, _))| std::cmp::Reverse(*bytes));
    for (name, (bytes, count)) in rows.into_iter().take(top) {
        let _ = writeln!(out, "{bytes:>9} {count:>5}  {name}");
    }
}
