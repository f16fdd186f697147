//! PostgreSQL's files with pgbench's tables in them, as a disk: made on this
//! computer, so that no translator has to.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tare_host::child::ended_within;

/// Where Debian puts one directory for each version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// What must be there.
const NEEDED: [&str; 4] = ["postgres", "initdb", "pgbench", "pg_isready"];
/// Who owns the files where root makes them: the server refuses to be root.
const NOBODY_ID: u32 = 65534;
/// Most that a server may take to start and to stop.
const SERVER_TIMEOUT: Duration = Duration::from_secs(30);

/// Why the database did not start.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClusterError {
    /// Not installed.
    #[error(
        "{0} is not installed (Debian: postgresql postgresql-contrib e2fsprogs qemu-system-x86)"
    )]
    Missing(String),
    /// A file.
    #[error("cannot lay out the database")]
    Layout(#[from] io::Error),
    /// A program.
    #[error("{program} failed: {said}")]
    Failed {
        /// Which.
        program: String,
        /// Its last line.
        said: String,
    },
    /// The server.
    #[error("the database server did not {0} in time")]
    Late(&'static str),
}

/// The programs of one version.
#[derive(Clone, Debug)]
pub(super) struct Postgres {
    /// Directory of its programs.
    pub(super) programs: PathBuf,
    /// Directory of its data files.
    pub(super) share: PathBuf,
}

impl Postgres {
    /// The newest that is installed.
    pub(super) fn find() -> Result<Self, ClusterError> {
        let entries = fs::read_dir(VERSIONS);
        let names = entries.into_iter().flatten().flatten();
        let versions = names.filter_map(|entry| entry.file_name().into_string().ok());
        let newest = versions
            .filter_map(|name| name.parse::<u32>().ok())
            .max()
            .ok_or_else(|| ClusterError::Missing("PostgreSQL".to_owned()))?;
        let found = Self {
            programs: Path::new(VERSIONS).join(format!("{newest}/bin")),
            share: format!("/usr/share/postgresql/{newest}").into(),
        };
        match NEEDED.iter().find(|name| !found.program(name).is_file()) {
            Some(name) => Err(ClusterError::Missing((*name).to_owned())),
            None => Ok(found),
        }
    }

    /// Place of a program.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// What the server prints of its version.
    pub(super) fn version(&self) -> Option<String> {
        let mut command = self.command("postgres");
        let output = command.arg("--version").stdout(Stdio::piped()).output();
        let text = String::from_utf8_lossy(&output.ok()?.stdout).into_owned();
        Some(text.lines().next()?.trim().to_owned())
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.program(name));
        command
            .current_dir("/")
            // The one zone that the server knows without files, of which the guest has
            // none: `initdb` writes it into the configuration.
            .env("TZ", "GMT")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if geteuid().is_root() {
            command.uid(NOBODY_ID).gid(NOBODY_ID);
        }
        command
    }
}

/// Who owns the files, and runs the server in the guest.
pub(super) fn owner() -> u32 {
    if geteuid().is_root() {
        NOBODY_ID
    } else {
        geteuid().as_raw()
    }
}

/// Makes `disk` in `directory`, with `scale` times 100,000 accounts.
pub(super) fn make(
    postgres: &Postgres,
    directory: &Path,
    scale: u32,
    mib: u64,
) -> Result<PathBuf, ClusterError> {
    let home = directory.join("database");
    fs::create_dir(&home)?;
    std::os::unix::fs::chown(&home, Some(owner()), Some(owner()))?;
    let data = home.join("cluster");
    let encoding = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"];
    let mut initdb = postgres.command("initdb");
    finish(initdb.arg("-D").arg(&data).args(encoding).arg("--no-sync"))?;
    {
        let _server = Server::start(postgres, &data, &home)?;
        let mut fill = postgres.command("pgbench");
        let scale = scale.to_string();
        let args = ["-i", "-q", "-s", &scale, "-U", "postgres", "-h"];
        finish(fill.args(args).arg(&home).arg("postgres"))?;
    }
    let disk = directory.join("database.img");
    fs::File::create(&disk)?.set_len(mib << 20)?;
    let mut format = Command::new("mke2fs");
    let path = std::env::var("PATH").unwrap_or_default();
    format
        .args(["-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=0", "-d"])
        .arg(&home)
        .arg(&disk)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    finish(&mut format)?;
    fs::remove_dir_all(&home)?;
    Ok(disk)
}

/// Executes a program to its end.
fn finish(command: &mut Command) -> Result<(), ClusterError> {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or_default();
    let program = program.to_string_lossy().into_owned();
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ClusterError::Missing(program.clone()),
        _ => ClusterError::Layout(error),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = said.lines().last().unwrap_or("it said nothing");
    Err(ClusterError::Failed {
        program,
        said: last.trim().to_owned(),
    })
}

/// A server that fills the tables; asked to stop, and waited for, when dropped.
struct Server(Child);

impl Server {
    fn start(postgres: &Postgres, data: &Path, socket: &Path) -> Result<Self, ClusterError> {
        let mut command = postgres.command("postgres");
        command.arg("-D").arg(data).arg("-k").arg(socket);
        // What fills a table anew is not logged then: no log to be copied.
        for setting in [
            "listen_addresses=",
            "fsync=off",
            "wal_level=minimal",
            "max_wal_senders=0",
        ] {
            command.args(["-c", setting]);
        }
        let server = Self(command.stderr(Stdio::null()).spawn()?);
        let begun = Instant::now();
        loop {
            let mut ready = postgres.command("pg_isready");
            if ready.arg("-h").arg(socket).status()?.success() {
                return Ok(server);
            }
            if begun.elapsed() > SERVER_TIMEOUT {
                return Err(ClusterError::Late("start"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its fast way of stopping: everything is written.
        let _ = kill_process(Pid::from_child(&self.0), Signal::INT);
        let _ = ended_within(&mut self.0, SERVER_TIMEOUT);
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_database_becomes_a_disk_and_nothing_else_stays() {
        let Some(postgres) = tare_vmtest::or_lacks(Postgres::find()) else {
            return;
        };
        let directory = tempfile::tempdir().unwrap();
        let all = fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory.path(), all).unwrap();
        let version = postgres.version().unwrap();
        assert!(version.starts_with("postgres (PostgreSQL) "), "{version}");
        let disk = make(&postgres, directory.path(), 1, 128).unwrap();
        assert_eq!(fs::metadata(&disk).unwrap().len(), 128 << 20);
        let names = fs::read_dir(directory.path()).unwrap();
        assert_eq!(names.count(), 1, "only the disk");
    }

    #[test]
    fn a_program_that_is_missing_is_named() {
        let error = finish(&mut Command::new("no-such-program")).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("no-such-program is not installed")
        );
    }

    #[test]
    fn a_program_that_fails_has_the_last_word() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo first >&2; echo why >&2; exit 1"]);
        let error = finish(shell.stderr(Stdio::piped())).unwrap_err();
        assert_eq!(error.to_string(), "sh failed: why");
    }
}
