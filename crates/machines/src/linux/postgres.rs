//! Messages of PostgreSQL's protocol 3.0 (PostgreSQL's documentation, "Message Formats"):
//! a startup without encryption, simple queries, the end.

/// Version 3.0, which the startup names.
const VERSION: u32 = 3 << 16;
/// Who asks, and which database: both are there in every new one.
const PARAMETERS: &[u8] = b"user\0postgres\0database\0postgres\0\0";
/// The end of a connection.
const TERMINATE: &[u8] = b"X\0\0\0\x04";
/// The head of the message with a process and its key, by which a client may cancel a query.
const CANCEL_KEY: &[u8] = b"K\0\0\0\x0c";
/// Bytes of that message after its head.
const CANCEL_KEY_BYTES: usize = 8;

/// The first message of a connection.
pub(crate) fn startup() -> Vec<u8> {
    let body = [&VERSION.to_be_bytes(), PARAMETERS].concat();
    [&length_of(&body)[..], &body].concat()
}

/// A simple query.
pub(crate) fn query(sql: &str) -> Vec<u8> {
    let body = [sql.as_bytes(), b"\0"].concat();
    [b"Q", &length_of(&body)[..], &body].concat()
}

/// A whole connection with these queries.
pub(crate) fn dialog(queries: &[&str]) -> Vec<u8> {
    let mut bytes = startup();
    for sql in queries {
        bytes.extend(query(sql));
    }
    bytes.extend(TERMINATE);
    bytes
}

/// A message's length counts itself.
fn length_of(body: &[u8]) -> [u8; 4] {
    u32::try_from(body.len() + 4)
        .unwrap_or(u32::MAX)
        .to_be_bytes()
}

/// An answer without the process and key of its connection, which are drawn.
pub(crate) fn without_cancel_key(answer: &[u8]) -> Vec<u8> {
    let mut windows = answer.windows(CANCEL_KEY.len());
    match windows.position(|window| window == CANCEL_KEY) {
        Some(at) => {
            let end = (at + CANCEL_KEY.len() + CANCEL_KEY_BYTES).min(answer.len());
            [&answer[..at], &answer[end..]].concat()
        }
        None => answer.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_their_lengths() {
        let startup = startup();
        assert_eq!(startup[..8], [0, 0, 0, 41, 0, 3, 0, 0]);
        assert_eq!(startup.len(), 41);
        assert_eq!(query("SELECT 1"), b"Q\0\0\0\x0dSELECT 1\0");
    }

    #[test]
    fn the_key_of_a_connection_is_not_compared() {
        let answer = |key: &str| format!("R\0\0\0\x08\0\0\0\0K\0\0\0\x0c{key}Z\0\0\0\x05I");
        let kept = |key: &str| without_cancel_key(answer(key).as_bytes());
        assert_eq!(kept("12345678"), kept("abcdefgh"));
        assert_eq!(kept("12345678"), b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I");
        assert_eq!(without_cancel_key(b"E\0\0\0\x05x"), b"E\0\0\0\x05x");
        assert_eq!(without_cancel_key(b"K\0\0\0\x0c12"), b"");
    }
}
