//! The kernel's `function_graph` tracer, set on the functions of system calls.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use rustix::mount::{MountFlags, mount};

use super::archive::PIECE_MAX;

const TRACING: &str = "/sys/kernel/tracing";
/// Trace buffer of a CPU, KiB.
const BUFFER_KIB: &str = "24576";

/// The tracer cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TracerError {
    /// A file of tracefs.
    #[error("the kernel's tracer rejects {what}")]
    Refused {
        /// What was asked of it.
        what: String,
        /// Why.
        source: io::Error,
    },
}

/// A tracer that runs until it is read.
#[derive(Debug)]
pub struct Tracer;

impl Tracer {
    /// Traces what these calls do, for this process and those it starts.
    pub fn start(calls: &[String]) -> Result<Self, TracerError> {
        if !Path::new(TRACING).join("trace").exists() {
            let mounted = mount("tracefs", TRACING, "tracefs", MountFlags::empty(), None);
            mounted.map_err(|errno| TracerError::Refused {
                what: "to be mounted".to_owned(),
                source: errno.into(),
            })?;
        }
        set("tracing_on", "0")?;
        set("buffer_size_kb", BUFFER_KIB)?;
        set("set_ftrace_pid", &std::process::id().to_string())?;
        set("options/function-fork", "1")?;
        for call in calls {
            append("set_graph_function", &format!("__x64_sys_{call}"))?;
        }
        set("options/funcgraph-proc", "1")?;
        // Interrupts within a call are not the call's doing.
        set("options/funcgraph-irqs", "0")?;
        set("current_tracer", "function_graph")?;
        set("tracing_on", "1")?;
        Ok(Self)
    }

    /// The trace so far, as text; the end of it where it is longer than is taken.
    pub fn read(self) -> Result<Vec<u8>, TracerError> {
        set("tracing_on", "0")?;
        let failed = |source| TracerError::Refused {
            what: "to be read".to_owned(),
            source,
        };
        let file = fs::File::open(Path::new(TRACING).join("trace")).map_err(failed)?;
        let mut text = Vec::new();
        file.take(PIECE_MAX)
            .read_to_end(&mut text)
            .map_err(failed)?;
        Ok(text)
    }
}

fn set(file: &str, value: &str) -> Result<(), TracerError> {
    fs::write(Path::new(TRACING).join(file), value).map_err(|source| refused(file, value, source))
}

fn append(file: &str, value: &str) -> Result<(), TracerError> {
    let open = fs::OpenOptions::new()
        .append(true)
        .open(Path::new(TRACING).join(file));
    open.and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()))
        .map_err(|source| refused(file, value, source))
}

fn refused(file: &str, value: &str, source: io::Error) -> TracerError {
    TracerError::Refused {
        what: format!("{value} as {file}"),
        source,
    }
}
