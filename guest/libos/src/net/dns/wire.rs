//! DNS messages (RFC 1035, 4): a question out, addresses in. Everything in an
//! answer is bounded: names are at most 255 bytes, pointers only go back and are few.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest name on the wire (RFC 1035, 2.3.4).
const NAME_MAX: usize = 255;
const LABEL_MAX: usize = 63;
const HEADER: usize = 12;
const CLASS_IN: u16 = 1;
const TYPE_CNAME: u16 = 5;
const TYPE_SOA: u16 = 6;
const RESPONSE: u8 = 0x80;
const TRUNCATED: u8 = 0x02;
const RECURSION_DESIRED: u8 = 0x01;
/// Pointers that are followed in one name. Servers use one or two.
const POINTERS_MAX: u32 = 16;
/// Longest chain of aliases that is followed.
const ALIASES_MAX: usize = 8;

/// Which addresses to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordType {
    /// IPv4.
    A = 1,
    /// IPv6 (RFC 3596).
    Aaaa = 28,
}

/// A name in the form of the wire, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name(Vec<u8>);

impl Name {
    /// Checks a name as people write it: letters, digits, `-` and `_`, with a dot
    /// at its end or not.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let mut wire = Vec::with_capacity(text.len() + 2);
        for label in text.split('.') {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            if label.is_empty() || label.len() > LABEL_MAX || !label.bytes().all(is_plain) {
                return None;
            }
            wire.push(label.len() as u8);
            wire.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
        }
        wire.push(0);
        (wire.len() <= NAME_MAX).then_some(Self(wire))
    }

    /// Reads a name at `at` in `message`; the name and where it ends there.
    fn read(message: &[u8], mut at: usize) -> Option<(Self, usize)> {
        let mut wire = Vec::new();
        let mut end = None;
        let mut lowest = at;
        let mut pointers = 0;
        loop {
            let len = usize::from(*message.get(at)?);
            match len >> 6 {
                0 => {
                    let label = message.get(at..=at + len)?;
                    wire.extend(label.iter().map(u8::to_ascii_lowercase));
                    at += 1 + len;
                    if len == 0 {
                        return Some((Self(wire), end.unwrap_or(at)));
                    }
                }
                3 => {
                    let low = *message.get(at + 1)?;
                    end = end.or(Some(at + 2));
                    at = (len & 0x3f) << 8 | usize::from(low);
                    // Only back, or it might never end.
                    pointers += 1;
                    if at >= lowest || pointers > POINTERS_MAX {
                        return None;
                    }
                    lowest = at;
                }
                _ => return None,
            }
            if wire.len() > NAME_MAX {
                return None;
            }
        }
    }
}

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Addresses, none if the name has none of this kind, and how many seconds
    /// they may be kept.
    Addresses(Vec<IpAddr>, u32),
    /// There is no such name, for this many seconds.
    NoSuchName(u32),
    /// It did not fit; TCP has it whole.
    Truncated,
    /// The server cannot or will not answer.
    Failed,
}

