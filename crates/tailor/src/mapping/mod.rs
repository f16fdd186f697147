//! Which configuration symbols an observation needs: data, in `mapping/*.toml`.

pub mod hardening;
mod row;

use std::sync::OnceLock;

use crate::source::Series;

pub use row::{MappingError, Pattern, Row, Symbol, Trigger};

/// The data files, by name.
const FILES: &[(&str, &str)] = &[
    ("hardware.toml", include_str!("../../mapping/hardware.toml")),
    ("safety.toml", include_str!("../../mapping/safety.toml")),
    ("calls.toml", include_str!("../../mapping/calls.toml")),
    ("network.toml", include_str!("../../mapping/network.toml")),
    ("files.toml", include_str!("../../mapping/files.toml")),
    ("tasks.toml", include_str!("../../mapping/tasks.toml")),
];

/// All rows for a series of Linux, in the order of their files, with its names of symbols.
///
/// # Panics
///
/// If a data file of this build is malformed, which its tests rule out.
pub fn rows(series: Series) -> &'static [Row] {
    static ROWS: [OnceLock<Vec<Row>>; Series::ALL.len()] =
        [const { OnceLock::new() }; Series::ALL.len()];
    ROWS[series as usize].get_or_init(|| match read_all() {
        Ok(rows) => of_series(rows, series),
        Err(error) => panic!("the mapping of this build is malformed: {error}"),
    })
}

fn of_series(rows: Vec<Row>, series: Series) -> Vec<Row> {
    let here = rows.into_iter().filter(|row| row.series.contains(&series));
    here.map(|row| Row {
        needs: row
            .needs
            .into_iter()
            .map(|symbol| renamed(symbol, series))
            .collect(),
        ..row
    })
    .collect()
}

/// The name in a series of a symbol of Linux 6.1. Linux 6.9 named some after what they mitigate
/// (`x86/bugs: Rename CONFIG_RETPOLINE => CONFIG_MITIGATION_RETPOLINE` and seven more).
fn renamed(symbol: Symbol, series: Series) -> Symbol {
    const RENAMED: [&str; 8] = [
        "CPU_IBPB_ENTRY",
        "CPU_IBRS_ENTRY",
        "CPU_SRSO",
        "CPU_UNRET_ENTRY",
        "PAGE_TABLE_ISOLATION",
        "RETHUNK",
        "RETPOLINE",
        "SLS",
    ];
    let name = symbol.name();
    if series == Series::V6_1 || !RENAMED.contains(&name) {
        return symbol;
    }
    let mitigated = name.strip_prefix("CPU_").unwrap_or(name);
    Symbol::new(&format!("MITIGATION_{mitigated}")).unwrap_or(symbol)
}

fn read_all() -> Result<Vec<Row>, MappingError> {
    let mut rows = Vec::new();
    for (file, text) in FILES {
        rows.extend(row::read(file, text)?);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests;
