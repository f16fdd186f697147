//! The task: what to prepare, and what to run.

use serde::{Deserialize, Serialize};

/// Directory of the initramfs that belongs to Tare.
pub const WORK_DIR: &str = ".tare";
/// An empty file, the last of the initramfs: it is there if all others are.
pub const END_FILE: &str = ".tare/end";
/// The task's place in the initramfs.
pub const TASK_FILE: &str = ".tare/task.json";

/// Where commands are looked up unless the task says otherwise.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What the first process does. Written as JSON to [`TASK_FILE`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// The command and its arguments; looked up in `PATH` if it has no slash.
    pub command: Vec<String>,
    /// The command's environment, `NAME=VALUE`. `PATH` and `HOME` have defaults.
    #[serde(default)]
    pub environment: Vec<String>,
    /// The command's working directory; `/` when empty.
    #[serde(default)]
    pub working_directory: String,
    /// Who runs it, `USER[:GROUP]` by name or number; root when empty.
    #[serde(default)]
    pub user: String,
    /// The guest's host name; the kernel's when empty.
    #[serde(default)]
    pub hostname: String,
    /// Kernel modules, as paths in the initramfs, in the order of loading.
    #[serde(default)]
    pub modules: Vec<String>,
    /// Where the command's files are.
    #[serde(default)]
    pub root: Root,
    /// Directories of the host that are mounted before the command runs, in this order.
    #[serde(default)]
    pub shares: Vec<Share>,
    /// Capabilities of the command's files.
    #[serde(default)]
    pub capabilities: Vec<FileCapabilities>,
    /// Commands that are started before and run beside it.
    #[serde(default)]
    pub beside: Vec<Vec<String>>,
    /// How often the command is run until it ends with 0, a moment apart; 0 and 1
    /// are once. A check that may come before its server is ready needs more.
    #[serde(default)]
    pub tries: u32,
    /// Whether figures of the start go to the console.
    #[serde(default)]
    pub figures: Logging,
    /// Whether system calls that the kernel refuses go to the console, a kind once.
    /// Commands are then followed, which slows them down and keeps signals from them.
    #[serde(default)]
    pub refusals: Logging,
    /// Whether execution counts of the kernel, which is an instrumented one, go to the second serial port
    /// ([`crate::counts`]): when the host asks, or else after the command.
    #[serde(default)]
    pub counts: Logging,
}

impl Task {
    /// The paths that a command may mean, the first one that is there: as it is, from the working
    /// directory if it has a slash, else in the directories of the task's `PATH`.
    pub fn places_of(&self, command: &str) -> Vec<String> {
        let from_here = |path: &str| match path {
            _ if path.starts_with('/') => path.to_owned(),
            _ => format!("{}/{path}", self.working_directory),
        };
        if command.contains('/') {
            return vec![from_here(command)];
        }
        let mut environment = self.environment.iter();
        let path = environment.find_map(|have| have.strip_prefix("PATH="));
        let directories = path.unwrap_or(PATH).split(':');
        directories
            .map(|directory| format!("{}/{command}", from_here(directory)))
            .collect()
    }
}

/// A directory that the host shares (virtio-fs).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Its name for the kernel.
    pub tag: String,
    /// Where it is mounted; made if it is missing.
    pub path: String,
    /// Whether nothing there can be changed. The host enforces it too.
    pub is_read_only: bool,
}

/// Capabilities of one file (capabilities(7)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileCapabilities {
    /// Its path from the root, without the leading `/`: any bytes of Linux's.
    pub path: Vec<u8>,
    /// The value of `security.capability`.
    pub value: Vec<u8>,
}

/// Whether the first process writes something for the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Logging {
    /// It is not.
    #[default]
    Off,
    /// It is.
    On,
}

/// Where the command's files are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Root {
    /// In the initramfs.
    #[default]
    Initramfs,
    /// On a disk, to which the first process changes.
    Disk {
        /// Its device, such as `/dev/vda`.
        device: String,
        /// Its file system.
        filesystem: String,
    },
}

/// A task that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// It is not the document that it should be.
    #[error("invalid task")]
    Parse(#[from] serde_json::Error),
    /// There is nothing to run.
    #[error("the task names no command")]
    NoCommand,
}

impl Task {
    /// Reads a task.
    pub fn parse(document: &[u8]) -> Result<Self, TaskError> {
        let task: Self = serde_json::from_slice(document)?;
        match task.command.first() {
            None => Err(TaskError::NoCommand),
            Some(_) => Ok(task),
        }
    }

    /// The document that [`Self::parse`] reads.
    pub fn document(&self) -> Result<Vec<u8>, TaskError> {
        Ok(serde_json::to_vec_pretty(self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_looked_for_from_the_working_directory_and_in_path() {
        let mut task = Task::default();
        let last = |task: &Task| task.places_of("a").pop();
        assert_eq!(task.places_of("/x/a"), ["/x/a"]);
        assert_eq!(task.places_of("./a"), ["/./a"]);
        assert_eq!(task.places_of("a")[1], "/usr/local/bin/a");
        assert_eq!(last(&task).as_deref(), Some("/bin/a"));
        task.working_directory = "/app".to_owned();
        task.environment = vec!["PATHS=/y".to_owned(), "PATH=/x:bin".to_owned()];
        assert_eq!(task.places_of("./a"), ["/app/./a"]);
        assert_eq!(task.places_of("a"), ["/x/a", "/app/bin/a"]);
    }

    #[test]
    fn a_task_survives_its_document() {
        let task = Task {
            command: vec![
                "/bin/sh".to_owned(),
                "-c".to_owned(),
                "echo \"a\n\"".to_owned(),
            ],
            environment: vec!["A=b c".to_owned()],
            user: "www-data".to_owned(),
            capabilities: vec![FileCapabilities {
                path: b"bin/caf\xe9".to_vec(),
                value: vec![1, 0, 0, 2],
            }],
            shares: vec![Share {
                tag: "tare0".to_owned(),
                path: "/data".to_owned(),
                is_read_only: true,
            }],
            root: Root::Disk {
                device: "/dev/vda".to_owned(),
                filesystem: "ext4".to_owned(),
            },
            ..Task::default()
        };
        assert_eq!(Task::parse(&task.document().unwrap()).unwrap(), task);
    }

    #[test]
    fn a_task_without_a_command_is_refused() {
        let document = Task::default().document().unwrap();
        assert!(matches!(Task::parse(&document), Err(TaskError::NoCommand)));
        assert!(matches!(Task::parse(b"{"), Err(TaskError::Parse(_))));
    }
}
