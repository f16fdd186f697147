//! What a site's file must keep to, whatever its bytes. Shared by the fuzz target and the crate's replay
//! of the corpus.

use tare_site::file::parse;
use tare_site::{MOST_BYTES, Table};

/// Bytes that are not text are refused before. A text has mistakes, each with its place, or a table that
/// the guest reads.
pub(crate) fn judge(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match parse(text) {
        Ok(site) => {
            assert!(site.table.len() <= MOST_BYTES);
            let table = Table::parse(&site.table).expect("the guest reads what was compiled");
            assert_eq!(table.to_bytes().as_deref(), Some(&*site.table));
            for named in &site.named {
                assert!(!named.name.split('/').any(|part| part == ".."), "{named:?}");
            }
        }
        Err(mistakes) => {
            assert!(mistakes.iter().count() > 0);
            let listed = mistakes.listed("site.toml");
            let steers = |c: char| c.is_control() && c != '\n';
            assert!(!listed.contains(steers), "{listed:?}");
            assert!(listed.len() < 64 * 1024, "{} bytes", listed.len());
        }
    }
}
