//! The end of the machine: the status goes to the host, then the power off.
//!
//! The status is a line on the console, for engines whose exit port has no room
//! for it (QEMU), and a value for the exit port, which ends Tare's machines and
//! QEMU's at once. Where the kernel gives no access to ports, it powers off.

mod port;

use std::io::Write as _;

use rustix::fs::sync;
use rustix::mount::{MountFlags, mount_remount};
use rustix::system::{RebootCommand, reboot};
use tare_abi::exit::{GuestExit, STATUS_LINE};

/// Ends the machine.
pub(crate) fn end(status: u8) -> ! {
    sync();
    // A journal that is closed needs no recovery; an initramfs refuses, rightly.
    let _ = mount_remount("/", MountFlags::RDONLY, c"");
    let mut out = std::io::stdout();
    let _ = out.write_all(format!("\n{STATUS_LINE}{status}\n").as_bytes());
    let _ = out.flush();
    let _ = rustix::termios::tcdrain(&out);
    port::write(GuestExit::Status(status));
    let _ = reboot(RebootCommand::PowerOff);
    let _ = reboot(RebootCommand::Restart);
    loop {
        std::thread::park();
    }
}
