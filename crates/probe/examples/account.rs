//! Prints the account of a virtual machine as JSON, or with `all` what observing every
//! machine of this host costs:
//! `cargo run -p tare-probe --example account -- PID|NAME|all [SECONDS]`.

use std::convert::Infallible;
use std::error::Error;
use std::time::{Duration, Instant};

use tare_probe::clock::thread_cpu_ns;
use tare_probe::vm::Started;
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
    let window = Duration::from_secs(seconds);
    if target == "all" {
        cost_of_all(window);
        return Ok(());
    }
    let vm = vm::find(&target)?;
    let pause = |end: Instant| {
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        Ok::<(), Infallible>(())
    };
    for account in kvm::observe(&[vm], window, pause)? {
        println!("{}", serde_json::to_string_pretty(&account)?);
    }
    Ok(())
}

/// CPU time of each step, as `tare why` takes them.
fn cost_of_all(window: Duration) {
    let (begin, mut before_ns) = (Instant::now(), thread_cpu_ns());
    let mut step = |name: &str| {
        let now_ns = thread_cpu_ns();
        let ms = (now_ns - before_ns) as f64 / 1e6;
        println!("{name}: {ms:.1} ms of CPU time");
        before_ns = now_ns;
    };
    let mut started = Started::before_listing();
    let listing_ns = thread_cpu_ns();
    let vms = vm::list().vms;
    started.listed(Duration::from_nanos(thread_cpu_ns() - listing_ns));
    step(&format!("listing {} machines", vms.len()));
    let mut observer = kvm::Observer::start(&vms);
    step("starting to observe");
    let (end, mut next_list) = (Instant::now() + window, Instant::now());
    while Instant::now() < end {
        std::thread::sleep(observer.next_refresh());
        observer.refresh();
        if Instant::now() >= next_list {
            observer.join(&started.look().vms);
            next_list = Instant::now() + Duration::from_millis(500);
        }
    }
    step("the window");
    let accounts = observer.turn();
    step("reading at its end");
    let Some(first) = accounts.first() else {
        return;
    };
    let programs = first.observer.bpf_ns.unwrap_or(0) as f64 / 1e6;
    println!(
        "programs: {programs:.1} ms; counted {:.0} % of the time; {:.1} s in all",
        first.counted_share * 100.0,
        begin.elapsed().as_secs_f64()
    );
}