/// The question for a name's addresses of a kind.
pub(super) fn question(id: u16, name: &Name, kind: RecordType) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + name.0.len() + 4);
    message.extend(id.to_be_bytes());
    message.extend([RECURSION_DESIRED, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    message.extend(&name.0);
    message.extend((kind as u16).to_be_bytes());
    message.extend(CLASS_IN.to_be_bytes());
    message
}

/// What `message` answers to `question`; `None` if it is not an answer to it.
pub(super) fn answer(message: &[u8], question: &[u8], kind: RecordType) -> Option<Answer> {
    let header = message.first_chunk::<HEADER>()?;
    let count = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    if header[..2] != question[..2] || header[2] & RESPONSE == 0 || count(4) != 1 {
        return None;
    }
    let (asked, at) = Name::read(message, HEADER)?;
    let (name, _) = Name::read(question, HEADER)?;
    if asked != name || message.get(at..at + 4)? != &question[question.len() - 4..] {
        return None;
    }
    if header[2] & TRUNCATED != 0 {
        return Some(Answer::Truncated);
    }
    let records = Records {
        message,
        at: at + 4,
        left: u32::from(count(6)) + u32::from(count(8)),
    };
    match header[3] & 0x0f {
        0 => Some(addresses(records, name, kind)),
        3 => Some(Answer::NoSuchName(records.negative_ttl())),
        _ => Some(Answer::Failed),
    }
}

/// The addresses of `name` or of what it is an alias of.
fn addresses(records: Records<'_>, mut name: Name, kind: RecordType) -> Answer {
    let mut ttl = u32::MAX;
    for _ in 0..ALIASES_MAX {
        let mut found = Vec::new();
        let mut alias = None;
        for record in records.clone().filter(|record| record.name == name) {
            if let Some(address) = record.address(kind) {
                ttl = ttl.min(record.ttl);
                found.push(address);
            } else if record.kind == TYPE_CNAME && alias.is_none() {
                ttl = ttl.min(record.ttl);
                alias = Name::read(records.message, record.data_at);
            }
        }
        match alias {
            Some((next, _)) if found.is_empty() => name = next,
            _ if found.is_empty() => break,
            _ => return Answer::Addresses(found, ttl),
        }
    }
    Answer::Addresses(Vec::new(), records.negative_ttl().min(ttl))
}

/// The records of a message, as far as they make sense.
#[derive(Clone)]
struct Records<'a> {
    message: &'a [u8],
    at: usize,
    left: u32,
}

struct Record<'a> {
    name: Name,
    kind: u16,
    ttl: u32,
    data: &'a [u8],
    data_at: usize,
}

impl Record<'_> {
    fn address(&self, kind: RecordType) -> Option<IpAddr> {
        if self.kind != kind as u16 {
            return None;
        }
        match kind {
            RecordType::A => Some(Ipv4Addr::from_octets(self.data.try_into().ok()?).into()),
            RecordType::Aaaa => Some(Ipv6Addr::from_octets(self.data.try_into().ok()?).into()),
        }
    }
}

