//! Prints the account of a virtual machine as JSON:
//! `cargo run -p tare-probe --example account -- PID|NAME [SECONDS]`.

use std::error::Error;
use std::time::Duration;

use tare_probe::{kvm, vm};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let Some(target) = arguments.next() else {
        for vm in vm::list().vms {
            println!("{} {} {:?}", vm.pid, vm.name, vm.monitor);
        }
        return Ok(());
    };
    let seconds = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let vm = vm::find(&target)?;
    for account in kvm::observe(&[vm], Duration::from_secs(seconds)) {
        println!("{}", serde_json::to_string_pretty(&account)?);
    }
    Ok(())
}
