//! An application of the user's: a data file beside its files.
//!
//! ```toml
//! root = "rootfs"
//! command = ["/server", "--listen", "0.0.0.0:{port}"]
//!
//! [[load]]
//! name = "item"
//! path = "/items/1"
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tare_rootfs::tree::{EntryKind, Node};
use tare_rootfs::walk::{Links, walk};

use super::LinuxError;
use super::catalog::{self, App, Check, Protocol};
use super::files::MOST_BYTES;
use crate::appliance::PORT;

/// Longest name, which becomes part of a machine's.
const LONGEST_NAME: usize = 32;
/// Longest path of a load.
const LONGEST_PATH: usize = 1024;
/// Most loads.
const MOST_LOADS: usize = 8;
/// Largest data file.
const LARGEST: u64 = 1 << 20;
/// Memory of its guest, unless the file says another size, and the sizes that it may say.
const MEMORY_MIB: u32 = 256;
const MEMORIES_MIB: std::ops::RangeInclusive<u32> = 16..=65_536;

/// An application of the user's with its loads.
#[derive(Clone, Debug)]
pub struct OwnApp {
    /// As one of the catalog's.
    pub app: App,
    /// Requests to it.
    pub loads: Vec<OwnLoad>,
}

/// One request, again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnLoad {
    /// Name in figures, behind the application's.
    pub name: String,
    /// What is got over HTTP: the answer is 200 with always the same body.
    pub path: String,
}

impl OwnLoad {
    /// Whether its name can be a figure's and its path be asked for.
    pub fn is_valid(&self) -> bool {
        let is_sent = |byte: u8| byte.is_ascii_graphic();
        is_name(&self.name)
            && self.path.starts_with('/')
            && self.path.len() <= LONGEST_PATH
            && self.path.bytes().all(is_sent)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DataFile {
    root: PathBuf,
    command: Vec<String>,
    #[serde(default)]
    env: Vec<String>,
    #[serde(default = "usual_memory")]
    memory_mib: u32,
    #[serde(rename = "load")]
    loads: Vec<OwnLoad>,
}

fn usual_memory() -> u32 {
    MEMORY_MIB
}

/// Whether a name may be an application's or a load's.
pub fn is_name(name: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=LONGEST_NAME).contains(&name.len())
        && name.bytes().all(is_of_name)
        && !name.starts_with('-')
}

impl OwnApp {
    /// Reads a data file; the application has its name.
    pub fn read(file: &Path) -> Result<Self, LinuxError> {
        let refused = |why: String| LinuxError::OwnApp {
            file: file.to_owned(),
            why,
        };
        let unreadable = |error| LinuxError::file(file)(error);
        let bytes = fs::metadata(file).map_err(unreadable)?.len();
        if bytes > LARGEST {
            return Err(refused(format!("it has more than {LARGEST} bytes")));
        }
        let text = fs::read_to_string(file).map_err(unreadable)?;
        let data: DataFile = toml::from_str(&text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.unwrap_or_default().matches('\n').count() + 1;
            refused(format!("line {line}: {}", error.message()))
        })?;
        let name = file.file_stem().and_then(|stem| stem.to_str());
        let name = name.filter(|name| is_name(name)).ok_or_else(|| {
            refused(format!(
                "the file's name is the application's: rename it to 1 to {LONGEST_NAME} lower-case \
                 letters, digits and hyphens"
            ))
        })?;
        if catalog::names().contains(&name) {
            return Err(refused(format!(
                "tare has an application named {name}: rename the file"
            )));
        }
        data.check().map_err(refused)?;
        let beside = file.parent().unwrap_or(Path::new("."));
        let root = beside.join(&data.root);
        let tree = walk(&root, Links::Kept, MOST_BYTES)?.tree;
        let program = &data.command[0];
        let place = tree.through_all_links(program.trim_start_matches('/'));
        let is_file = |node: &Node| matches!(node.kind, EntryKind::File(_));
        if !place.is_ok_and(|place| tree.get(&place).is_some_and(is_file)) {
            return Err(refused(format!(
                "command: {} has no file {program}",
                root.display()
            )));
        }
        let root = fs::canonicalize(&root).map_err(LinuxError::file(&root))?;
        Ok(data.app(name, root))
    }
}

impl DataFile {
    fn check(&self) -> Result<(), String> {
        if !self.command.first().is_some_and(|it| it.starts_with('/')) {
            return Err(
                "the first word of command must be the program's absolute path in root".into(),
            );
        }
        let mut words = self.command.iter().chain(&self.env);
        if !words.any(|word| word.contains(PORT)) {
            return Err(format!(
                "neither command nor env contains {PORT}, which each start replaces by another port"
            ));
        }
        let is_set = |it: &String| it.split_once('=').is_some_and(|(name, _)| !name.is_empty());
        if let Some(wrong) = self.env.iter().find(|it| !is_set(it)) {
            return Err(format!("env: {wrong:?} is not NAME=VALUE"));
        }
        if !MEMORIES_MIB.contains(&self.memory_mib) {
            let (least, most) = (MEMORIES_MIB.start(), MEMORIES_MIB.end());
            return Err(format!("memory_mib must be from {least} to {most}"));
        }
        if !(1..=MOST_LOADS).contains(&self.loads.len()) {
            return Err(format!("it needs 1 to {MOST_LOADS} [[load]] tables"));
        }
        for (place, load) in self.loads.iter().enumerate() {
            if !load.is_valid() {
                return Err(format!(
                    "load {:?}: the name must have lower-case letters, digits and hyphens only, and \
                     the path must begin with / and be ASCII without spaces",
                    load.name
                ));
            }
            if self.loads[..place].iter().any(|it| it.name == load.name) {
                return Err(format!("two loads are named {}", load.name));
            }
        }
        Ok(())
    }

