//! What a site's table must keep to, whatever its bytes. Shared by the fuzz target and the
//! crate's replay of the corpus.

use tare_site::{
    Log, MOST_BYTES, MOST_FIELDS, MOST_HOSTS, MOST_LISTINGS, MOST_PATHS, MOST_REDIRECTS, Table,
};

/// Paths as requests name them, once they are resolved.
const PATHS: [&str; 6] = ["", "a", "a/b.html", "old/x\r\ny", "//", "ä/*/**"];

/// A table is refused, or its rules are bounded and valid and become the same table again.
pub(crate) fn judge(bytes: &[u8]) {
    let Ok(table) = Table::parse(bytes) else {
        return;
    };
    assert!(bytes.len() <= MOST_BYTES && table.hosts.len() <= MOST_HOSTS);
    judge_rules(&table);
    for host in &table.hosts {
        assert!(!host.name.is_empty() && host.name.bytes().all(|byte| byte.is_ascii_graphic()));
        assert!(host.table.hosts.is_empty() && host.table.log == Log::Off);
        judge_rules(&host.table);
    }
    // Strings may share bytes, so that the table may be too long once it is written anew.
    if let Some(written) = table.to_bytes() {
        let again = Table::parse(&written).expect("what is written is read");
        assert_eq!(again, table);
        assert_eq!(again.to_bytes().as_deref(), Some(&*written));
    }
}

fn judge_rules(table: &Table<'_>) {
    assert!(table.paths.len() <= MOST_PATHS && table.redirects.len() <= MOST_REDIRECTS);
    assert!(table.listings.len() <= MOST_LISTINGS);
    assert!(!table.root.split('/').any(|part| part == ".."));
    // Their own paths match some of the rules.
    let globs = table
        .paths
        .iter()
        .map(|rule| rule.glob)
        .chain(table.redirects.iter().map(|it| it.from()));
    let own = globs
        .take(8)
        .map(|glob| glob.as_str()[1..].replace('*', "x"));
    for path in PATHS.map(String::from).into_iter().chain(own) {
        judge_path(table, &path);
    }
}

fn judge_path(table: &Table<'_>, path: &str) {
    let fields = table.fields_of(path);
    assert!(fields.len() <= MOST_PATHS * MOST_FIELDS);
    for (at, field) in fields.iter().enumerate() {
        let line = [field.name(), field.value()].concat();
        assert!(!line.contains(['\r', '\n', '\0']), "{line:?}");
        assert!(!fields[..at].iter().any(|have| have.is_named(field.name())));
    }
    table.lists(path);
    for redirect in table.redirects.iter().take(64) {
        let mut to = Vec::new();
        if redirect.write(path, Some("q=1"), &mut to) {
            let to = String::from_utf8(to).expect("an address is text");
            assert!(to.bytes().all(|byte| byte.is_ascii_graphic()), "{to:?}");
            // An address of this host, or one that the table names.
            let names_a_host = redirect.to().starts_with("http");
            assert!(
                names_a_host || (to.starts_with('/') && !to.starts_with("//")),
                "{to:?}"
            );
        }
    }
}
