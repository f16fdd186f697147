use proptest::prelude::*;

use super::*;

const WHOLE: &str = r#"
[[path]]
match = "/assets/**"
cache_control = "public, max-age=31536000, immutable"
headers = { X-Content-Type-Options = "nosniff" }

[[path]]
match = "/*.html"
[path.headers]
X-Frame-Options = "DENY"
Content-Security-Policy = "default-src 'self'"

[[redirect]]
from = "/old/*"
to = "/new/*"
status = 308

[[redirect]]
from = "/blog/**"
to = "https://blog.example/**"

[errors]
404 = "errors/404.html"
"#;

/// The mistakes, a line each.
fn mistakes(text: &str) -> String {
    parse(text).unwrap_err().listed("f")
}

#[test]
fn a_whole_file_becomes_its_table() {
    let site = parse(WHOLE).unwrap();
    let table = Table::parse(&site.table).unwrap();
    assert_eq!((site.paths, site.redirects), (2, 2));
    assert_eq!(table.missing, Missing::Page("errors/404.html"));
    let page = Named {
        name: "errors/404.html".into(),
        kind: NamedKind::File,
        at: Position {
            line: 23,
            column: 7,
        },
    };
    assert_eq!(site.page.as_deref(), Some(&*page.name));
    assert_eq!(site.named, [page]);
    let names = |path: &str| {
        let fields = table.fields_of(path).into_iter();
        fields.map(Field::name).collect::<Vec<_>>()
    };
    assert_eq!(
        names("assets/a/b.js"),
        ["Cache-Control", "X-Content-Type-Options"]
    );
    assert_eq!(
        names("a.html"),
        ["X-Frame-Options", "Content-Security-Policy"]
    );
    assert_eq!(table.redirects[0].status(), RedirectStatus::Permanent);
    assert_eq!(
        table.redirects[1].status(),
        RedirectStatus::MovedPermanently
    );
}

#[test]
fn a_file_without_rules_is_valid() {
    let site = parse("# nothing yet\n").unwrap();
    assert_eq!(Table::parse(&site.table), Ok(Table::default()));
    let fallback = parse("errors.fallback = \"/index.html\"").unwrap();
    let table = Table::parse(&fallback.table).unwrap();
    assert_eq!(table.missing, Missing::Fallback("index.html"));
}

#[test]
fn hosts_have_rules_of_their_own() {
    let site = parse(
        r#"
root = "/www"
errors.404 = "404.html"
[host."B.example"]
root = "sites/b"
listing = true
errors.fallback = "app.html"
[[host."B.example".redirect]]
from = "/a"
to = "/b"
[host."[::1]"]
[log]
format = "combined"
"#,
    )
    .unwrap();
    let table = Table::parse(&site.table).unwrap();
    assert_eq!((table.root, table.log), ("www", Log::Combined));
    let names: Vec<_> = table.hosts.iter().map(|host| host.name).collect();
    assert_eq!(names, ["B.example", "[::1]"]);
    let rules = &table.hosts[0].table;
    assert_eq!(rules.root, "sites/b");
    assert_eq!(rules.missing, Missing::Fallback("app.html"));
    assert_eq!((rules.redirects.len(), rules.listings.len()), (1, 1));
    assert_eq!(table.hosts[1].table, Table::default());
    assert_eq!((site.hosts, site.redirects, site.lists), (2, 1, true));
    let mut named: Vec<_> = site.named.iter().map(|it| (&*it.name, it.kind)).collect();
    named.sort_by_key(|(name, _)| *name);
    let expected = [
        ("sites/b", NamedKind::Directory),
        ("sites/b/app.html", NamedKind::File),
        ("www", NamedKind::Directory),
        ("www/404.html", NamedKind::File),
    ];
    assert_eq!(named, expected);
}

#[test]
fn listings_are_all_directories_none_or_some() {
    for (text, globs) in [
        ("listing = true", &["/**"][..]),
        ("listing = false", &[]),
        ("listing = [\"/pub/**\", \"/\"]", &["/pub/**", "/"]),
    ] {
        let site = parse(text).unwrap();
        let table = Table::parse(&site.table).unwrap();
        let found: Vec<_> = table.listings.iter().map(|glob| glob.as_str()).collect();
        assert_eq!((&*found, site.lists), (globs, !globs.is_empty()), "{text}");
    }
}

#[test]
fn every_mistake_has_its_line_and_column() {
    let text = r#"[[path]]
match = "assets/**"
cache_contrl = "no-cache"
headers = { "X Y" = "a", Content-Length = "1", "Ä" = "ä", X-N = 1 }

[[path]]
match = "/a"
headers = { X-A = "a\r\nX-B: b", x-a = "c" }

[[redirect]]
from = "/a/*"
to = "/a/b"
status = 303

[log]
format = "jsn"
level = 1

[errors]
404 = "../x"
fallback = 7
"#;
    let all = mistakes(text);
    for line in [
        "f:2:9: invalid path \"assets/**\": must begin with \"/\"",
        "f:3:1: unknown key \"cache_contrl\": want match, cache_control or headers",
        "f:4:13: invalid header \"X Y\": a header's name has letters",
        "f:4:26: invalid header \"Content-Length\": the server sets this header itself",
        "f:4:48: invalid header \"Ä\": a header's name has letters",
        "f:4:54: invalid value of Ä: a header's value has printable ASCII",
        "f:4:65: want a string, not an integer",
        "f:8:19: invalid value of X-A: a header's value has printable ASCII",
        "f:13:10: want status 301, 302, 307 or 308",
        "f:16:10: want \"combined\" or \"json\"",
        "f:17:1: unknown key \"level\": want format",
        "f:20:7: invalid file \"../x\"",
        "f:21:12: want a string, not an integer",
    ] {
        assert!(all.contains(line), "{line}\n{all}");
    }
}

