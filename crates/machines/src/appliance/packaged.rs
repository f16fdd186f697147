//! One application in several packagings: the same files, the same command, each on its own port.

use std::fs;
use std::io;
use std::path::Path;

use tare_rootfs::directory::{self, Owners};
use tare_rootfs::kernel::debian;
use tare_rootfs::tree::{EntryKind, Node};
use tare_rootfs::{Cache, Tree};
use tempfile::TempDir;

use super::spec::Packaging;
use super::words::run_words;
use crate::linux::catalog::{App, Protocol};
use crate::linux::{LinuxError, files};

/// Where runtimes mount, and where servers put their process numbers.
const DIRECTORIES: [&str; 3] = ["dev", "proc", "run"];
/// The line of a web server's configuration that names its port.
const LISTEN: &str = "listen 80;";
/// What stands for the port in an own application's words.
pub(crate) const PORT: &str = "{port}";
/// Where the image that runs programs is, from the directory of `tare`.
const IMAGES: [&str; 3] = [
    "images/linux",
    "../share/tare/images/linux",
    "../x86_64-unknown-none/guest/linux",
];

/// An application's files in a directory.
#[derive(Debug)]
pub(super) struct Root {
    directory: TempDir,
    bytes: u64,
}

impl Root {
    /// Gets them from Debian's packages, or from the user's directory.
    pub(super) fn of(app: &App) -> Result<Self, LinuxError> {
        let tree = files::tree(app, &Cache::open_default()?)?;
        Self::write_out(tree)
    }

    fn write_out(mut tree: Tree) -> Result<Self, LinuxError> {
        for name in DIRECTORIES {
            tree.insert(name, Node::directory())?;
        }
        let directory = TempDir::with_prefix("tare-weigh-")
            .map_err(LinuxError::file("a temporary directory"))?;
        directory::write(&tree, directory.path(), Owners::Caller)?;
        let bytes = tree
            .entries()
            .map(|(_, node)| match &node.kind {
                EntryKind::File(content) => content.len(),
                EntryKind::Directory | EntryKind::Link(_) | EntryKind::Pipe => 0,
            })
            .sum();
        Ok(Self { directory, bytes })
    }

    /// Where they are.
    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// All of them together.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes the application's configuration anew.
    pub(super) fn write(&self, app: &App) -> io::Result<()> {
        let mut files = app.files.iter();
        files.try_for_each(|file| {
            let place = self.path().join(file.path.trim_start_matches('/'));
            fs::write(place, file.bytes())
        })
    }
}

/// The application with this port.
pub(super) fn on_port(app: &App, port: u16) -> App {
    let mut app = app.clone();
    let args = match app.protocol {
        Protocol::Http if app.compiled.is_some() => vec![format!("0.0.0.0:{port}")],
        // The configuration has it, or words of the user's.
        Protocol::Http => Vec::new(),
        Protocol::Redis => vec!["--port".to_owned(), port.to_string()],
        Protocol::Memcached | Protocol::Postgres => vec!["-p".to_owned(), port.to_string()],
    };
    app.command.extend(args);
    if app.root.is_some() {
        let words = app.command.iter_mut().chain(&mut app.env);
        words.for_each(|word| *word = word.replace(PORT, &port.to_string()));
    }
    for file in &mut app.files {
        file.text = file.text.replace(LISTEN, &format!("listen {port};"));
    }
    app.port = port;
    app
}

