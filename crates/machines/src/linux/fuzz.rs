//! Requests that are drawn: valid ones, odd ones and wrong ones, the same for
//! every kernel, so that their answers can be compared. What depends on time,
//! memory or chance is not asked for.

use tare_stats::SplitMix64;

use super::catalog::Protocol;
use super::postgres;

/// Seed of the drawn requests: every run asks the same.
pub const SEED: u64 = 0x7461_7265;

/// Draws of a seed.
struct Draw(SplitMix64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound)
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }

    fn letters(&mut self, longest: usize) -> String {
        let length = 1 + self.below(longest);
        let alphabet = b"abcdefghijklmnopqrstuvwxyz0123456789-_";
        (0..length)
            .map(|_| char::from(alphabet[self.below(alphabet.len())]))
            .collect()
    }
}

/// What is sent on `count` connections, one after the other. Each ends with
/// what makes the application close.
pub fn dialogs(protocol: Protocol, seed: u64, count: usize) -> Vec<Vec<u8>> {
    let mut draw = Draw(SplitMix64::new(seed));
    let mut one = || match protocol {
        Protocol::Http => http(&mut draw).into_bytes(),
        Protocol::Redis => several(&mut draw, redis, "QUIT\r\n").into_bytes(),
        Protocol::Memcached => several(&mut draw, memcached, "quit\r\n").into_bytes(),
        Protocol::Postgres => queries(&mut draw),
    };
    (0..count).map(|_| one()).collect()
}

fn several(draw: &mut Draw, one: fn(&mut Draw) -> String, end: &str) -> String {
    let commands = 1 + draw.below(6);
    let mut text: String = (0..commands).map(|_| one(draw)).collect();
    text.push_str(end);
    text
}

fn queries(draw: &mut Draw) -> Vec<u8> {
    let statements = 1 + draw.below(6);
    let all: Vec<String> = (0..statements).map(|_| sql(draw)).collect();
    postgres::dialog(&all.iter().map(String::as_str).collect::<Vec<_>>())
}

fn http(draw: &mut Draw) -> String {
    let method = draw.of(&[
        "GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "DELETE", "get", "G@T",
    ]);
    let target = match draw.below(10) {
        0..=2 => "/kib.txt".to_owned(),
        3..=4 => "/index.html".to_owned(),
        5 => "/".to_owned(),
        6 => format!("/{}", draw.letters(60)),
        7 => format!("/kib.txt?{}", draw.letters(40)),
        8 => draw
            .of(&[
                "/../etc/passwd",
                "/%2e%2e/etc",
                "//kib.txt",
                "/./kib.txt",
                "/%zz",
                "kib.txt",
                "*",
            ])
            .to_owned(),
        _ => format!("/{}", draw.letters(600)),
    };
    let version = draw.of(&[
        "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/9.9", "HTP/1.1",
    ]);
    let mut text = format!("{method} {target} {version}\r\n");
    if draw.below(12) > 0 {
        text.push_str("Host: guest\r\n");
    }
    for _ in 0..draw.below(4) {
        text.push_str(&header(draw));
    }
    text.push_str("Connection: close\r\n\r\n");
    text
}

fn header(draw: &mut Draw) -> String {
    match draw.below(6) {
        0 => format!("Range: bytes={}-{}\r\n", draw.below(1500), draw.below(1500)),
        1 => format!("Range: bytes=-{}\r\n", draw.below(2000)),
        2 => format!(
            "If-Modified-Since: {}\r\n",
            draw.of(&[
                "Thu, 01 Jan 1970 00:00:00 GMT",
                "Fri, 01 Jan 2038 00:00:00 GMT",
                "yesterday",
            ])
        ),
        3 => format!("Accept: {}\r\n", draw.letters(20)),
        4 => format!("X-{}: {}\r\n", draw.letters(10), draw.letters(200)),
        _ => format!("{} {}\r\n", draw.letters(5), draw.letters(5)),
    }
}

fn key(draw: &mut Draw) -> String {
    format!("key{}", draw.below(8))
}

fn redis(draw: &mut Draw) -> String {
    let key = key(draw);
    match draw.below(12) {
        0..=1 => format!("SET {key} {}\r\n", draw.letters(80)),
        2 => format!("GET {key}\r\n"),
        3 => format!("INCR {key}\r\n"),
        4 => format!("SET {key} {}\r\n", draw.below(1000)),
        5 => format!("DEL {key}\r\n"),
        6 => format!("APPEND {key} {}\r\n", draw.letters(10)),
        7 => format!("LPUSH list{} {}\r\n", draw.below(3), draw.letters(6)),
        8 => format!("LRANGE list{} 0 -1\r\n", draw.below(3)),
        9 => format!("*2\r\n$6\r\nSTRLEN\r\n${}\r\n{key}\r\n", key.len()),
        10 => format!("{} {key}\r\n", draw.letters(8)),
        _ => format!("SETRANGE {key} {} x\r\n", draw.below(64)),
    }
}

fn memcached(draw: &mut Draw) -> String {
    let key = key(draw);
    match draw.below(10) {
        0..=2 => {
            let value = draw.letters(80);
            let verb = draw.of(&["set", "add", "replace", "append", "prepend"]);
            format!(
                "{verb} {key} {} 0 {}\r\n{value}\r\n",
                draw.below(9),
                value.len()
            )
        }
        3..=4 => format!("get {key}\r\n"),
        5 => format!("get {key} key0 key7\r\n"),
        6 => format!("delete {key}\r\n"),
        7 => format!(
            "{} {key} {}\r\n",
            draw.of(&["incr", "decr"]),
            draw.below(100)
        ),
        8 => format!("{}\r\n", draw.letters(12)),
        _ => format!("get {}\r\n", "k".repeat(300)),
    }
}

/// Statements on the table `pages` of the database's appliance.
fn sql(draw: &mut Draw) -> String {
    let number = draw.below(30);
    match draw.below(10) {
        0..=1 => format!("SELECT body FROM pages WHERE number = {number}"),
        2 => format!(
            "INSERT INTO pages VALUES ({number}, '{}')",
            draw.letters(60)
        ),
        3 => format!(
            "UPDATE pages SET body = body || '{}' WHERE number < {number}",
            draw.letters(4)
        ),
        4 => format!("DELETE FROM pages WHERE number = {}", 2 + number),
        5 => "SELECT count(*), max(number) FROM pages".to_owned(),
        6 => format!(
            "SELECT number, length(body) FROM pages WHERE number > {number} ORDER BY number"
        ),
        7 => format!("SELECT {number} / {}", draw.below(3)),
        8 => format!("SELECT md5('{}')", draw.letters(200)),
        _ => format!("{} FROM {}", draw.letters(8), draw.letters(8)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_requests() {
        for protocol in [
            Protocol::Http,
            Protocol::Redis,
            Protocol::Memcached,
            Protocol::Postgres,
        ] {
            let first = dialogs(protocol, 7, 50);
            assert_eq!(first, dialogs(protocol, 7, 50));
            assert_ne!(first, dialogs(protocol, 8, 50));
        }
    }

    #[test]
    fn every_dialog_makes_the_application_close() {
        for (protocol, end) in [
            (Protocol::Http, "Connection: close\r\n\r\n"),
            (Protocol::Redis, "QUIT\r\n"),
            (Protocol::Memcached, "quit\r\n"),
            (Protocol::Postgres, "X\0\0\0\x04"),
        ] {
            let all = dialogs(protocol, 1, 300);
            assert!(all.iter().all(|one| one.ends_with(end.as_bytes())));
        }
    }
}