#[test]
fn rules_that_lack_something_or_contradict_are_mistakes() {
    for (text, expected) in [
        (
            "[[path]]\nmatch = \"/a\"",
            "f:1:1: [[path]] without headers",
        ),
        (
            "[[path]]\ncache_control = \"a\"",
            "f:1:1: [[path]] without match",
        ),
        (
            "[[redirect]]\nfrom = \"/a\"",
            "f:1:1: [[redirect]] without to",
        ),
        ("[path]\nmatch = \"/a\"", "want [[path]]"),
        ("path = [1]", "f:1:9: want [[path]]"),
        ("[[errors]]", "want [errors]"),
        (
            "[[path]]\nmatch = \"/a/\"\ncache_control = \"a\"",
            "f:2:9: no file ends in \"/\"",
        ),
        (
            "[[path]]\nmatch = \"/a\"\ncache_control = \"a\"\nheaders = { cache-control = \"b\" }",
            "f:4:13: cache-control is set twice",
        ),
        (
            "[[redirect]]\nfrom = \"/a/**\"\nto = \"/a/b/**\"",
            "f:3:6: redirects to itself: \"/a/b/**\" matches \"/a/**\"",
        ),
        (
            "redirect = [{ from = \"/a\", to = \"/b\" }, { from = \"/b\", to = \"/a\" }]",
            "f:1:33: redirects in a circle",
        ),
        (
            "redirect = [{ from = \"/a\", to = \"/b\" }, { from = \"/a\", to = \"/c\" }]",
            "an earlier [[redirect]] has from = \"/a\"",
        ),
        (
            "errors = { 404 = \"a\", fallback = \"b\" }",
            "exclude each other",
        ),
        ("listing = 1", "f:1:11: want true, false or [\"/path/**\"]"),
        (
            "listing = [\"/a/**\", \"/b\", 1, \"c/\"]",
            "f:1:21: a directory ends in \"/\"",
        ),
        (
            "logs = 1",
            "unknown key \"logs\": want path, redirect, errors, listing, root, host or log",
        ),
        ("log = true", "f:1:7: want [log]"),
        ("[log]", "f:1:1: [log] without format"),
        (
            "[host.a.log]\nformat = \"json\"",
            "f:1:9: unknown key \"log\"",
        ),
        ("host = 1", "f:1:8: want [host.\"NAME\"]"),
        ("host.a = 1", "f:1:10: want [host.\"a\"]"),
        (
            "[host.\"a:80\"]",
            "f:1:7: invalid host \"a:80\": want a name without a port",
        ),
        ("[host.a]\n[host.A]", "f:2:7: host \"A\" is there twice"),
        (
            "[host.a.host.b]",
            "f:1:9: unknown key \"host\": want path, redirect, errors, listing or root",
        ),
        ("root = \"../a\"", "f:1:8: invalid directory \"../a\""),
        ("[[path]\n", "f:1:"),
        ("a = 1\na = 2\n", "f:2:1: duplicate key"),
    ] {
        let all = mistakes(text);
        assert!(all.contains(expected), "{expected}\n{all}");
    }
}

#[test]
fn counts_and_lengths_are_bounded() {
    let paths = "[[path]]\nmatch = \"/a\"\ncache_control = \"a\"\n".repeat(MOST_PATHS + 1);
    assert!(mistakes(&paths).contains("too many [[path]]: the limit is 256"));
    let large = "#".repeat(MOST_BYTES + 1);
    assert!(mistakes(&large).contains("the file is too large"));
    let headers: String = (0..=MOST_FIELDS)
        .map(|n| format!("X-{n} = \"a\"\n"))
        .collect();
    let headers = format!("[[path]]\nmatch = \"/a\"\n[path.headers]\n{headers}");
    assert!(mistakes(&headers).contains("too many headers: the limit is 32"));
    let listings = format!("listing = [{}]", "\"/\",".repeat(MOST_LISTINGS + 1));
    assert!(mistakes(&listings).contains("too many paths: the limit is 64"));
    let hosts: String = (0..=MOST_HOSTS).map(|n| format!("[host.h{n}]\n")).collect();
    assert!(mistakes(&hosts).contains("too many [host.NAME]: the limit is 64"));
    let many = "a = 1\n".repeat(200);
    assert!(
        mistakes(&many).ends_with("more"),
        "only the first are listed"
    );
}

proptest! {
    #[test]
    fn any_text_is_compiled_or_has_mistakes(text in "[ -~\n\u{e4}]{0,120}") {
        if let Ok(site) = parse(&text) {
            prop_assert!(Table::parse(&site.table).is_ok());
        }
    }

    #[test]
    fn a_changed_file_is_compiled_to_a_table_that_is_read(at in any::<prop::sample::Index>(), to in "[\"/*.=\\[\\]{}a-z0-9 \n]{0,3}") {
        let at = at.index(WHOLE.len());
        let text = [&WHOLE[..at], &to, &WHOLE[at + 1..]].concat();
        if let Ok(site) = parse(&text) {
            prop_assert!(Table::parse(&site.table).is_ok());
        }
    }
}