/// The arguments of `tare` for an application in a machine.
pub(super) fn tare_args(app: &App, packaging: Packaging, name: &str, root: &Path) -> Vec<String> {
    let own = app.kernel.as_ref().map(|file| file.to_string_lossy());
    let (kernel, engine) = match packaging {
        Packaging::Linux(engine) => (Some("debian"), engine),
        Packaging::Tailored(engine) => (own.as_deref(), engine),
        Packaging::Tare(engine) => (None, engine),
        Packaging::Process | Packaging::Container(_) => (None, "auto"),
    };
    let (root, memory) = (root.to_string_lossy(), format!("{}M", app.memory_mib));
    let publish = format!("127.0.0.1:{0}:{0}", app.port);
    let machine = [
        ("--name", name),
        ("--root", &*root),
        ("--engine", engine),
        ("--cpus", "1"),
        ("--memory", &memory),
        ("--publish", &publish),
    ];
    let kernel = kernel.map(|kernel| ("--kernel", kernel));
    let env = app.env.iter().map(|it| ("--env", it.as_str()));
    let options = kernel.into_iter().chain(machine).chain(env);
    run_words(None, options, &app.command)
}

/// What a packaging adds to an application's files: the image of the library OS, or the
/// kernel without its modules.
pub(super) fn image_bytes(app: &App, packaging: Packaging, tare: &Path) -> Option<u64> {
    let image = match packaging {
        Packaging::Tailored(_) => app.kernel.clone()?,
        Packaging::Linux(_) => debian::find(&Cache::open_default().ok()?)?.image,
        _ => {
            let places = IMAGES.iter().map(|image| tare.with_file_name(image));
            places.into_iter().find(|place| place.is_file())?
        }
    };
    Some(fs::metadata(image).ok()?.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::catalog;

    #[test]
    fn an_application_gets_its_port_by_word_or_by_file() {
        let redis = on_port(&catalog::find("redis").unwrap(), 4321);
        assert_eq!(redis.command[2..], ["--port", "4321"]);
        let memcached = on_port(&catalog::find("memcached").unwrap(), 4321);
        assert!(memcached.command.ends_with(&["-p".into(), "4321".into()]));
        let nginx = on_port(&catalog::find("nginx").unwrap(), 4321);
        let listens = |text: &str| nginx.files.iter().any(|file| file.text.contains(text));
        assert!(listens("listen 4321;") && !listens(LISTEN));
        assert_eq!(nginx.port, 4321);
        let go = on_port(&catalog::find("go").unwrap(), 4321);
        assert_eq!(go.command, ["/server", "0.0.0.0:4321"]);
    }

    #[test]
    fn machines_of_an_application_differ_in_kernel_and_engine_only() {
        let app = on_port(&catalog::find("redis").unwrap(), 4321);
        let of = |packaging| tare_args(&app, packaging, "a", Path::new("/r")).join(" ");
        assert_eq!(
            of(Packaging::Tare("auto")),
            "run --name a --root /r --engine auto --cpus 1 --memory 256M --publish \
             127.0.0.1:4321:4321 -- /usr/bin/redis-server /etc/redis.conf --port 4321"
        );
        let linux = of(Packaging::Linux("qemu"));
        assert!(linux.starts_with("run --kernel debian --name a --root /r --engine qemu "));
        let app = App {
            kernel: Some("/k/bzImage".into()),
            ..app
        };
        let tailored = tare_args(&app, Packaging::Tailored("qemu"), "a", Path::new("/r"));
        assert_eq!(linux.replace("debian", "/k/bzImage"), tailored.join(" "));
    }

    #[test]
    fn a_root_has_the_files_and_is_configured_anew() {
        let app = catalog::find("nginx").unwrap();
        let mut tree = Tree::new();
        for file in &app.files {
            let name = file.path.trim_start_matches('/');
            tree.insert(name, Node::bytes(file.bytes(), 0o644)).unwrap();
        }
        let root = Root::write_out(tree).unwrap();
        let bytes: usize = app.files.iter().map(|file| file.bytes().len()).sum();
        assert_eq!(root.bytes(), bytes as u64);
        root.write(&on_port(&app, 4321)).unwrap();
        let text = fs::read_to_string(root.path().join("etc/nginx.conf")).unwrap();
        assert!(text.contains("listen 4321;"), "{text}");
        assert!(root.path().join("proc").is_dir());
    }
}