    fn app(self, name: &str, root: PathBuf) -> OwnApp {
        let check = Check {
            send: get_once(&self.loads[0].path),
            expect: vec![" 200 ".to_owned()],
        };
        let app = App {
            name: name.to_owned(),
            about: String::new(),
            protocol: Protocol::Http,
            port: 0,
            memory_mib: self.memory_mib,
            packages: Vec::new(),
            programs: Vec::new(),
            modules: Vec::new(),
            trees: Vec::new(),
            directories: Vec::new(),
            kernel: None,
            compiled: None,
            sources: &[],
            database: None,
            command: self.command,
            env: self.env,
            root: Some(root),
            files: Vec::new(),
            check,
            phases: Vec::new(),
        };
        OwnApp {
            app,
            loads: self.loads,
        }
    }
}

/// A request that is its connection's only one.
pub fn get_once(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "root = 'files'\ncommand = ['/bin/shop', '--port={port}']\n\
                        env = ['PORT={port}']\n[[load]]\nname = 'item'\npath = '/items/1'\n";

    /// Reads a data file of this name and text beside a root with one program.
    fn read(name: &str, text: &str) -> Result<OwnApp, LinuxError> {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("files/bin")).unwrap();
        fs::write(place.path().join("files/bin/shop"), "").unwrap();
        let file = place.path().join(name);
        fs::write(&file, text).unwrap();
        OwnApp::read(&file)
    }

    #[test]
    fn an_own_application_has_the_files_of_its_root_and_its_loads() {
        let own = read("my-shop.toml", GOOD).unwrap();
        assert_eq!(own.app.name, "my-shop");
        assert_eq!(own.app.memory_mib, MEMORY_MIB);
        assert!(own.app.check.send.starts_with("GET /items/1 HTTP/1.1\r\n"));
        assert!(own.app.passes(b"HTTP/1.0 200 OK\r\n\r\nx"));
        let refusal = |answer: &[u8]| own.app.refusal(answer).map(|[_, answer]| answer);
        let missing = refusal(b"HTTP/1.1 404 Not Found\r\n\r\n");
        assert_eq!(missing.as_deref(), Some("HTTP/1.1 404 Not Found"));
        for answer in [
            &b"HTTP/1.1 503 Later\r\n"[..],
            b"HTTP/1.1 200 OK\r\n",
            b"",
            b"4",
        ] {
            assert_eq!(refusal(answer), None);
        }
        let catalogued = catalog::find("nginx").unwrap();
        assert_eq!(catalogued.refusal(b"HTTP/1.1 404 Not Found\r\n"), None);
        assert!(
            own.app
                .root
                .as_ref()
                .is_some_and(|root| root.ends_with("files"))
        );
        assert_eq!(own.loads.len(), 1);
    }

    #[test]
    fn what_is_wrong_with_a_data_file_is_one_sentence() {
        let without = |line: &str| GOOD.replace(line, "");
        for (name, text, why) in [
            ("My.toml", GOOD.to_owned(), "lower-case letters"),
            (
                "nginx.toml",
                GOOD.to_owned(),
                "tare has an application named nginx",
            ),
            (
                "a.toml",
                without("root = 'files'\n"),
                "a.toml: line 1: missing field `root`",
            ),
            (
                "a.toml",
                GOOD.replace("['PORT={port}']", "7"),
                "line 3: invalid type",
            ),
            (
                "a.toml",
                GOOD.replace("'files'", "'none'"),
                "none does not exist",
            ),
            (
                "a.toml",
                GOOD.replace("/bin/shop", "shop"),
                "absolute path in root",
            ),
            (
                "a.toml",
                GOOD.replace("/bin/shop", "/bin/other"),
                "has no file /bin/other",
            ),
            (
                "a.toml",
                GOOD.replace("{port}", "80"),
                "contains {port}, which each start",
            ),
            (
                "a.toml",
                GOOD.replace("PORT=", "=PORT"),
                "is not NAME=VALUE",
            ),
            (
                "a.toml",
                format!("memory_mib = 1\n{GOOD}"),
                "memory_mib must be from 16",
            ),
            (
                "a.toml",
                GOOD.replace("/items/1", "items"),
                "load \"item\": the name must",
            ),
            (
                "a.toml",
                GOOD.replace("/items/1", "/a b"),
                "ASCII without spaces",
            ),
            ("a.toml", GOOD.replace("'item'", "'Item'"), "load \"Item\""),
            (
                "a.toml",
                format!("{GOOD}[[load]]\nname = 'item'\npath = '/'\n"),
                "two loads are named item",
            ),
            (
                "a.toml",
                format!("{GOOD}size = 1\n"),
                "unknown field `size`",
            ),
        ] {
            let error = read(name, &text).map(drop).unwrap_err().to_string();
            assert!(error.contains(why), "{why}: {error}");
        }
        let error = OwnApp::read(Path::new("/none/a.toml"))
            .map(drop)
            .unwrap_err();
        assert!(error.to_string().contains("/none/a.toml"), "{error}");
    }
}
