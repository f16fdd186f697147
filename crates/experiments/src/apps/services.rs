//! The applications, the requests that each gets, and how many at once.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::Deserialize as _;
use serde_json::Value;
use tare_load::requests::{Exchange, Target};
use tare_machines::linux::LinuxError;
use tare_machines::linux::catalog::{self, App, Protocol};
use tare_machines::linux::dialog::{ANSWER, ask, body};
use tare_machines::linux::own_app::{OwnLoad, get_once, is_name};

use crate::kv::mix;

/// Commands of a cache that are sent at once.
pub(super) const PIPELINED: usize = 16;
/// What a web server serves: 1 KiB.
const FILE: &str = "/kib.txt";
/// A key of the cache.
const KEY: &str = "key:0001";

/// An application under load.
#[derive(Clone, Debug)]
pub(super) struct Service {
    /// Its name, also in the catalog.
    pub(super) name: Cow<'static, str>,
    /// Further arguments of its command.
    pub(super) args: &'static [&'static str],
    /// In this order: what is read was written before.
    pub(super) loads: Cow<'static, [Load]>,
    /// It, if it is the user's.
    pub(super) own: Option<App>,
}

/// One command, again and again.
#[derive(Clone, Debug)]
pub(super) struct Load {
    /// Name in figures.
    pub(super) name: Cow<'static, str>,
    /// In words.
    pub(super) about: Cow<'static, str>,
    pub(super) command: Command,
}

/// What a load requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Get,
    Set,
    /// A path of the user's, whose answer is not known before.
    Path(String),
}

const fn load(name: &'static str, about: &'static str, command: Command) -> Load {
    Load {
        name: Cow::Borrowed(name),
        about: Cow::Borrowed(about),
        command,
    }
}

const fn get(name: &'static str, about: &'static str) -> Load {
    load(name, about, Command::Get)
}

const fn set(name: &'static str, about: &'static str) -> Load {
    load(name, about, Command::Set)
}

const fn service(
    name: &'static str,
    args: &'static [&'static str],
    loads: &'static [Load],
) -> Service {
    Service {
        name: Cow::Borrowed(name),
        args,
        loads: Cow::Borrowed(loads),
        own: None,
    }
}

/// Those of the catalog, the smallest first.
pub(super) static SERVICES: [Service; 5] = [
    service("memcached", &[], MEMCACHED),
    // Its own timer ten times a second would be most of what it does while idle.
    service("redis", &["--hz", "1"], REDIS),
    service("nginx", &[], NGINX),
    service("go", &[], GO),
    service("axum", &[], AXUM),
];

const MEMCACHED: &[Load] = &[
    set("memcached_set", "memcached, set"),
    get("memcached_get", "memcached, get"),
];
const REDIS: &[Load] = &[
    set("redis_set", "redis, SET"),
    get("redis_get", "redis, GET"),
];
const NGINX: &[Load] = &[get("nginx_get", "nginx, 1 KiB")];
const GO: &[Load] = &[get("go_get", "Go, 1 KiB")];
const AXUM: &[Load] = &[get("axum_get", "axum, 1 KiB")];

/// Names of the catalog's.
pub(super) fn names() -> Vec<&'static str> {
    SERVICES.iter().map(|service| &*service.name).collect()
}

/// Whether it names a data file rather than an application of the catalog.
pub(super) fn is_data_file(app: &str) -> bool {
    app.ends_with(".toml") || app.contains('/')
}

/// An application of the catalog.
pub(super) fn catalogued(name: &str) -> Result<&'static Service, String> {
    SERVICES
        .iter()
        .find(|service| service.name == name)
        .ok_or_else(|| {
            let names = names().join(", ");
            format!(
                "{name}: not an application of apps; there are: {names}, and data files (.toml)"
            )
        })
}

/// The applications that a record's plan names; of the user's own with their loads.
pub(super) fn recorded(plan: &Value) -> Vec<Service> {
    let own = plan
        .get("own")
        .map(BTreeMap::<String, Vec<OwnLoad>>::deserialize);
    // A record is a file, which others may have written.
    let own = own.and_then(Result::ok).unwrap_or_default();
    let names = plan.get("apps").map(Vec::<String>::deserialize);
    let names = names.and_then(Result::ok).unwrap_or_default().into_iter();
    let service = |name: String| match own.get(&name) {
        Some(loads) if is_name(&name) && loads.iter().all(OwnLoad::is_valid) => {
            Some(Service::own(&name, loads, None))
        }
        _ => catalogued(&name).ok().cloned(),
    };
    names.filter_map(service).collect()
}

impl Service {
    /// An application of the user's.
    pub(super) fn own(name: &str, loads: &[OwnLoad], app: Option<App>) -> Self {
        let loads = loads.iter().map(|load| Load {
            name: format!("{name}_{}", load.name).into(),
            about: format!("{name}, {}", load.name).into(),
            command: Command::Path(load.path.clone()),
        });
        Self {
            name: name.to_owned().into(),
            args: &[],
            loads: loads.collect(),
            own: app,
        }
    }

    /// Its loads, if it is the user's.
    pub(super) fn own_loads(&self) -> Option<Vec<OwnLoad>> {
        let own = |load: &Load| match &load.command {
            Command::Path(path) => Some(OwnLoad {
                name: load.name.strip_prefix(&*self.name)?.get(1..)?.to_owned(),
                path: path.clone(),
            }),
            Command::Get | Command::Set => None,
        };
        self.loads.iter().map(own).collect()
    }

    /// The application as it is in the catalog, with further arguments, or as the user has it.
    pub(super) fn app(&self) -> Result<App, LinuxError> {
        let mut app = match &self.own {
            Some(own) => own.clone(),
            None => catalog::find(&self.name)?,
        };
        let args = self.args.iter().map(|arg| (*arg).to_owned());
        app.command.extend(args);
        Ok(app)
    }
}

impl Load {
    /// The command with its answer; the user's application gives it once before.
    pub(super) fn exchange(&self, app: &App, address: SocketAddr) -> Result<Exchange, String> {
        let get = |path: &str, body: Arc<[u8]>| {
            Exchange::get(&Target {
                address,
                path: path.to_owned(),
                body,
            })
        };
        Ok(match (app.protocol, &self.command) {
            (_, Command::Path(path)) => {
                let answer = ask(address, ANSWER, get_once(path).as_bytes());
                let answer = answer.map_err(|error| format!("no answer to GET {path}: {error}"))?;
                get(path, body(&answer).into())
            }
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
                get(FILE, file.map_or_else(Vec::new, |file| file.bytes()).into())
            }
        })
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

    #[test]
    fn every_load_is_of_an_application_of_the_catalog_with_an_answer() {
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        for service in &SERVICES {
            let app = service.app().unwrap();
            for load in service.loads.iter() {
                assert!(load.name.starts_with(&*service.name), "{}", load.name);
                let exchange = load.exchange(&app, address).unwrap();
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
