//! Prints what this machine's KVM is: `cargo run -p tare-hv --example probe`.

use std::error::Error;

use tare_hv::{Kvm, Probe};

fn main() -> Result<(), Box<dyn Error>> {
    let kvm = Kvm::open()?;
    let probe = Probe::run(&kvm)?;
    println!("{probe}");
    for result in &probe.instructions {
        println!("  {:<14} {}", result.instruction.name, result.outcome);
    }
    Ok(())
}
