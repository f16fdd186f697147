//! Validates the arguments before anything starts.

use std::path::PathBuf;
use std::time::Duration;

use tare_control::exit::ExitCode;
use tare_host::program::{ProgramError, find_program};
use tare_launch::publish::Publish;
use tare_probe::syscalls::Container;

use crate::args::ProfileArgs;
use crate::failure::{Explain, Failure};

/// Longest label, bytes.
const LABEL_MAX: usize = 100;

/// Invalid arguments.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlanError {
    #[error(
        "nothing to profile; name a static program, write a command after --, or --pid, --container or --in-guest"
    )]
    Nothing,
    #[error(
        "--pid and --container observe a running process; remove either the option or the command {0:?}"
    )]
    Both(String),
    #[error("a label has at most {LABEL_MAX} bytes and no control characters")]
    Label,
}

impl Explain for PlanError {
    fn code(&self) -> ExitCode {
        ExitCode::Usage
    }
}

impl Explain for ProgramError {
    fn code(&self) -> ExitCode {
        match self {
            Self::NotFound(_) => ExitCode::CommandNotFound,
            Self::NotExecutable(_) => ExitCode::CannotRun,
        }
    }
}

/// A planned observation.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) subject: Subject,
    pub(super) label: String,
    pub(super) length: Option<Duration>,
    pub(super) out: Option<PathBuf>,
    pub(super) log: Option<PathBuf>,
    pub(super) json: bool,
    pub(super) graphs: Vec<String>,
    pub(super) graph_out: PathBuf,
    pub(super) publish: Vec<Publish>,
}

/// What is observed.
#[derive(Debug)]
pub(super) enum Subject {
    Command(FoundCommand),
    /// A static program, for the library OS.
    Program(FoundCommand),
    Pid(u32),
    Container(Container),
    Guest {
        root: PathBuf,
        command: Vec<String>,
    },
}

/// A command whose program was found.
#[derive(Debug)]
pub(super) struct FoundCommand {
    pub(super) program: PathBuf,
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
}

impl FoundCommand {
    /// The command as the user wrote it.
    pub(super) fn all(&self) -> Vec<String> {
        let mut all = vec![self.name.clone()];
        all.extend_from_slice(&self.arguments);
        all
    }
}

pub(super) fn plan(args: ProfileArgs) -> Result<Plan, Failure> {
    if args.label.len() > LABEL_MAX || args.label.chars().any(char::is_control) {
        return Err(PlanError::Label.into());
    }
    Ok(Plan {
        subject: subject(&args)?,
        label: args.label,
        length: args.seconds.map(|seconds| seconds.duration()),
        out: args.out,
        log: args.log,
        json: args.json,
        graphs: args.graph,
        graph_out: args.graph_out,
        publish: args.publish,
    })
}

fn subject(args: &ProfileArgs) -> Result<Subject, Failure> {
    if let Some(root) = &args.in_guest {
        return Ok(Subject::Guest {
            root: root.clone(),
            command: args.command.clone(),
        });
    }
    let runs = args.pid.is_some() || args.container.is_some();
    if let (true, Some(word)) = (runs, args.command.first()) {
        return Err(PlanError::Both(word.clone()).into());
    }
    if let Some(pid) = args.pid {
        return Ok(Subject::Pid(pid));
    }
    if let Some(name) = &args.container {
        return Ok(Subject::Container(Container::find(name)?));
    }
    if let Some(program) = &args.program {
        tare_launch::program::check_file(program)?;
        let mut path = program.to_string_lossy().into_owned();
        if !path.contains('/') {
            // Never a program from the search path.
            path.insert_str(0, "./");
        }
        let all = [&[path], args.command.as_slice()].concat();
        return Ok(Subject::Program(find_command(&all)?));
    }
    Ok(Subject::Command(find_command(&args.command)?))
}

fn find_command(command: &[String]) -> Result<FoundCommand, Failure> {
    let (name, arguments) = command.split_first().ok_or(PlanError::Nothing)?;
    Ok(FoundCommand {
        program: find_program(name)?,
        arguments: arguments.to_vec(),
        name: name.clone(),
    })
}
