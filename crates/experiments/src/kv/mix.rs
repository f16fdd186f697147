//! Requests to a cache: ten reads to a write, of keys drawn evenly, all of
//! which are there. Everything is known before it is sent, so that every answer
//! can be checked.

use tare_load::requests::Exchange;

/// Items in the cache.
pub(super) const KEYS: usize = 64;
/// Bytes of a value.
pub(super) const VALUE: usize = 100;
/// Reads for each write.
pub(super) const READS: usize = 10;
/// Commands before the mix begins anew.
const PERIOD: usize = 990;

/// Writes every item once.
pub(super) fn fill() -> Vec<Exchange> {
    (0..KEYS).map(set).collect()
}

/// The mix.
pub(super) fn mixed() -> Vec<Exchange> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut key = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % KEYS
    };
    (0..PERIOD)
        .map(|place| match place % (READS + 1) {
            READS => set(key()),
            _ => get(key()),
        })
        .collect()
}

/// Reads of one item.
pub(super) fn gets() -> Vec<Exchange> {
    vec![get(1)]
}

/// Writes of one item.
pub(super) fn sets() -> Vec<Exchange> {
    vec![set(1)]
}

/// Reads an item.
pub(crate) fn get(key: usize) -> Exchange {
    let answer = format!("VALUE key:{key:04} 0 {VALUE}\r\n{}\r\nEND\r\n", value());
    Exchange::exactly(format!("get key:{key:04}\r\n"), answer)
}

/// Writes an item.
pub(crate) fn set(key: usize) -> Exchange {
    let wire = format!("set key:{key:04} 0 0 {VALUE}\r\n{}\r\n", value());
    Exchange::exactly(wire, "STORED\r\n".to_owned())
}

/// Of every item.
pub(crate) fn value() -> String {
    "tare".repeat(VALUE / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_in_eleven_writes() {
        let mixed = mixed();
        let writes = mixed.iter().filter(|e| e.wire.starts_with(b"set "));
        assert_eq!(writes.count() * (READS + 1), mixed.len());
        let wires: std::collections::HashSet<_> = mixed.iter().map(|e| &e.wire).collect();
        assert!(wires.len() > KEYS, "keys differ");
    }

    #[test]
    fn every_key_is_written_before_the_mix() {
        assert_eq!(fill().len(), KEYS);
        assert_eq!(value().len(), VALUE);
    }
}
