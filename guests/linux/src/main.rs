//! The appliance that `tare run ./program` starts: a static Linux program from the
//! initramfs on the library OS.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
tare_libos::entry!(
    main,
    programs_end = tare_linux::LOW_END,
    console = tare_libos::ports::attach,
    expiries = tare_linux::EXPIRIES
);

#[cfg(target_os = "none")]
fn main() -> Result<u8, tare_linux::RunError> {
    tare_linux::run()
}

#[cfg(not(target_os = "none"))]
fn main() {
    println!("this image boots by: tare run ./program");
}
