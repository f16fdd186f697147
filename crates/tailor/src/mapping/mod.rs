//! Which configuration symbols an observation needs: data, in `mapping/*.toml`.

mod row;

use std::sync::OnceLock;

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

/// All rows, in the order of their files.
///
/// # Panics
///
/// If a data file of this build is malformed, which its tests rule out.
pub fn rows() -> &'static [Row] {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    ROWS.get_or_init(|| match read_all() {
        Ok(rows) => rows,
        Err(error) => panic!("the mapping of this build is malformed: {error}"),
    })
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
