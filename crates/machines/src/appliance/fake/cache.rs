//! As much of memcached as the weighing asks for.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

static ITEMS: Mutex<Option<HashMap<String, Vec<u8>>>> = Mutex::new(None);

/// Answers until the client leaves.
pub(super) fn answer(stream: TcpStream, requests: &AtomicU64) {
    let Ok(mut writer) = stream.try_clone() else {
        return;
    };
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|count| count > 0) {
        requests.fetch_add(1, Ordering::SeqCst);
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match *words.as_slice() {
            ["get", key] => get(key),
            ["set", key, _, _, length] => {
                let mut value = vec![0; length.parse::<usize>().unwrap_or(0) + 2];
                if reader.read_exact(&mut value).is_err() {
                    return;
                }
                set(key, value)
            }
            ["delete", _] => b"DELETED\r\n".to_vec(),
            ["quit"] => return,
            _ => b"ERROR\r\n".to_vec(),
        };
        if writer.write_all(&answer).is_err() {
            return;
        }
        line.clear();
    }
}

fn get(key: &str) -> Vec<u8> {
    let items = ITEMS.lock().unwrap_or_else(PoisonError::into_inner);
    match items.as_ref().and_then(|items| items.get(key)) {
        Some(value) => {
            let head = format!("VALUE {key} 0 {}\r\n", value.len() - 2);
            [head.as_bytes(), value, b"END\r\n"].concat()
        }
        None => b"END\r\n".to_vec(),
    }
}

fn set(key: &str, value: Vec<u8>) -> Vec<u8> {
    let mut items = ITEMS.lock().unwrap_or_else(PoisonError::into_inner);
    items.get_or_insert_default().insert(key.to_owned(), value);
    b"STORED\r\n".to_vec()
}
