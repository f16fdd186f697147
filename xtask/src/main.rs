//! Project tooling, `cargo xtask VERB`: what the Makefile and CI call.
//!
//! | verb | what it does |
//! |---|---|
//! | `build` | `target/release/tare`, `tare-monitor` and the guest images beside them |
//! | `guests` | the guest images alone |
//! | `init` | the first process of Linux guests alone |
//! | `test` | every test, host and guest |
//! | `ci` | format, tidy, licences, advisories, clippy, docs |
//! | `tidy` | the project's own rules alone |
//! | `spec` | `docs/SPEC.md` from `docs/spec/*.toml` |
//! | `ioctls` | `crates/profile/src/names/ioctl.rs` from the kernel's headers |
//! | `results` | `docs/results.md` and the README's figures from `lab/runs` |
//! | `fuzz` | each fuzz target for some seconds |
//! | `size` | what the bytes of a guest image are, by crate, module and function |
//! | `soak` | the hostile guest on 1 and 2 vCPUs, interrupts and gates of ring 3, kills below a disk, system calls, then each fuzz target |

mod advisories;
mod build;
mod checks;
mod circles;
mod fuzz;
mod ioctls;
mod language;
mod layers;
mod licences;
mod links;
mod qemus;
mod results;
mod shell;
mod size;
mod soak;
mod spec;
mod test_programs;
mod tidy;
mod workspace;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Project tooling.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Build tare, tare-monitor and the guest images (release).
    Build,
    /// Build the guest images and put them into target/{debug,release}/images.
    Guests,
    /// Build the first process of Linux guests and put it beside the programs.
    Init,
    /// Run every test.
    Test,
    /// Check format, tidy, licences, advisories, clippy and docs.
    Ci,
    /// The project's own rules, quickly.
    Tidy,
    /// Write docs/SPEC.md from docs/spec/*.toml.
    Spec,
    /// Write the names of ioctl requests from the kernel's headers.
    Ioctls,
    /// Write docs/results.md and the README's figures from lab/runs.
    Results,
    /// Run each fuzz target for some seconds.
    Fuzz {
        /// Seconds for each target.
        #[arg(long, default_value_t = 10)]
        seconds: u32,
    },
    /// Print what the bytes of a guest image are.
    Size {
        /// An image with symbols.
        image: std::path::PathBuf,
        #[command(flatten)]
        detail: size::Detail,
    },
    /// Run the hostile guest on 1 and on 2 vCPUs, ten million interrupts, then each fuzz target.
    Soak {
        /// Seconds of the hostile guest for each number of vCPUs.
        #[arg(long, default_value_t = 1200)]
        seconds: u64,
        /// Seconds for each fuzz target; 0: none.
        #[arg(long, default_value_t = 600)]
        fuzz: u32,
        /// Where tare and images/ are already; otherwise they are built.
        #[arg(long)]
        programs: Option<std::path::PathBuf>,
    },
}

fn main() -> Result<()> {
    match Args::parse().verb {
        Verb::Build => build::release(),
        Verb::Guests => build::guests(),
        Verb::Init => build::init(),
        Verb::Test => build::test(),
        Verb::Ci => checks::ci(),
        Verb::Tidy => tidy::run(),
        Verb::Spec => spec::write(),
        Verb::Ioctls => ioctls::write(),
        Verb::Results => results::write(),
        Verb::Fuzz { seconds } => fuzz::run(seconds),
        Verb::Size { image, detail } => size::print(&image, detail),
        Verb::Soak {
            seconds,
            fuzz,
            programs,
        } => soak::run(&soak::Soak {
            seconds,
            fuzz,
            programs,
        }),
    }
}