impl Records<'_> {
    /// How long "nothing" may be kept: the last field of the zone's SOA record, at
    /// most its own lifetime (RFC 2308, 5); 0 without one.
    fn negative_ttl(&self) -> u32 {
        let soa = self.clone().find(|record| record.kind == TYPE_SOA);
        let minimum = soa.and_then(|soa| {
            let minimum = u32::from_be_bytes(*soa.data.last_chunk()?);
            Some(minimum.min(soa.ttl))
        });
        minimum.unwrap_or(0)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        self.left = self.left.checked_sub(1)?;
        let (name, at) = Name::read(self.message, self.at)?;
        let fixed = self.message.get(at..)?.first_chunk::<10>()?;
        let word = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let data_at = at + 10;
        let data = self.message.get(data_at..data_at + usize::from(word(8)))?;
        self.at = data_at + data.len();
        // A class other than IN makes it a record of no kind.
        let kind = if word(2) == CLASS_IN { word(0) } else { 0 };
        // The top bit is to be taken as zero (RFC 2181, 8).
        let ttl = (u32::from(word(4)) << 16 | u32::from(word(6))).min(i32::MAX as u32);
        Some(Record {
            name,
            kind,
            ttl,
            data,
            data_at,
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use proptest::prelude::*;

    use super::*;

    fn asked() -> Vec<u8> {
        question(7, &Name::parse("www.example.org").unwrap(), RecordType::A)
    }

    /// An answer to [`asked`] with these records.
    fn reply(flags: [u8; 2], counts: [u8; 2], records: &[u8]) -> Vec<u8> {
        let mut message = asked();
        message[2] = RESPONSE | flags[0];
        message[3] = flags[1];
        (message[7], message[9]) = (counts[0], counts[1]);
        message.extend(records);
        message
    }

    fn record(name: &[u8], kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
        let mut record = name.to_vec();
        record.extend(kind.to_be_bytes());
        record.extend([0, 1]);
        record.extend(ttl.to_be_bytes());
        record.extend((data.len() as u16).to_be_bytes());
        record.extend(data);
        record
    }

    const QUESTION: [u8; 2] = [0xc0, 12];

    #[test]
    fn names_are_checked() {
        for good in ["a", "a.b.", "WWW.example.org", "_x-1.y"] {
            assert!(Name::parse(good).is_some(), "{good}");
        }
        let long = "a".repeat(64);
        let whole = ["a"; 128].join(".");
        for bad in ["", ".", "a..b", "a b", "ä", &long, &whole] {
            assert!(Name::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn aliases_are_followed_and_the_shortest_lifetime_counts() {
        let mut records = record(&QUESTION, 5, 30, b"\x03web\xc0\x10");
        let web = (asked().len() + 12) as u8;
        records.extend(record(&[0xc0, web], 1, 60, &[192, 0, 2, 1]));
        records.extend(record(&[0xc0, web], 1, 60, &[192, 0, 2, 2]));
        records.extend(record(b"\x05other\0", 1, 60, &[192, 0, 2, 3]));
        let addresses = vec![[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        assert_eq!(
            answer(&reply([0, 0], [4, 0], &records), &asked(), RecordType::A),
            Some(Answer::Addresses(addresses, 30))
        );
    }

    #[test]
    fn nothing_is_kept_as_long_as_the_zone_says() {
        let mut soa = vec![0, 0];
        soa.extend([0; 16]);
        soa.extend(90u32.to_be_bytes());
        let records = record(b"\0", 6, 40, &soa);
        let none = reply([0, 3], [0, 1], &records);
        assert_eq!(
            answer(&none, &asked(), RecordType::A),
            Some(Answer::NoSuchName(40))
        );
        let empty = reply([0, 0], [0, 1], &records);
        let expected = Some(Answer::Addresses(Vec::new(), 40));
        assert_eq!(answer(&empty, &asked(), RecordType::A), expected);
    }

    #[test]
    fn an_answer_to_another_question_is_ignored() {
        let good = reply([0, 0], [1, 0], &record(&QUESTION, 1, 1, &[1, 2, 3, 4]));
        assert!(answer(&good, &asked(), RecordType::A).is_some());
        let mut case = good.clone();
        case[13] = b'W';
        assert!(answer(&case, &asked(), RecordType::A).is_some());
        for at in [0, 2, 5, 14, asked().len() - 3] {
            let mut bad = good.clone();
            bad[at] ^= 0x81;
            assert_eq!(answer(&bad, &asked(), RecordType::A), None, "byte {at}");
        }
        let cut = reply([TRUNCATED, 0], [0, 0], &[]);
        assert_eq!(
            answer(&cut, &asked(), RecordType::A),
            Some(Answer::Truncated)
        );
        let refused = reply([0, 5], [0, 0], &[]);
        assert_eq!(
            answer(&refused, &asked(), RecordType::A),
            Some(Answer::Failed)
        );
    }

    #[test]
    fn pointers_that_go_round_end() {
        let at = asked().len() as u8;
        for target in [at, at + 1, 0xff] {
            let records = record(&[0xc0, target], 1, 60, &[192, 0, 2, 1]);
            let message = reply([0, 0], [1, 0], &records);
            let nothing = Some(Answer::Addresses(Vec::new(), 0));
            assert_eq!(answer(&message, &asked(), RecordType::A), nothing);
        }
    }

    #[test]
    fn a_name_has_few_pointers() {
        for (pointers, is_read) in [(POINTERS_MAX, true), (POINTERS_MAX + 1, false)] {
            let mut message = vec![1, b'a', 0];
            let mut target = 0;
            for _ in 0..pointers {
                let here = message.len();
                message.extend([0xc0, target]);
                target = here as u8;
            }
            let name = Name::read(&message, usize::from(target));
            assert_eq!(name.is_some(), is_read, "{pointers}");
        }
    }

    proptest! {
        #[test]
        fn no_answer_makes_the_client_panic(
            flags: [u8; 2],
            counts: [u8; 2],
            records in prop::collection::vec(prop_oneof![Just(0xc0), Just(12), any::<u8>()], 0..300),
        ) {
            let message = reply(flags, counts, &records);
            for kind in [RecordType::A, RecordType::Aaaa] {
                answer(&message, &asked(), kind);
            }
            answer(&records, &asked(), RecordType::A);
        }
    }
}
