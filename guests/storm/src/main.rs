//! A machine that burns its host's CPU in one way, for `tare why` to name.
//!
//! Command line: `mode=NAME`, and `hz=N` (1000) or `us=N[,N]` where it says so.
//!
//! | mode | what it does |
//! |---|---|
//! | `quiet` | halts |
//! | `hpet`, `pit`, `rtc` | starts that periodic timer at `hz` and halts; the PIT and the RTC `through=ioapic` or `pic` (the 8259s), the PIT also `none` (its line is masked) |
//! | `late-pic` | starts the PIT with its line masked, and 20 ms later has its ticks through the 8259s |
//! | `tick` | sleeps until the next of `hz` deadlines, again and again |
//! | `sleep` | sleeps for each of `us` in turn, again and again |
//! | `spin` | never halts, on any CPU |
//! | `ipi` | the first CPU interrupts the second, which halts, at once again |
//! | `exit` | executes `kind=NAME[,NAME]` in turn, again and again |
//! | `net` | throws away what comes to UDP port 9 |
//!
//! Kinds of `exit` are those of the `vmexit` image, and `hpet`, `pit`, `rtc` and
//! `pm` (at `port=N`, 1544), which read that clock, and `print`. With `count=N` it
//! stops after N of each and prints `{"done":N}`; with `us=N` it sleeps so long after
//! every ten.
//!
//! Prints `{"storm":MODE}` when it begins, with `"hz":N` where a device had to
//! round it; fails if the machine has no such device.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod modes;

#[cfg(target_os = "none")]
tare_libos::entry!(modes::main, ring = 0);

/// Exits are the machine's: the host has none.
#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("storm runs in a machine: tare run storm --cmdline mode=spin");
}
