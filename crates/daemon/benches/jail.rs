//! What the jail adds to a machine's start: `cargo bench -p tare-daemon --bench jail`.
//!
//! Each sample is its own process, which enters the jail and says how long that took:
//! namespaces can be entered once. Arms alternate; `none` is the control, the same process
//! with nothing to enter. Giving up capabilities is counted with the jail. `a machine` has a PID
//! namespace too, and is a child of the process that was started.

use std::error::Error;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::process::Command;
use std::time::Instant;

use rustix::process::geteuid;
use tare_control::config::{Jail, JailUser};
use tare_daemon::{confine, jail};

/// Samples of each arm.
const SAMPLES: usize = 200;
/// A user that the bench becomes where it may: no account's.
const USER: u32 = 1_899_999_999;
/// What is entered.
const ARMS: [&str; 5] = ["none", "user", "namespaces", "user and namespaces", MACHINE];
const MACHINE: &str = "a machine";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, enter, arm] = &arguments[..]
        && enter == "--enter"
    {
        return enter_as(arm);
    }
    let mut samples = ARMS.map(|_| Vec::with_capacity(SAMPLES));
    for _ in 0..SAMPLES {
        for (arm, samples) in ARMS.iter().zip(&mut samples) {
            let mut child = Command::new(std::env::current_exe()?);
            let said = child.args(["--enter", arm]).output()?;
            if !said.status.success() {
                return Err(String::from_utf8_lossy(&said.stderr).into());
            }
            samples.push(String::from_utf8(said.stdout)?.trim().parse::<u64>()?);
        }
    }
    println!("microseconds to enter: p10, median, p90 of {SAMPLES}");
    for (arm, mut samples) in ARMS.into_iter().zip(samples) {
        samples.sort_unstable();
        let at = |share: usize| samples[samples.len() * share / 100] / 1000;
        println!("{arm:20} {:6} {:6} {:6}", at(10), at(50), at(90));
    }
    Ok(())
}

/// Prints nanoseconds.
fn enter_as(arm: &str) -> Result<(), Box<dyn Error>> {
    let user = JailUser {
        uid: USER,
        gid: USER,
        claim: None,
    };
    let jail = Jail {
        namespaces: arm.contains("namespaces") || arm == MACHINE,
        user: ((arm.contains("user") || arm == MACHINE) && geteuid().is_root()).then_some(user),
    };
    // Its path is another one in the jail.
    let mut accounts = File::open("/proc/self/schedstat")?;
    let mut waited_before = waited_ns(&mut accounts)?;
    let begin = Instant::now();
    if arm == MACHINE {
        let entering = jail::fork_into_namespaces(&jail, &[])?;
        // The child's, which had waited for nothing before.
        accounts = File::open("/proc/self/schedstat")?;
        waited_before = 0;
        jail::enter_rest(&jail, &entering)?;
        confine::drop_capabilities(&[])?;
    } else if arm != "none" {
        jail::enter(&jail)?;
        confine::drop_capabilities(&[])?;
    }
    let took = u64::try_from(begin.elapsed().as_nanos())?;
    let waited = waited_ns(&mut accounts)? - waited_before;
    println!("{}", took.saturating_sub(waited));
    Ok(())
}

/// The second of three numbers: nanoseconds that the process waited for a CPU.
fn waited_ns(accounts: &mut File) -> Result<u64, Box<dyn Error>> {
    let mut text = String::new();
    accounts.rewind()?;
    accounts.read_to_string(&mut text)?;
    let waited = text.split_whitespace().nth(1);
    Ok(waited.ok_or("no scheduler statistics")?.parse()?)
}
