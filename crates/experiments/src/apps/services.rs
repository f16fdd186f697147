//! The applications, the requests that each gets, and how many at once.

use std::net::SocketAddr;

use tare_load::requests::{Exchange, Target};
use tare_machines::linux::catalog::{App, Protocol};

use crate::kv::mix;

/// Commands of a cache that are sent at once.
pub(super) const PIPELINED: usize = 16;
/// What a web server serves: 1 KiB.
const FILE: &str = "/kib.txt";
/// A key of the cache.
const KEY: &str = "key:0001";

/// An application under load.
#[derive(Debug)]
pub(super) struct Service {
    /// Its name, also in the catalog.
    pub(super) name: &'static str,
    /// Further arguments of its command.
    pub(super) args: &'static [&'static str],
    /// In this order: what is read was written before.
    pub(super) loads: &'static [Load],
}

/// One command, again and again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Name in figures.
    pub(super) name: &'static str,
    /// In words.
    pub(super) about: &'static str,
    command: Command,
}

#[derive(Clone, Copy, Debug)]
enum Command {
    Get,
    Set,
}

const fn get(name: &'static str, about: &'static str) -> Load {
    let command = Command::Get;
    Load {
        name,
        about,
        command,
    }
}

const fn set(name: &'static str, about: &'static str) -> Load {
    let command = Command::Set;
    Load {
        name,
        about,
        command,
    }
}

/// All, the smallest first.
pub(super) static SERVICES: [Service; 5] = [
    Service {
        name: "memcached",
        args: &[],
        loads: &[
            set("memcached_set", "memcached, set"),
            get("memcached_get", "memcached, get"),
        ],
    },
    Service {
        name: "redis",
        // Its own timer ten times a second would be most of what it does while idle.
        args: &["--hz", "1"],
        loads: &[
            set("redis_set", "redis, SET"),
            get("redis_get", "redis, GET"),
        ],
    },
    Service {
        name: "nginx",
        args: &[],
        loads: &[get("nginx_get", "nginx, 1 KiB")],
    },
    Service {
        name: "go",
        args: &[],
        loads: &[get("go_get", "Go, 1 KiB")],
    },
    Service {
        name: "axum",
        args: &[],
        loads: &[get("axum_get", "axum, 1 KiB")],
    },
];

impl Load {
    /// The command with its answer.
    pub(super) fn exchange(&self, app: &App, address: SocketAddr) -> Exchange {
        match (app.protocol, self.command) {
            (Protocol::Memcached, Command::Get) => mix::get(1),
            (Protocol::Memcached, Command::Set) => mix::set(1),
            (Protocol::Redis, Command::Get) => {
                let value = mix::value();
                let answer = format!("${}\r\n{value}\r\n", value.len());
                Exchange::exactly(resp(&["GET", KEY]), answer)
            }
            (Protocol::Redis, Command::Set) => {
                Exchange::exactly(resp(&["SET", KEY, &mix::value()]), "+OK\r\n".to_owned())
            }
            // No service of the list speaks PostgreSQL's.
            (Protocol::Http | Protocol::Postgres, _) => {
                let file = app.files.iter().find(|file| file.path.ends_with(FILE));
                Exchange::get(&Target {
                    address,
                    path: FILE.to_owned(),
                    body: file.map_or_else(Vec::new, |file| file.bytes()).into(),
                })
            }
        }
    }

    /// How many are sent at once.
    pub(super) fn at_once(&self, app: &App) -> usize {
        match app.protocol {
            Protocol::Http | Protocol::Postgres => 1,
            Protocol::Redis | Protocol::Memcached => PIPELINED,
        }
    }
}

/// A command in Redis's own protocol.
fn resp(args: &[&str]) -> String {
    let args = args.iter();
    let parts = args
        .clone()
        .map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", args.len(), parts.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_load::requests::Expected;
    use tare_machines::linux::catalog;

    #[test]
    fn every_load_is_of_an_application_of_the_catalog_with_an_answer() {
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        for service in &SERVICES {
            let app = catalog::find(service.name).unwrap();
            for load in service.loads {
                assert!(load.name.starts_with(service.name), "{}", load.name);
                let exchange = load.exchange(&app, address);
                let (Expected::Exactly(answer) | Expected::Http(answer)) = exchange.answer;
                assert!(!answer.is_empty() && !exchange.wire.is_empty());
                assert!(answer.len() < 2048, "a chunk or two: {}", load.name);
            }
        }
    }

    #[test]
    fn commands_of_redis_are_arrays_of_counted_words() {
        let said = "*2\r\n$3\r\nGET\r\n$8\r\nkey:0001\r\n";
        assert_eq!(resp(&["GET", KEY]), said);
    }
}
