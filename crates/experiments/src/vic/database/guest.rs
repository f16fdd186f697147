//! The Linux guest: Debian's kernel, PostgreSQL's programs of this computer, and
//! a script that says what it is about to do.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tare_machines::linux::LinuxError;
use tare_rootfs::guest::{self, CMDLINE, WORDS};
use tare_rootfs::host;
use tare_rootfs::kernel::debian;
use tare_rootfs::tree::Node;
use tare_rootfs::{Cache, Task, Tree, cpio};

use super::cluster::{self, Postgres};
use super::plan::Plan;

/// What the script calls besides the database's.
const PROGRAMS: [&str; 8] = [
    "cat", "mkdir", "mount", "sed", "setpriv", "sleep", "sync", "umount",
];
const SCRIPT: &str = include_str!("guest.sh");

/// What boots.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) kernel: PathBuf,
    pub(super) initramfs: PathBuf,
    pub(super) cmdline: String,
}

/// Packs the initramfs into `directory`.
pub(super) fn make(
    postgres: &Postgres,
    directory: &Path,
    plan: &Plan,
) -> Result<Guest, LinuxError> {
    let kernel = debian::find_or_obtain(&Cache::open_default()?)?;
    let mut tree = Tree::new();
    let shell = host::add_program(&mut tree, "sh")?;
    for program in PROGRAMS {
        host::add_program(&mut tree, program)?;
    }
    for program in ["postgres", "pgbench", "pg_isready"] {
        host::add_program(&mut tree, &postgres.program(program).to_string_lossy())?;
    }
    host::add_file(&mut tree, &postgres.share.join("timezonesets"))?;
    // The server looks for the directory of its modules, and needs none of them.
    let modules = postgres.programs.with_file_name("lib");
    let modules = modules.to_string_lossy();
    tree.insert(modules.trim_start_matches('/'), Node::directory())?;
    let owner = cluster::owner();
    let people = format!("root:x:0:0::/:{shell}\ndb:x:{owner}:{owner}::/:{shell}\n");
    tree.insert("etc/passwd", Node::bytes(people.into_bytes(), 0o644))?;
    let script = script(postgres, plan);
    tree.insert("weigh.sh", Node::bytes(script.into_bytes(), 0o755))?;
    let wanted = kernel.machine_modules(&["ext4"])?;
    let task = Task {
        command: vec![shell, "/weigh.sh".to_owned()],
        ..Task::default()
    };
    guest::add_init(&mut tree, task, &wanted, &guest::find_init()?)?;
    let mut packed = cpio::pack(&tree)?;
    let initramfs = directory.join("initramfs");
    io::Seek::rewind(&mut packed)
        .and_then(|()| io::copy(&mut packed, &mut File::create(&initramfs)?))
        .map_err(LinuxError::file(&initramfs))?;
    Ok(Guest {
        kernel: kernel.image,
        initramfs,
        cmdline: format!("{WORDS} quiet {CMDLINE}"),
    })
}

/// The script with the plan's numbers.
fn script(postgres: &Postgres, plan: &Plan) -> String {
    let head = format!(
        "programs={}\nowner={}\nclients={}\nseconds={}\nruns={}\n",
        postgres.programs.display(),
        cluster::owner(),
        plan.clients,
        plan.seconds,
        plan.runs()
    );
    head + SCRIPT
}
