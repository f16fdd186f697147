//! What KVM offers a guest is in use.

use alloc::format;
use alloc::string::String;

use tare_libos::thread;
use tare_libos::time::{Duration, SystemTime};

use super::ensure::ensure;

#[cfg(target_os = "none")]
use tare_libos::hal::paravirt::{Paravirt, account};

/// Sleeps, each of which ends by an interrupt unless the core was late.
#[cfg(target_os = "none")]
const INTERRUPTS: u64 = 20;

/// Where KVM has a flag that saves writing the end of an interrupt, every core
/// has given it one (how many ends it saves is KVM's matter); where it has a
/// clock, that is where the wall clock comes from, and it must be stable for
/// counters to be taken as time.
#[cfg(target_os = "none")]
pub(super) fn check() -> Result<String, String> {
    let _ = SystemTime::now();
    let (mut saved, mut written) = (0, 0);
    for core in 0..thread::cores() {
        let (before, after) = thread::spawn_on(core, sleep_often).join();
        let here = after.ends_saved - before.ends_saved;
        let at_register = after.ends_written - before.ends_written;
        ensure(here + at_register >= INTERRUPTS / 2, || {
            format!("core {core}: {here} and {at_register} ends in {INTERRUPTS} sleeps")
        })?;
        ensure(after.eoi_enabled == after.offers_eoi, || {
            format!("core {core}: the flag is offered and not used")
        })?;
        ensure(after.offers_eoi || here == 0, || {
            format!("core {core}: a flag that is not there saved {here} ends")
        })?;
        saved += here;
        written += at_register;
    }
    let now = account();
    ensure(now.wall_clock_used == now.offers_clock, || {
        format!("{now:?}")
    })?;
    ensure(now.clock_is_stable || !now.offers_clock, || {
        "KVM's clock differs between CPUs".into()
    })?;
    Ok(format!(
        "eoi {} saved {saved} written {written} clock {} stable {} frequency {:?} send_ipi {}",
        now.offers_eoi, now.offers_clock, now.clock_is_stable, now.frequency, now.offers_send_ipi
    ))
}

#[cfg(target_os = "none")]
fn sleep_often() -> (Paravirt, Paravirt) {
    let before = account();
    for _ in 0..INTERRUPTS {
        thread::sleep(Duration::from_millis(2));
    }
    (before, account())
}

/// The host offers nothing.
#[cfg(not(target_os = "none"))]
pub(super) fn check() -> Result<String, String> {
    let slept = SystemTime::now();
    thread::sleep(Duration::from_millis(1));
    ensure(SystemTime::now() > slept, || "time stands still".into())?;
    Ok(format!("none of {} cores", thread::cores()))
}
