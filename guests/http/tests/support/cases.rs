//! The cases of `conformance.txt`.

/// A line of the file.
pub(crate) struct Case {
    /// Section and what, for messages.
    pub name: &'static str,
    pub bytes: Vec<u8>,
    pub status: u16,
    /// Whether the next request is answered.
    pub is_kept: bool,
}

/// The groups of the file.
pub(crate) const GROUPS: [&str; 7] = [
    "request_lines",
    "targets",
    "hosts",
    "fields",
    "lengths",
    "codings",
    "options",
];

/// The cases of a group.
pub(crate) fn cases(group: &str) -> Vec<Case> {
    let head = match group {
        "codings" => "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: ",
        _ => "",
    };
    let title = format!("[{group}]");
    let lines = include_str!("../conformance.txt").lines();
    let lines = lines.skip_while(|line| *line != title).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    let cases = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let cases: Vec<Case> = cases.map(|line| case(line, head)).collect();
    assert!(!cases.is_empty(), "no group {group}");
    cases
}

fn case(line: &'static str, head: &str) -> Case {
    let (rest, bytes) = line.rsplit_once(" | ").unwrap();
    let (name, outcome) = rest.rsplit_once(" | ").unwrap();
    let (status, connection) = outcome.split_once(' ').unwrap();
    assert!(matches!(connection, "kept" | "closed"), "{line}");
    Case {
        name,
        bytes: [head.as_bytes(), &unescape(bytes)].concat(),
        status: status.parse().unwrap(),
        is_kept: connection == "kept",
    }
}

/// The bytes that a text of the file stands for.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next().unwrap() {
            b'r' => bytes.push(b'\r'),
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'0' => bytes.push(0),
            b'\\' => bytes.push(b'\\'),
            b'x' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                let digits = str::from_utf8(&digits).unwrap();
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
            }
            b'(' => {
                let count: Vec<u8> = rest.by_ref().take_while(|byte| *byte != b' ').collect();
                let count: usize = str::from_utf8(&count).unwrap().parse().unwrap();
                let repeated = rest.next().unwrap();
                bytes.resize(bytes.len() + count, repeated);
                assert_eq!(rest.next(), Some(b')'), "{text}");
            }
            other => panic!("unknown escape {:?} in {text}", char::from(other)),
        }
    }
    bytes
}
